"""The producing service of the soak: the demo's replay, over and over, at a steady rate, until its time is over.

    python -m soak.feeder BOOTSTRAP FLIGHTS SECONDS RATE

Prints a line of JSON now and then, and at the end how many it sent; exit code 0 means that all were acknowledged.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import overload

from ottla.cli.demo.data import read_flights
from ottla.cli.demo.model import Flight
from ottla.cli.demo.replay import replay_flights

_STEP_S = 0.02


class Paced(Sequence[Flight]):
    """Flights over and over, as many a second, until the time is over; its length is how many were given so far."""

    def __init__(self, flights: Sequence[Flight], *, seconds: float, rate: float) -> None:
        self._flights = flights
        self._seconds = seconds
        self._rate = rate
        self._given = 0

    def __len__(self) -> int:
        return self._given

    @overload
    def __getitem__(self, index: int) -> Flight: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Flight]: ...
    def __getitem__(self, index: int | slice) -> Flight | Sequence[Flight]:
        if isinstance(index, slice):
            raise TypeError("a run of flights has no slices")
        return self._flights[index % len(self._flights)]

    def __iter__(self) -> Iterator[Flight]:
        started_s = time.monotonic()
        for flight in itertools.cycle(self._flights):
            elapsed_s = time.monotonic() - started_s
            if elapsed_s >= self._seconds:
                return
            if self._given > elapsed_s * self._rate:
                time.sleep(_STEP_S)
            self._given += 1
            yield flight


def main() -> None:
    bootstrap, count, seconds, rate = sys.argv[1:]
    flights = Paced(read_flights(int(count)), seconds=float(seconds), rate=float(rate))
    replay_flights(bootstrap, flights, report=_report, stop=threading.Event())
    _report(len(flights))


def _report(sent: int) -> None:
    print(json.dumps({"sent": sent}), flush=True)


if __name__ == "__main__":
    main()
