"""Where a share group begins on a partition that it has not read before (`share.auto.offset.reset`)."""

from __future__ import annotations

import re

from broker_embedded.storage.log import Log

_DURATION = re.compile(
    r"([+-]?)P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(?:[.,](\d{0,9}))?S)?)?", re.IGNORECASE
)
_DAY_MS, _HOUR_MS, _MINUTE_MS = 86_400_000, 3_600_000, 60_000


def first_offset(reset: str, log: Log, *, end_offset: int, now_ms: int) -> int:
    """Return the first offset for `earliest`, `latest` or `by_duration:PT1H`.

    `end_offset` is the end of the partition when the group came. A duration begins at the first record that is not
    older; where there is none, at the end.
    """
    if reset == "earliest":
        return log.log_start_offset
    way, _, duration = reset.partition(":")
    if way == "by_duration":
        found = log.offset_for_timestamp(now_ms - duration_ms(duration))
        if found is not None:
            return min(found.offset, log.high_watermark)
    return max(end_offset, log.log_start_offset)


def duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 duration of days, hours, minutes and seconds. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None or text.upper().rstrip("T").endswith("P"):
        raise ValueError(f"{text!r}: wanted a duration such as PT1H or P2DT30M")
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups()[1:5])
    fraction = (found.group(6) or "").ljust(3, "0")[:3]
    return days * _DAY_MS + hours * _HOUR_MS + minutes * _MINUTE_MS + seconds * 1000 + int(fraction)
