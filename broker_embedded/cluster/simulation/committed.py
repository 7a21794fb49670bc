"""What has been committed, remembered outside of every broker: the oracle of the simulation.

A record is committed when a leader's high watermark has passed it. From then on it is a promise: no replica may have
something else at its offset, every later leader has it, and an idempotent producer's record is there once.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from broker_embedded.cluster.simulation.violation import InvariantViolated
from broker_embedded.storage.log import Log
from ottla_wire.records.batch import iter_batches
from ottla_wire.records.control import decode_control_type
from ottla_wire.records.record import decode_batch

READ_BYTES = 1 << 20


class ObservedBatch(NamedTuple):
    """Identifies a batch wherever it is stored."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


class CommittedLog:
    """The committed batches of one partition, in order."""

    def __init__(self, place: str, *, has_values: bool) -> None:
        self.place = place
        self.end_offset = 0
        self.values: dict[int, bytes] = {}
        """By offset; of topics that clients write."""
        self._has_values = has_values
        self._batches: list[ObservedBatch] = []
        self._last_of: dict[bytes, int] = {}
        self.offsets_of: dict[bytes, int] = {}
        """Position of each value."""
        self._transactional: dict[int, int] = {}
        """The producer id by offset, of records in transactions."""
        self._markers: dict[int, list[tuple[int, str]]] = {}
        """(offset, COMMIT or ABORT) by producer id, in order."""

    def extend(self, log: Log, high_watermark: int, *, node: str) -> int:
        """Add the batches of a leader's log below `high_watermark`. Returns how many are new."""
        before = len(self._batches)
        for batch, data, position in _batches(log, self.end_offset, high_watermark):
            self._batches.append(batch)
            self.end_offset = batch.last_offset + 1
            if self._has_values:
                self._keep_values(data, position, node)
        return len(self._batches) - before

    def compare(self, log: Log, *, start: int, end: int, node: str) -> int:
        """Check that a replica has the committed batches between two offsets. Returns the offset for the next check."""
        offset = start
        index = self._index_of(start)
        for batch, _, _ in _batches(log, start, min(end, self.end_offset)):
            if index >= len(self._batches):
                break
            wanted = self._batches[index]
            if batch != wanted:
                raise InvariantViolated(
                    "replicas agree below the high watermark",
                    f"{self.place}: {node} has {batch}, committed is {wanted}",
                )
            offset = batch.last_offset + 1
            index += 1
        return offset

    def value_at(self, offset: int) -> bytes | None:
        return self.values.get(offset)

    def decision(self, offset: int) -> str:
        """Return the outcome of the record's transaction: COMMIT, ABORT, OPEN, or NONE if it is in none."""
        producer_id = self._transactional.get(offset)
        if producer_id is None:
            return "NONE"
        markers = self._markers.get(producer_id, [])
        index = bisect_right(markers, (offset, ""))
        return markers[index][1] if index < len(markers) else "OPEN"

    def open_transactions(self) -> list[int]:
        """Return the producer ids whose last record is not followed by a marker."""
        last = {producer_id: offset for offset, producer_id in self._transactional.items()}
        return [producer_id for producer_id, offset in last.items() if self.decision(offset) == "OPEN"]

    def _index_of(self, offset: int) -> int:
        low, high = 0, len(self._batches)
        while low < high:
            middle = (low + high) // 2
            if self._batches[middle].last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _keep_values(self, data: bytes, position: int, node: str) -> None:
        header = next(iter_batches(data, position))[1]
        for record in decode_batch(data, position):
            if header.is_control:
                kind = decode_control_type(record.key)
                markers = self._markers.setdefault(header.producer_id, [])
                markers.append((record.offset, "?" if kind is None else kind.name))
                continue
            if header.is_transactional:
                self._transactional[record.offset] = header.producer_id
            value = record.value or b""
            other = self.offsets_of.get(value)
            if other is not None:
                raise InvariantViolated(
                    "no duplicate from an idempotent producer",
                    f"{self.place}: {value!r} is committed at {other} and again at {record.offset} (leader {node})",
                )
            self.offsets_of[value] = record.offset
            producer, _, number = value.rpartition(b":")
            if self._last_of.get(producer, -1) >= int(number):
                raise InvariantViolated(
                    "a producer's records keep their order",
                    f"{self.place}: {value!r} at {record.offset} comes after number {self._last_of[producer]}",
                )
            self._last_of[producer] = int(number)
            self.values[record.offset] = value


def _batches(log: Log, start: int, end: int) -> list[tuple[ObservedBatch, bytes, int]]:
    """Return the batches of a log between two offsets."""
    found: list[tuple[ObservedBatch, bytes, int]] = []
    while start < end:
        data = b"".join(bytes(piece) for piece in log.read(start, READ_BYTES, at_least_one=True).buffers())
        before = start
        for position, header in iter_batches(data):
            if header.last_offset < start:
                continue
            if header.base_offset >= end:
                return found
            batch = ObservedBatch(header.base_offset, header.last_offset, header.partition_leader_epoch, header.crc)
            found.append((batch, data, position))
            start = header.next_offset
        if start == before:
            break
    return found
