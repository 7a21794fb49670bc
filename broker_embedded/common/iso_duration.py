"""ISO 8601 durations of days, hours, minutes and seconds, as Kafka's settings have them."""

from __future__ import annotations

import re

_DURATION = re.compile(
    r"\+?P(?=.)(?:(\d{1,19})D)?(?:T(?=.)(?:(\d{1,19})H)?(?:(\d{1,19})M)?(?:(\d{1,19})(?:[.,](\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_DAY_S, _HOUR_S, _MINUTE_S = 86_400, 3_600, 60
_LONGEST_S = 2**63 - 1
"""Java's Duration holds no more."""


def duration_ms(text: str) -> int:
    """Return the milliseconds of a duration such as `PT1H` or `P2DT30M`. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:100]!r}: wanted a duration such as PT1H or P2DT30M")
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups()[:4])
    whole_s = days * _DAY_S + hours * _HOUR_S + minutes * _MINUTE_S + seconds
    if whole_s > _LONGEST_S:
        raise ValueError(f"{text!r}: wanted a duration of at most {_LONGEST_S} seconds")
    milliseconds = (found[5] or "").ljust(3, "0")[:3]
    return whole_s * 1_000 + int(milliseconds)
