"""What a member handled, one line per delivery, each line one write: what was written survives SIGKILL.

D <seconds> <partition> <offset> <attempt> <send id> <key> <sequence>   a handler begins
F <seconds> <partition> <offset>                                        it raised
E <seconds> <event>                                                     an event of the consumer, or of the process
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


class Journal:
    """Written by one member, from any of its threads."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def delivered(self, partition: int, offset: int, attempt: int, send_id: str, key: str, sequence: int | str) -> None:
        self._write(f"D {time.time():.4f} {partition} {offset} {attempt} {send_id} {key} {sequence}\n")

    def failed(self, partition: int, offset: int) -> None:
        self._write(f"F {time.time():.4f} {partition} {offset}\n")

    def event(self, event: str) -> None:
        self._write(f"E {time.time():.4f} {event}\n")

    def _write(self, line: str) -> None:
        os.write(self._file, line.encode())


@dataclass(slots=True)
class Delivery:
    """One call of a handler for one record."""

    at_s: float
    member: str
    partition: int
    offset: int
    attempt: int
    send_id: str
    key: str
    sequence: int
    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class MemberEvent:
    at_s: float
    member: str
    event: str


def read_journal(path: Path, member: str) -> Iterator[Delivery | MemberEvent]:
    """All that a member wrote, deliveries with their end."""
    latest: dict[tuple[int, int], Delivery] = {}
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        what, at, *fields = line.split(" ")
        if what == "D":
            partition, offset, attempt = int(fields[0]), int(fields[1]), int(fields[2])
            delivery = Delivery(float(at), member, partition, offset, attempt, fields[3], fields[4], int(fields[5]))
            latest[partition, offset] = delivery
            yield delivery
        elif what == "F":
            latest[int(fields[0]), int(fields[1])].has_failed = True
        else:
            yield MemberEvent(float(at), member, fields[0])
