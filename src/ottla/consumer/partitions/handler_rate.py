"""How many records a handler gets per span of time: a token bucket for each handler of a process.

Each delivery of a record costs a token. Records that come back without a call of the handler (their run was cancelled,
an earlier record failed, they had expired) return theirs. A batch, or a group that is delivered again as one, is handed
out whole as soon as there is a token; the rest is a debt that the next one waits for. So the mean is the declared rate,
and what is handed out at once is `burst` records, or one batch.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Final

from ottla.config.arguments import names_arguments
from ottla.quantities import Span, count, number, seconds, seconds_of

_REFILL_MS: Final = 5
"""A handler without tokens waits until this many milliseconds' worth of tokens have accumulated: at 100,000 records per
second a run would otherwise have one record."""

_BURST_S: Final = 0.1
"""The tokens that are saved up unless `burst` says otherwise, as a span of the rate."""

_SHOWN_MS: Final = 1_000
"""A handler that waited for tokens so recently counts as limited. Commits and metrics are a second apart."""


@names_arguments
@dataclass(frozen=True, slots=True)
class Rate:
    """At most `records` records in `per_s` seconds (or a timedelta), for each handler and process.

    `burst` records may come at once after a time without any; as many as come in a tenth of a second unless given, and
    at least 1. A service of n processes handles n times as many.
    """

    records: float
    _: KW_ONLY
    per_s: Span = 1.0
    burst: int | None = None

    def __post_init__(self) -> None:
        number("Rate", "records", self.records, least=0.001)
        seconds("Rate", "per_s", self.per_s, least=0.001)
        if self.burst is not None:
            count("Rate", "burst", self.burst)

    @property
    def per_ms(self) -> float:
        """The records of a millisecond."""
        return self.records / (seconds_of(self.per_s) * 1_000)

    @property
    def most_at_once(self) -> int:
        """The records that may come at once."""
        return max(1, math.ceil(self.per_ms * 1_000 * _BURST_S)) if self.burst is None else self.burst


class RateMeter:
    """The running count of one rate. Pure: time comes in with each call, in monotonic milliseconds."""

    __slots__ = ("_at_ms", "_burst", "_per_ms", "_refill", "_tokens", "resumes_ms")

    def __init__(self, rate: Rate, now_ms: int) -> None:
        self._per_ms = rate.per_ms
        self._burst = rate.most_at_once
        self._refill = max(1.0, min(float(self._burst), _REFILL_MS * self._per_ms))
        self._tokens = float(self._burst)
        self._at_ms = now_ms
        self.resumes_ms = now_ms - _SHOWN_MS
        """Until when, at the last look, no record might be handed out."""

    def allowed(self, now_ms: int) -> int:
        """Return how many records may be handed out now; 0 until `resumes_ms`."""
        if now_ms < self.resumes_ms:
            return 0
        self._tokens = min(self._tokens + (now_ms - self._at_ms) * self._per_ms, self._burst)
        self._at_ms = now_ms
        if self._tokens >= 1:
            return int(self._tokens)
        self.resumes_ms = now_ms + math.ceil((self._refill - self._tokens) / self._per_ms)
        return 0

    def spend(self, records: int) -> None:
        """Pay for records that are handed out."""
        self._tokens -= records

    def give_back(self, records: int, now_ms: int) -> None:
        """Return the tokens of records whose handler was not called."""
        self._tokens += records
        self.resumes_ms = min(self.resumes_ms, now_ms)

    def is_limited(self, now_ms: int) -> bool:
        """Return whether records wait, or waited a moment ago, for their tokens."""
        return now_ms < self.resumes_ms + _SHOWN_MS
