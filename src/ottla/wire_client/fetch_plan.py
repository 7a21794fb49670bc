"""Where a member of a group reads on, partition by partition, sans IO: which fetches to send, what responses mean.

The set changes while it reads: partitions come and go, are paused, and are sent elsewhere by a seek. Each change of a
partition's place has a number, its `turn`: what was asked for in an earlier turn is not of this place, and is dropped.

A partition without a position has to be looked up first (`unplaced`): nothing was committed, or what was is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.topics import TopicPartition
from ottla.wire_client.aborted import AbortedTransaction
from ottla.wire_client.cluster import LEADER_MOVED
from ottla.wire_client.errors import CorruptBatch
from ottla.wire_client.segments import Segment
from ottla.wire_client.settings import WireSettings
from ottla_wire.protocol import ErrorCode

_LARGEST_FETCH_BYTES: Final = 1 << 30


@dataclass(slots=True)
class _Place:
    """One partition. `position` is None until it is known where to begin."""

    position: int | None
    turn: int
    max_bytes: int
    is_paused: bool = False
    replica: int = -1
    is_asked: bool = False
    was_committed: bool = False
    """Its position was once known: what is out of range now was lost."""


@dataclass(frozen=True, slots=True)
class FetchAsk:
    """One request to one broker, and in which turn each partition was asked for."""

    body: dict[str, Any]
    turns: Mapping[TopicPartition, int]


@dataclass(slots=True)
class Fetched:
    """What a response holds."""

    segments: list[tuple[Segment, int]] = field(default_factory=list)
    """Each with the turn in which it was asked for."""
    moved: set[str] = field(default_factory=set)
    """Topics whose leaders are to be asked for again."""
    errors: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    """Partitions that cannot be read, for a reason that a retry may not change."""


class FetchPlan:
    """See the module. Not thread-safe: a shell guards it with the lock of its session."""

    def __init__(self, settings: WireSettings) -> None:
        self._settings = settings
        self._places: dict[TopicPartition, _Place] = {}
        self._turn = 0

    # What the session wants

    def add(self, partition: TopicPartition, position: int | None) -> None:
        """Read this partition, from `position` on; None where that is to be looked up."""
        self._places[partition] = _Place(
            position, self._next_turn(), self._settings.max_partition_fetch_bytes, was_committed=position is not None
        )

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._places.pop(partition, None)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        place = self._places.get(partition)
        if place is not None:
            place.position, place.turn, place.is_asked = offset, self._next_turn(), False
            place.was_committed = True

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if partition in self._places:
                self._places[partition].is_paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if partition in self._places:
                self._places[partition].is_paused = False

    # What the shell asks

    def position(self, partition: TopicPartition) -> int | None:
        place = self._places.get(partition)
        return None if place is None else place.position

    def is_current(self, partition: TopicPartition, turn: int) -> bool:
        """Whether what was asked for in this turn is still wanted."""
        place = self._places.get(partition)
        return place is not None and place.turn == turn

    @property
    def has_paused(self) -> bool:
        return any(place.is_paused for place in self._places.values())

    def unplaced(self) -> dict[TopicPartition, tuple[int, bool]]:
        """Partitions whose position is to be looked up, with their turn, and whether an offset of theirs was lost."""
        return {
            partition: (place.turn, place.was_committed)
            for partition, place in self._places.items()
            if place.position is None
        }

    def placed(self, partition: TopicPartition, turn: int, position: int) -> None:
        """It was looked up."""
        place = self._places.get(partition)
        if place is not None and place.turn == turn:
            place.position, place.was_committed = position, True

    def wanted(self) -> list[TopicPartition]:
        """The partitions to ask for now."""
        return [
            partition
            for partition, place in self._places.items()
            if place.position is not None and not place.is_paused and not place.is_asked
        ]

    def replica_of(self, partition: TopicPartition) -> int:
        """The follower that the leader named as nearer (KIP-392), or -1: the leader."""
        place = self._places.get(partition)
        return -1 if place is None else place.replica

    def ask(
        self, partitions: Collection[TopicPartition], *, ids: Mapping[str, bytes] | None, max_wait_ms: int
    ) -> FetchAsk:
        """The fetch of these partitions from one broker; they are under way from now on. `ids`: of their topics, where
        the broker takes them instead of names."""
        topics: dict[str, list[dict[str, Any]]] = {}
        turns: dict[TopicPartition, int] = {}
        largest = self._settings.fetch_max_bytes
        for partition in partitions:
            place = self._places[partition]
            place.is_asked = True
            turns[partition] = place.turn
            largest = max(largest, place.max_bytes)
            topics.setdefault(partition.topic, []).append(
                {
                    "partition": partition.partition,
                    "fetch_offset": place.position,
                    "partition_max_bytes": place.max_bytes,
                }
            )
        return FetchAsk(
            {
                "max_wait_ms": max_wait_ms,
                "min_bytes": 1,
                "max_bytes": largest,
                "isolation_level": self._settings.isolation.value,
                "topics": [
                    ({"topic": name} if ids is None else {"topic_id": ids[name]}) | {"partitions": entries}
                    for name, entries in topics.items()
                ],
                "rack_id": self._settings.client_rack,
            },
            turns,
        )

    def lost(self, ask: FetchAsk) -> None:
        """The connection was lost before the answer came: ask again, and the leader."""
        for partition, turn in ask.turns.items():
            place = self._places.get(partition)
            if place is not None and place.turn == turn:
                place.is_asked, place.replica = False, -1

    def answered(self, ask: FetchAsk, response: Any, names: Mapping[bytes, str]) -> Fetched:
        """What a response holds. Partitions that are wanted still may be asked for again after `advance`."""
        found = Fetched()
        code = ErrorCode.of(response.error_code)
        self.lost_answers(ask)
        if code is not ErrorCode.NONE:
            found.moved.update(partition.topic for partition in ask.turns)
            return found
        for topic in response.responses:
            name = names.get(bytes(getattr(topic, "topic_id", None) or b""), topic.topic)
            for entry in topic.partitions:
                partition = TopicPartition(name or "", entry.partition_index)
                turn = ask.turns.get(partition)
                place = self._places.get(partition)
                if turn is not None and place is not None and place.turn == turn:
                    self._entry(partition, place, entry, found)
        return found

    def lost_answers(self, ask: FetchAsk) -> None:
        """The partitions of a request that is over may be asked for again."""
        for partition, turn in ask.turns.items():
            place = self._places.get(partition)
            if place is not None and place.turn == turn:
                place.is_asked = False

    def advance(self, segment: Segment, turn: int, next_offset: int) -> None:
        """A segment was looked through: the partition goes on at `next_offset`, and behind those that got nothing."""
        partition = TopicPartition(segment.topic, segment.partition)
        place = self._places.get(partition)
        if place is None or place.turn != turn:
            return
        if next_offset > (place.position or 0):
            place.position = next_offset
            # Brokers fill a response in the order of its request (KIP-74): whoever got data goes to the end.
            self._places[partition] = self._places.pop(partition)
        elif place.max_bytes < _LARGEST_FETCH_BYTES:
            place.max_bytes *= 2  # the batch was cut off: brokers before KIP-74, or a batch beyond the limits
        else:
            raise CorruptBatch(
                f"{partition}: a batch at offset {place.position} is larger than {place.max_bytes} bytes"
            )

    # Parts

    def _entry(self, partition: TopicPartition, place: _Place, entry: Any, found: Fetched) -> None:
        code = ErrorCode.of(entry.error_code)
        replica = getattr(entry, "preferred_read_replica", -1)
        if code is ErrorCode.NONE and replica >= 0:
            place.replica = replica
        elif code is ErrorCode.NONE:
            if entry.records is not None and len(entry.records):
                aborted = [AbortedTransaction(a.producer_id, a.first_offset) for a in entry.aborted_transactions or ()]
                segment = Segment(
                    topic=partition.topic,
                    partition=partition.partition,
                    data=memoryview(entry.records),
                    start=place.position or 0,
                    aborted=aborted,
                )
                found.segments.append((segment, place.turn))
        elif code in LEADER_MOVED or (code is ErrorCode.OFFSET_OUT_OF_RANGE and place.replica >= 0):
            place.replica = -1  # what a follower does not have, or no longer, the leader knows of
            found.moved.add(partition.topic)
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            place.position, place.turn = None, self._next_turn()
        elif code is ErrorCode.CORRUPT_MESSAGE:
            raise CorruptBatch(f"{partition}: the broker found a corrupt batch at or after offset {place.position}")
        else:
            found.errors[partition] = code

    def _next_turn(self) -> int:
        self._turn += 1
        return self._turn
