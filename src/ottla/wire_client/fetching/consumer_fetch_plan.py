"""Where a member of a group reads on, partition by partition, sans IO: which fetches to send, what responses mean.

The set changes while it reads: partitions come and go, are paused, and are sent elsewhere by a seek. Each change of a
partition's place has a number, its `turn`: what was asked for in an earlier turn is not of this place, and is dropped.

A partition without a position has to be looked up first (`unplaced`): nothing was committed, or what was is gone. One
that has a position and is not paused is `wanted` until a broker reads it. A broker reads it on from there until it
answers with something of it: what it was asked for is remembered by both sides (`fetch_session`), so that a fetch costs
as much as there is to say, not as there are partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.topics import TopicPartition
from ottla.wire_client.client_settings import WireSettings
from ottla.wire_client.cluster.cluster_client import LEADER_MOVED
from ottla.wire_client.errors import CorruptBatch
from ottla.wire_client.fetching.consumer_fetch_session import SESSION_ERRORS, ConsumerFetchSession, WantedPartition
from ottla.wire_client.fetching.fetch_budget import Share
from ottla.wire_client.fetching.fetched_batches import Segment
from ottla.wire_client.fetching.single_partition_fetch import encode_single_partition_fetch, rack_at_the_end
from ottla_wire.protocol import ErrorCode
from ottla_wire.records.control import AbortedTransaction

_LARGEST_FETCH_BYTES: Final = 1 << 30


@dataclass(slots=True)
class _Place:
    """One partition. `position` is None until it is known where to begin."""

    position: int | None
    turn: int
    max_bytes: int
    is_paused: bool = False
    replica: int = -1
    node_id: int | None = None
    """The broker that reads it for us."""
    goes_on_at: int | None = None
    """The broker that read it until now. Nothing is known that would speak against going on there."""
    was_committed: bool = False
    """Its position was once known: what is out of range now was lost."""
    begins_at_start: bool = False
    """Without a position it begins where its log does."""


class PlannedFetch(NamedTuple):
    """One request to one broker. It is under way until `answered` or `lost`."""

    node_id: int
    body: dict[str, Any] | bytes
    max_bytes: int
    is_by_id: bool
    """Topics go by their ids in it, and not by their names."""
    is_full: bool
    """True if it begins a session instead of continuing one."""


@dataclass(slots=True)
class FetchResult:
    """Content of a response."""

    segments: list[tuple[Segment, int]] = field(default_factory=list)
    """Each with the turn in which it was asked for."""
    moved: set[str] = field(default_factory=set)
    """Topics whose leaders are to be asked for again."""
    errors: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    """Partitions that cannot be read, for a reason that a retry may not change."""


class ConsumerFetchPlan:
    """See the module. Not thread-safe: a shell guards it with the lock of its session."""

    def __init__(self, settings: WireSettings) -> None:
        self._settings = settings
        self._places: dict[TopicPartition, _Place] = {}
        self._turn = 0
        self._wanted: dict[TopicPartition, None] = {}
        self._unplaced: dict[TopicPartition, None] = {}
        self._paused: set[TopicPartition] = set()
        self._rack = rack_at_the_end(settings.client_rack)
        self._isolation_level: int = settings.isolation.value
        self._sessions: dict[int, ConsumerFetchSession] = {}
        """By broker. One that is asked for nothing any more has an empty one."""

    # What the session wants

    def add(self, partition: TopicPartition, position: int | None, *, begins_at_start: bool = False) -> None:
        """Read this partition from `position` on; None: look the position up, at the partition's start or by the reset
        policy."""
        self.remove([partition])
        self._places[partition] = place = _Place(
            position,
            self._next_turn(),
            self._settings.max_partition_fetch_bytes,
            was_committed=position is not None,
            begins_at_start=begins_at_start,
        )
        self._forget(partition, place)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            place = self._places.pop(partition, None)
            if place is not None:
                self._forget(partition, place)
                self._wanted.pop(partition, None)
                self._unplaced.pop(partition, None)
                self._paused.discard(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        place = self._places.get(partition)
        if place is not None:
            place.position, place.turn, place.was_committed = offset, self._next_turn(), True
            self._forget(partition, place)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            place = self._places.get(partition)
            if place is not None and not place.is_paused:
                place.is_paused = True
                self._paused.add(partition)
                self._forget(partition, place)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            place = self._places.get(partition)
            if place is not None and place.is_paused:
                place.is_paused = False
                self._paused.discard(partition)
                self._forget(partition, place)

    # What the shell asks

    def position(self, partition: TopicPartition) -> int | None:
        place = self._places.get(partition)
        return None if place is None else place.position

    def is_current(self, partition: TopicPartition, turn: int) -> bool:
        """Return whether the request of this turn is still wanted."""
        place = self._places.get(partition)
        return place is not None and place.turn == turn

    @property
    def has_paused(self) -> bool:
        return bool(self._paused)

    @property
    def has_unplaced(self) -> bool:
        """Return whether a position must be looked up."""
        return bool(self._unplaced)

    def unplaced(self) -> dict[TopicPartition, tuple[int, bool]]:
        """Return partitions whose position is to be looked up, with their turn, and whether an offset of theirs was
        lost."""
        return {
            partition: (self._places[partition].turn, self._places[partition].was_committed)
            for partition in self._unplaced
        }

    def begins_at_start(self, partition: TopicPartition) -> bool:
        """Return whether a partition that is to be looked up begins where its log does."""
        place = self._places.get(partition)
        return place is not None and place.begins_at_start and not place.was_committed

    def placed(self, partition: TopicPartition, turn: int, position: int) -> None:
        """Set a position that was looked up."""
        place = self._places.get(partition)
        if place is not None and place.turn == turn:
            place.position, place.was_committed = position, True
            self._forget(partition, place)

    def wanted(self) -> list[TopicPartition]:
        """Return the partitions that a broker is to be asked for now. The others are read already, or cannot be."""
        return list(self._wanted)

    def nodes(self) -> list[int]:
        """Return the brokers with a fetch session that is in use."""
        return [node_id for node_id, session in self._sessions.items() if session.reads]

    @property
    def reads(self) -> int:
        """Return how many partitions are read, or to be read as soon as a broker is asked."""
        return len(self._places) - len(self._unplaced) - len(self._paused)

    def replica_of(self, partition: TopicPartition) -> int:
        """Return the follower that the leader named as nearer (KIP-392), or -1: the leader."""
        place = self._places.get(partition)
        return -1 if place is None else place.replica

    def ask(
        self,
        node_id: int,
        partitions: Collection[TopicPartition],
        *,
        ids: Mapping[str, bytes] | None,
        max_wait_ms: int,
        share: Share | None = None,
    ) -> PlannedFetch | None:
        """Return the next fetch from one broker; None if nothing is to be fetched there. A broker has one at a time.

        It asks for these partitions that are still wanted, and for those that the broker serves already. `ids`: topic
        ids, for a broker that takes them instead of names. `share`: limits of the response."""
        session = self._sessions.get(node_id)
        if session is None:
            session = self._sessions[node_id] = ConsumerFetchSession()
        if partitions and session.is_by_id != (ids is not None):
            self._want_again(node_id)
        wanted: dict[TopicPartition, WantedPartition] = {}
        largest = 0
        for partition in partitions:
            if partition in self._wanted:
                del self._wanted[partition]
                place = self._places[partition]
                place.node_id, place.goes_on_at = node_id, None
                most = place.max_bytes
                if share is not None and most <= self._settings.max_partition_fetch_bytes:
                    most = min(most, share.partition_bytes)  # else its next batch is known to be that large
                wanted[partition] = WantedPartition(place.turn, place.position or 0, most)
                largest = max(largest, most)
        if not wanted and not session.reads:
            return None
        by_id = ids if wanted else {} if session.is_by_id else None
        is_full = not session.is_open
        most_bytes = self._settings.fetch_max_bytes
        if share is not None and largest <= self._settings.max_partition_fetch_bytes:
            most_bytes, largest = min(most_bytes, share.most_bytes), 0
        max_bytes = max(most_bytes, largest)
        body = {
            "replica_id": -1,
            "max_wait_ms": max_wait_ms,
            "min_bytes": 1,
            "max_bytes": max_bytes,
            "isolation_level": self._isolation_level,
            "rack_id": self._settings.client_rack,
        }
        return PlannedFetch(node_id, body | session.request(wanted, by_id), max_bytes, by_id is not None, is_full)

    def ask_on(self, node_id: int, *, max_wait_ms: int, share: Share) -> PlannedFetch | None:
        """Ask as `ask` does, if one partition is wanted and this broker has just returned records of it, as for each
        record that trickles in. Returns None and changes nothing where there is more to ask for."""
        if len(self._wanted) != 1:
            return None
        (partition,) = self._wanted
        place, settings = self._places[partition], self._settings
        if place.goes_on_at != node_id or place.max_bytes > settings.max_partition_fetch_bytes:
            return None
        found = self._sessions[node_id].goes_on(partition, place.turn)
        if found is None:
            return None
        self._wanted.clear()
        place.node_id, place.goes_on_at = node_id, None
        session_id, epoch, topic_id = found
        max_bytes = min(settings.fetch_max_bytes, share.most_bytes)
        body = encode_single_partition_fetch(
            max_wait_ms=max_wait_ms,
            max_bytes=max_bytes,
            isolation_level=self._isolation_level,
            session_id=session_id,
            session_epoch=epoch,
            topic_id=topic_id,
            partition=partition.partition,
            fetch_offset=place.position or 0,
            partition_max_bytes=min(place.max_bytes, share.partition_bytes),
            rack=self._rack,
        )
        return PlannedFetch(node_id, body, max_bytes, is_by_id=True, is_full=False)

    def lost(self, node_id: int) -> set[str]:
        """Handle a connection that was lost before its response: ask again, and for the leaders. Returns the topics."""
        held = self._want_again(node_id)
        for partition in held:
            if partition in self._places:
                self._places[partition].replica = -1
        return {partition.topic for partition in held}

    def ask_leaders_again(self) -> None:
        """Ask for the leaders again, as some time has passed: what is read may be led by another broker now."""
        for partition, place in self._places.items():
            self._forget(partition, place)

    def answered(self, ask: PlannedFetch, response: Any) -> FetchResult:
        """Return the content of a response. Its partitions may be requested again after `advance`."""
        found = FetchResult()
        session = self._sessions[ask.node_id]
        if response.error_code:
            code = ErrorCode.of(response.error_code)
            held = self._want_again(ask.node_id, code)
            if ask.is_full or code not in SESSION_ERRORS:
                found.moved.update(partition.topic for partition in held)
            return found
        session.answered(response.session_id)
        entries: list[tuple[TopicPartition, int | None, Any]] = []
        for topic in response.responses:
            name = session.name_of(topic.topic_id) if ask.is_by_id else topic.topic
            for entry in topic.partitions:
                partition = TopicPartition(name, entry.partition_index)
                entries.append((partition, session.held_turn(partition), entry))
        if not session.is_open:
            self._want_again(ask.node_id)
        for partition, turn, entry in entries:
            place = self._places.get(partition)
            is_ours = place is not None and place.node_id in (None, ask.node_id)
            if place is not None and is_ours and place.turn == turn:
                self._entry(partition, place, entry, found)
        return found

    def advance(self, segment: Segment, turn: int, next_offset: int) -> None:
        """Continue a partition at `next_offset`, behind those that got nothing: a segment was searched."""
        partition = TopicPartition(segment.topic, segment.partition)
        place = self._places.get(partition)
        if place is None or place.turn != turn:
            return
        if next_offset > (place.position or 0):
            place.position = next_offset
            # Brokers fill a response in the order of its request (KIP-74): whoever got data goes to the end.
            reader = place.goes_on_at
            self._forget(partition, place)
            place.goes_on_at = reader
        elif place.max_bytes < _LARGEST_FETCH_BYTES:
            place.max_bytes *= 2  # the batch was cut off: brokers before KIP-74, or a batch beyond the limits
        else:
            raise CorruptBatch(
                f"{partition}: a batch at offset {place.position} is larger than {place.max_bytes} bytes"
            )

    def close(self) -> dict[int, dict[str, Any]]:
        """Stop reading. Returns the requests that end the sessions, by broker."""
        closing = {node_id: session.close() for node_id, session in self._sessions.items()}
        least = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0}
        return {node_id: least | body for node_id, body in closing.items() if body is not None}

    # Parts

    def _entry(self, partition: TopicPartition, place: _Place, entry: Any, found: FetchResult) -> None:
        code = ErrorCode.of(entry.error_code) if entry.error_code else ErrorCode.NONE
        reader = None
        replica = getattr(entry, "preferred_read_replica", -1)
        if code is ErrorCode.NONE and replica >= 0:
            place.replica = replica
        elif code is ErrorCode.NONE:
            if entry.records is None or not len(entry.records):
                return  # its high watermark has moved, or its start
            listed = entry.aborted_transactions
            aborted = [AbortedTransaction(a.producer_id, a.first_offset) for a in listed] if listed else ()
            segment = Segment(
                topic=partition.topic,
                partition=partition.partition,
                data=memoryview(entry.records),
                start=place.position or 0,
                aborted=aborted,
            )
            found.segments.append((segment, place.turn))
            reader = place.node_id
        elif code in LEADER_MOVED or (code is ErrorCode.OFFSET_OUT_OF_RANGE and place.replica >= 0):
            place.replica = -1  # what a follower does not have, or no longer, the leader knows of
            found.moved.add(partition.topic)
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            place.position, place.turn = None, self._next_turn()
        elif code is ErrorCode.CORRUPT_MESSAGE:
            raise CorruptBatch(f"{partition}: the broker found a corrupt batch at or after offset {place.position}")
        else:
            found.errors[partition] = code
        self._forget(partition, place)
        place.goes_on_at = reader

    def _forget(self, partition: TopicPartition, place: _Place) -> None:
        """Stop reading the partition from its broker. It is queued again, behind the others, if it can be read."""
        if place.node_id is not None:
            self._sessions[place.node_id].forget(partition)
            place.node_id = None
        place.goes_on_at = None
        self._wanted.pop(partition, None)
        self._unplaced.pop(partition, None)
        if place.position is None:
            self._unplaced[partition] = None
        elif not place.is_paused:
            self._wanted[partition] = None

    def _want_again(self, node_id: int, code: ErrorCode = ErrorCode.NONE) -> list[TopicPartition]:
        """Stop reading from this broker. Returns what it did read."""
        session = self._sessions.get(node_id)
        held = [] if session is None else list(session.reset(code))
        for partition in held:
            place = self._places.get(partition)
            if place is not None and place.node_id == node_id:
                place.node_id = None
                self._forget(partition, place)
        return held

    def _next_turn(self) -> int:
        self._turn += 1
        return self._turn
