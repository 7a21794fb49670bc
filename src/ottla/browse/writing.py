"""Writing records over the wire client: in batches by partition, in the order of their lines, each line accounted for.

The wire client's producer is idempotent, so what is sent again after a lost answer is in the topic once. Memory is one
batch per partition and what is in flight.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.browse.record_input import InputRecord
from ottla.errors import DeliveryError, InputError
from ottla.key_hashes import positive_murmur2
from ottla.records import TopicPartition
from ottla.wire_client.cluster.cluster_client import Cluster
from ottla.wire_client.cluster.topic_limits import max_message_bytes
from ottla.wire_client.errors import WriteForbidden
from ottla.wire_client.producing.batch_producer import ProduceClient
from ottla.wire_client.producing.outgoing_batch import OutgoingBatch
from ottla_wire.records import BATCH_OVERHEAD, RecordData, encode_record

_MOST_RECORDS: Final = 5_000
_MOST_WAITING_BYTES: Final = 8 * 1024 * 1024

Acknowledged = Callable[[int, int, Sequence[int]], None]
"""Called with partition, first offset (-1: not known) and the numbers of the lines of a batch."""


class RefusedRecord(InputError, has_page=False):
    """Correct the record that the message names, or its topic: the broker does not take it."""


class _PartitionBatch:
    """The records of one partition that travel together next."""

    __slots__ = ("base_ms", "lines", "max_ms", "pieces", "size")

    def __init__(self, first_ms: int) -> None:
        self.pieces: list[bytes] = []
        self.lines: list[int] = []
        self.size = 0
        self.base_ms = first_ms
        self.max_ms = first_ms


class RecordWriter:
    """`add` records, `flush` to have them acknowledged. Raises `InputError` that names a record's line, and
    `RefusedRecord` where the broker refused it: then what was not acknowledged is given up. `what` is what the number
    of a record is called, where that is no line."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        acknowledged: Acknowledged,
        what: str = "line",
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._topic = topic
        self._what = what
        self._partitions = sorted(cluster.topic(topic).leaders)
        self._there = frozenset(self._partitions)
        self._limit, self._setting = max_message_bytes(cluster, topic)
        self._most_bytes = min(cluster.settings.batch_size, self._limit) - BATCH_OVERHEAD
        self._now_ms = now_ms
        self._next_sticky = now_ms() % len(self._partitions)
        self._batches: dict[int, _PartitionBatch] = {}
        self._waiting_bytes = 0
        self._on_acknowledged = acknowledged
        self._suspects: list[int] = []
        self._client = ProduceClient(cluster, acknowledged=self._acknowledged, refused=self._refused)
        self.written = 0

    def add(self, record: InputRecord) -> None:
        """Take a record. It may be sent now, or with those that follow."""
        line, key, value, headers, partition, at_ms = record
        number = self._partition_of(line, key, partition)
        if at_ms is None:
            at_ms = self._now_ms()
        batch = self._batches.get(number)
        if batch is None:
            batch = self._batches[number] = _PartitionBatch(at_ms)
        pieces, lines = batch.pieces, batch.lines
        data = RecordData(0, at_ms, key, value, headers)
        encode_record(data, len(lines), at_ms - batch.base_ms, pieces)
        size = len(pieces[-1]) + len(pieces[-2])
        if lines and batch.size + size > self._most_bytes:
            del pieces[-2:]
            self._send([number])
            self.add(record)
            return
        lines.append(line)
        batch.size += size
        if at_ms > batch.max_ms:
            batch.max_ms = at_ms
        self._waiting_bytes += size
        if len(lines) >= _MOST_RECORDS or batch.size >= self._most_bytes:
            self._send([number])
        elif self._waiting_bytes > _MOST_WAITING_BYTES:
            self._send(list(self._batches))

    def flush(self) -> None:
        """Send what waits, and wait until all is acknowledged."""
        self._send(list(self._batches))
        self._settled(self._client.flush)

    def abandon(self) -> None:
        """Forget what is not acknowledged."""
        self._batches.clear()
        self._client.abandon()

    def _partition_of(self, line: int, key: bytes | None, partition: int | None) -> int:
        partitions = self._partitions
        if partition is not None:
            if partition not in self._there:
                raise InputError(
                    f"{self._what} {line}: found partition {partition}, but {self._topic} has {len(partitions)}"
                    " (--repartition lets the key decide)"
                )
            return partition
        if len(partitions) == 1:
            return partitions[0]
        if key is None:
            return partitions[self._next_sticky]
        return partitions[positive_murmur2(key) % len(partitions)]

    def _send(self, numbers: Sequence[int]) -> None:
        planned = []
        for number in numbers:
            batch = self._batches.pop(number)
            self._waiting_bytes -= batch.size
            planned.append(
                OutgoingBatch(
                    partition=number,
                    first_row=0,
                    row_count=len(batch.lines),
                    payload=b"".join(batch.pieces),
                    base_timestamp_ms=batch.base_ms,
                    max_timestamp_ms=batch.max_ms,
                    tag=batch.lines,
                )
            )
        if planned:
            self._next_sticky = (self._next_sticky + 1) % len(self._partitions)  # KIP-480: another after each batch
            self._settled(lambda: self._client.send(self._topic, planned))

    def _settled(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except DeliveryError as error:
            reason = error.undelivered[0].error if error.undelivered else str(error)
            hint = f" ({self._setting}={self._limit:,})" if "MESSAGE_TOO_LARGE" in reason else ""
            if isinstance(error.__cause__, WriteForbidden):  # no record's fault: what it says is how to allow it
                reason = str(error.__cause__)
                self._suspects = []
            more = f"; {error.total:,} records are not acknowledged" if error.total > 1 else ""
            place = f"{_named(self._what, self._suspects)}{self._topic}"
            raise RefusedRecord(f"{place}: {reason.removeprefix(f'{self._topic}: ')}{hint}{more}") from None

    def _acknowledged(self, key: TopicPartition, lines: Any, base_offset: int) -> None:
        self.written += len(lines)
        self._on_acknowledged(key.partition, base_offset, lines)

    def _refused(self, _key: TopicPartition, lines: Any, rows: Sequence[int]) -> None:
        self._suspects = [lines[row] for row in rows] or list(lines)


def _named(what: str, lines: Sequence[int]) -> str:
    if not lines:
        return ""
    if len(lines) == 1:
        return f"{what} {lines[0]}: "
    return f"one of {len(lines):,} {what}s, {lines[0]} to {lines[-1]}: "
