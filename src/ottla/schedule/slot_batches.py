"""Messages that leave a slot, as record batches of their targets: made of their bytes as they came.

It is terse where something is done for each message: everything else costs once per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.key_hashes import positive_murmur2
from ottla.schedule.headers import DELIVERED_PREFIX, RecordToWrite, ScheduledMessage, delivered
from ottla.wire_client.producing.outgoing_batch import OutgoingBatch
from ottla_wire.records.record import encode_headers, varint

BATCH_BYTES: Final = 400_000
"""A batch is closed behind it: topics take a megabyte unless they say otherwise (`max.message.bytes`)."""


def _named(name: str) -> bytes:
    return varint(len(name)) + name.encode()


_ID: Final = _named(DELIVERED_PREFIX + "id")
_DUE: Final = _named(DELIVERED_PREFIX + "due")
_AT: Final = _named(DELIVERED_PREFIX + "at")
_NULL: Final = b"\x01"


@dataclass(slots=True)
class _FillingBatch:
    """One batch while it fills."""

    pieces: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    size_bytes: int = 0


class Batches:
    """The records of one transaction. `now_ms` is their timestamp; `place_of(topic, partition, key)` says where a
    record goes."""

    def __init__(
        self, *, now_ms: int, place_of: Callable[[str, int | None, bytes | None], int], batch_bytes: int = BATCH_BYTES
    ) -> None:
        self._now_ms = now_ms
        self._place_of = place_of
        self._batch_bytes = batch_bytes
        self._open: dict[tuple[str, int], _FillingBatch] = {}
        self._planned: dict[str, list[OutgoingBatch]] = {}

    def deliver(self, messages: Sequence[ScheduledMessage]) -> None:
        """Deliver these messages, each to its own topic."""
        for message in messages:
            if message.ttl_ms is not None:
                self.add(delivered(message), message.offset)
                continue
            own = message.headers
            id, due, at = message.id.encode(), b"%d" % message.due_ms, b"%d" % message.at_ms
            self._append(
                message.topic,
                message.partition,
                message.key,
                message.value,
                b"".join(
                    (
                        varint(len(own) + 3),
                        encode_headers(own) if own else b"",
                        _ID,
                        varint(len(id)),
                        id,
                        _DUE,
                        varint(len(due)),
                        due,
                        _AT,
                        varint(len(at)),
                        at,
                    )
                ),
                message.offset,
            )

    def add(self, record: RecordToWrite, offset: int) -> None:
        """Add a record that results from the message at this offset of the slot."""
        headers = varint(len(record.headers)) + encode_headers(record.headers)
        self._append(record.topic, record.partition, record.key, record.value, headers, offset)

    def planned(self) -> dict[str, list[OutgoingBatch]]:
        """Return topic → its batches. The tag of each is the slot's offsets of its records, in their order."""
        for place in list(self._open):
            self._close(place)
        return self._planned

    def _append(
        self, topic: str, partition: int | None, key: bytes | None, value: bytes | None, headers: bytes, offset: int
    ) -> None:
        place = (topic, self._place_of(topic, partition, key))
        batch = self._open.get(place)
        if batch is None:
            batch = self._open[place] = _FillingBatch()
        elif batch.size_bytes > self._batch_bytes - len(headers) - (0 if value is None else len(value)):
            self._close(place)
            batch = self._open[place] = _FillingBatch()
        offsets = batch.offsets
        # Attributes, and no difference to the batch's timestamp; then the offset's.
        body = b"".join(
            (
                b"\0\0",
                varint(len(offsets)),
                _NULL if key is None else varint(len(key)) + key,
                _NULL if value is None else varint(len(value)) + value,
                headers,
            )
        )
        size = len(body)
        batch.pieces += (varint(size), body)
        offsets.append(offset)
        batch.size_bytes += size + 5

    def _close(self, place: tuple[str, int]) -> None:
        batch = self._open.pop(place)
        topic, partition = place
        planned = OutgoingBatch(
            partition=partition,
            first_row=0,
            row_count=len(batch.offsets),
            payload=b"".join(batch.pieces),
            base_timestamp_ms=self._now_ms,
            max_timestamp_ms=self._now_ms,
            tag=batch.offsets,
        )
        self._planned.setdefault(topic, []).append(planned)


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that Java's clients choose for a key."""
    return positive_murmur2(key) % partitions
