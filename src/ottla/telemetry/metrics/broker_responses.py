"""Metrics of one broker's responses, for clients without statistics (`ottla.client.broker.*`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.telemetry.metrics.measurements import BrokerMeasure

FIRST_TOLD_MS: Final = 1_000
TOLD_EVERY_MS: Final = 10_000
"""Interval of reports, the same as of librdkafka's statistics."""


@dataclass(slots=True)
class BrokerResponses:
    """`in_flight` counts the responses that are due now. `connects` and `timeouts` count from the start, the other
    fields since the last `measure`."""

    in_flight: int = 0
    connects: int = 0
    timeouts: int = 0
    answers: int = 0
    timed: int = 0
    timed_ms: float = 0.0
    throttled_ms: int = 0
    rtt_s: float = 0.0

    def measure(self, broker: int, *, is_up: bool) -> BrokerMeasure:
        """Return the broker's measure. Counting since the last measure starts again at zero."""
        if self.timed:
            self.rtt_s = self.timed_ms / self.timed / 1_000
        measure = BrokerMeasure(
            broker=str(broker),
            is_up=is_up,
            rtt_s=self.rtt_s,
            requests_waiting=0,
            requests_in_flight=self.in_flight,
            connects=self.connects,
            timeouts=self.timeouts,
            throttle_s=self.throttled_ms / self.answers / 1_000 if self.answers else 0.0,
        )
        self.answers = self.timed = self.throttled_ms = 0
        self.timed_ms = 0.0
        return measure
