"""How much the next fetch may bring, sans IO: no more than there is room for, with what is on its way already.

A broker sends up to what it is asked for, and what comes takes more memory than it had on the wire: it is inflated, and
each record has columns of its own. So a fetch is asked for the room that is left, divided by what bytes grew to lately.
It gets no more than half of it, so that what comes from other brokers, and partitions of which nothing is there yet,
find some as well; and no more than a sixteenth of the whole, for the bytes of a response stay until it is opened. Where
many brokers are asked side by side it is less: a broker that has nothing answers late, and what it was asked for is
taken meanwhile. All of those together take half of the room.

A broker gives at least one record batch (KIP-74), however little it is asked for. While there is no room it is not
asked, or once a second: what fills the room may wait for a partition of which nothing is there, and that one gets on by
a batch at a time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_PARTS: Final = 16
_LEAST_BYTES: Final = 64 * 1024
"""Less than this is no room: it would be filled by many small fetches."""

_STARVED_MS: Final = 1_000
_BATCH_BYTES: Final = 1024 * 1024
"""The largest batch that brokers take by default. A partition's share is not smaller: less than
its next batch brings nothing, and a response would hold the one batch that it always may."""

_FORGETS: Final = 0.9
"""Factor by which the measured growth decays after a response that grew less."""


class Share(NamedTuple):
    """Byte limits of one fetch: in total, and per partition."""

    most_bytes: int
    partition_bytes: int


class FetchBudget:
    """See the module. `taken` counts bytes that were requested, or received and not decoded yet."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._growth = 1.0
        self._had_room_ms = 0
        self.taken = 0

    @property
    def most_inflated_bytes(self) -> int:
        """Return how much of a response is to be inflated at once."""
        return max(1, self._total_bytes // _PARTS)

    def share(self, *, free_bytes: int, partitions: int, brokers: int, now_ms: int) -> Share | None:
        """Return the byte limit of the next fetch, given the numbers of partitions read and of brokers asked in
        parallel, and the bytes of the buffer that are free. None: there is no room now."""
        part = max(1, self._total_bytes // max(_PARTS, 2 * brokers))
        left = free_bytes - self.taken
        if left < min(_LEAST_BYTES, part) and now_ms - self._had_room_ms < _STARVED_MS:
            return None
        self._had_room_ms, left = now_ms, max(0, left)
        takes = self._growth + 1  # a response stays as it came until the last of it was opened
        most = min(part, left // 2) / takes
        return Share(max(1, int(most)), max(_BATCH_BYTES, int(left / takes / (partitions + 1))))

    def asked(self, most_bytes: int) -> int:
        """Reserve room for a response. Returns what to give back when it came, or does not."""
        return self._take(round(most_bytes * (self._growth + 1)))

    def came(self, wire_bytes: int) -> int:
        """Count a response that came. Returns what to give back when all of it was opened."""
        return self._take(wire_bytes)

    def gives_back(self, taken: int) -> None:
        self.taken -= taken

    def grew(self, wire_bytes: int, held_bytes: int, *, is_all: bool) -> None:
        """Count bytes of a partition and the memory that they take now; a partial decode would take more."""
        if wire_bytes > 0:
            before = self._growth * _FORGETS if is_all else self._growth
            self._growth = max(1.0, held_bytes / wire_bytes, before)

    def _take(self, size_bytes: int) -> int:
        self.taken += size_bytes
        return size_bytes
