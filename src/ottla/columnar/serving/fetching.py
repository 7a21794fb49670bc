"""The fetching thread: fetches from every leader, and passes whole batches on as column rows.

What is read next is decided by a `ConsumerFetchPlan` that the session's lock guards. A broker remembers what it was
asked for (KIP-227), and is told when the thread ends. The next fetch of a broker is on its way before many records are
opened, so that broker and decoder work at the same time; a few are handed on first, and their worker wakes up while the
next fetch is made. Nothing here knows of groups.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from ottla.columnar.reading.small_batches import FEW
from ottla.columnar.serving.decode_fetch import decode_fetch
from ottla.columnar.serving.rows import ArrowRows
from ottla.errors import BrokerUnavailable, NoCommittedOffset, OttlaError, UnknownTopic
from ottla.records import TopicPartition
from ottla.wire_client.client_settings import WireSettings
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, Cluster, TopicMetadata, refused
from ottla.wire_client.errors import PartitionUnavailable
from ottla.wire_client.fetching.consumer_fetch_plan import ConsumerFetchPlan, PlannedFetch
from ottla.wire_client.fetching.fetch_budget import FetchBudget, Share
from ottla.wire_client.fetching.fetched_batches import FetchedBatches, Segment
from ottla.wire_client.net.broker_connection import Connection
from ottla.wire_client.net.connection_waiter import Waiter
from ottla_wire.protocol import ApiKey, ErrorCode

_BY_ID_FROM: Final = 13
"""From this version of Fetch on, topics are asked for by id only, before it by name only (KIP-516)."""

_IDLE_S: Final = 1.0
_NO_ROOM_S: Final = 0.02
_ABSENT_S: Final = 0.5
"""How often a topic that does not exist is asked for."""

_RESUME_WAIT_MS: Final = 50
"""While a partition is paused a broker holds a fetch no longer than this: its resume waits for the answer."""

RECORD_OVERHEAD_BYTES: Final = 32
"""Approximate memory of a row beyond its key, value and columns."""


Deliver: TypeAlias = Callable[[ArrowRows, int, int], None]
"""Takes rows in, unless the place they are of is not wanted any more. The numbers are the turn in which they were asked
for, and the bytes of memory that they take."""


@dataclass(slots=True)
class _Flight:
    """A fetch under way."""

    connection: Connection
    ask: PlannedFetch
    patience_s: float
    """Until when its answer may take."""
    takes_bytes: int
    """Share of the room."""


class Fetching:
    """See the module. `failed` ends the member, `note` writes to its log; `free_bytes` is asked with the lock held."""

    def __init__(
        self,
        settings: WireSettings,
        *,
        name: str,
        lock: threading.RLock,
        reset: str,
        deliver: Deliver,
        most_bytes: int,
        free_bytes: Callable[[], int],
        failed: Callable[[BaseException], None],
        note: Callable[[str, str], None],
        partition_failed: Callable[[TopicPartition, str], None],
        topic_gone: Callable[[str], None],
        timed_out: Callable[[str], None],
        throttled: Callable[[int, str, int], None],
    ) -> None:
        self.plan = ConsumerFetchPlan(settings)
        self._settings = settings
        self._room = FetchBudget(most_bytes)
        self._free_bytes = free_bytes
        inflated_bytes = min(settings.decode_limits.inflated_bytes, self._room.most_inflated_bytes)
        self._limits = replace(settings.decode_limits, inflated_bytes=inflated_bytes)
        self._lock = lock
        self._reset = reset
        self._deliver = deliver
        self._failed = failed
        self._note = note
        self._partition_failed = partition_failed
        self._topic_gone = topic_gone
        self._absent_until_s: dict[str, float] = {}
        """When to look up missing topics again."""
        self._timed_out = timed_out
        self._throttled = throttled
        self._cluster = Cluster(settings)
        self._waiter = Waiter()
        self._flights: dict[int, _Flight] = {}
        self._is_stopping = threading.Event()
        self._again_s = 0.0
        self._has_no_room = False
        self._is_asked = False
        """True if every broker had been sent its request when the last response arrived. Another thread that changes
        the wanted partitions wakes this one."""
        self._leaders_until_s = 0.0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def asked(self) -> list[str]:
        """The addresses from which an answer is due."""
        return [flight.connection.address for flight in list(self._flights.values())]

    @property
    def ids(self) -> dict[str, int]:
        """The ids of the brokers, by address."""
        return self._cluster.ids

    def wake(self) -> None:
        """Wake the fetch thread: the plan has changed."""
        self._waiter.wake()

    def stop(self) -> None:
        """Read no more. What a broker is asked for is not waited for."""
        self._is_stopping.set()
        self._waiter.wake()

    def join(self, timeout_s: float) -> None:
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    # The thread

    def _run(self) -> None:
        try:
            while not self._is_stopping.is_set():
                self._turn()
        except BaseException as error:
            self._failed(error)
        finally:
            for flight in self._flights.values():
                flight.connection.close()
            self._end_sessions()
            self._cluster.close()
            self._waiter.close()

    def _end_sessions(self) -> None:
        """End the sessions at the brokers, which would keep unused ones for minutes and have room for few."""
        with self._lock:
            closing = self.plan.close()
        for node_id, body in closing.items():
            with suppress(OttlaError):  # a broker that cannot be reached expires its session
                self._cluster.ask_broker(node_id).call(ApiKey.FETCH, body)

    def _turn(self) -> None:
        if not self._is_asked and time.monotonic() >= self._again_s:
            try:
                self._look_up()
                self._send()
            except (BrokerUnavailable, PartitionUnavailable, UnknownTopic) as error:
                self._later(str(error))
        now_s = time.monotonic()
        wait_s = _IDLE_S if self._again_s <= now_s else self._again_s - now_s
        if self._has_no_room:
            wait_s = min(wait_s, _NO_ROOM_S)
        ready = self._waiter.wait([flight.connection for flight in self._flights.values()], wait_s)
        now_s, flights = time.monotonic(), list(self._flights.values())
        for flight in flights:
            if now_s > flight.patience_s and flight.connection not in ready:
                self._landed(flight)
                self._timed_out(flight.connection.address)
                flight.connection.close()
                self._cut(flight.ask.node_id, f"{flight.connection.address} did not answer a fetch in time")
        self._is_asked = False
        for flight in flights:
            if flight.connection in ready:
                self._receive(flight)

    def _later(self, reason: str) -> None:
        self._note("fetch_failed", reason)
        self._again_s = time.monotonic() + self._settings.retry_backoff_ms / 1_000

    def _send(self) -> None:
        """Ask every broker that is asked for nothing, and reads something for us or leads something that is wanted."""
        now_s = time.monotonic()
        self._has_no_room = False
        with self._lock:
            if now_s >= self._leaders_until_s:
                self._leaders_until_s = now_s + self._settings.metadata_max_age_ms / 1_000
                self.plan.ask_leaders_again()
            wanted = {name: self.plan.replica_of(name) for name in self.plan.wanted()}
            by_node: dict[int, list[TopicPartition]] = {node_id: [] for node_id in self.plan.nodes()}
            wait_ms = self._wait_ms
        ids: dict[str, bytes | None] = {}
        for name, replica in wanted.items():
            topic = self._metadata_of(name.topic)
            if topic is None:
                continue
            node_id = replica if replica >= 0 else topic.leaders.get(name.partition, -1)
            if node_id < 0:
                self._cluster.forget_leaders(name.topic)
                self._later(f"{name} has no leader")
            else:
                ids[name.topic] = topic.topic_id
                by_node.setdefault(node_id, []).append(name)
        for node_id, names in by_node.items():
            if node_id in self._flights:
                continue
            try:
                connection = self._cluster.broker(node_id, borrower=self)
            except BrokerUnavailable as error:
                self._cut(node_id, str(error), names)
                continue
            self._ask(node_id, connection, {name: ids[name.topic] for name in names}, wait_ms, brokers=len(by_node))

    def _metadata_of(self, name: str) -> TopicMetadata | None:
        """Return the metadata of a topic; None while the cluster lacks it: other topics must not wait for it."""
        if time.monotonic() < self._absent_until_s.get(name, 0.0):
            return None
        try:
            topic = self._cluster.topic(name)
        except UnknownTopic as error:
            self._absent_until_s[name] = time.monotonic() + _ABSENT_S
            self._again_s = time.monotonic() + self._settings.retry_backoff_ms / 1_000
            self._note("fetch_failed", str(error))
            self._topic_gone(name)
            return None
        self._absent_until_s.pop(name, None)
        return topic

    def _ask(
        self,
        node_id: int,
        connection: Connection,
        topic_ids: Mapping[TopicPartition, bytes | None],
        wait_ms: int,
        *,
        brokers: int,
    ) -> None:
        ids = {name.topic: topic_id for name, topic_id in topic_ids.items() if topic_id is not None}
        takes_ids = None not in topic_ids.values() and connection.version(ApiKey.FETCH) >= _BY_ID_FROM
        with self._lock:
            share = self._share(time.monotonic(), brokers=brokers)
            if share is None:
                self._has_no_room = True
                return
            names = topic_ids.keys()
            ask = self.plan.ask(node_id, names, ids=ids if takes_ids else None, max_wait_ms=wait_ms, share=share)
        if ask is not None:
            self._take_off(connection, ask, wait_ms)

    def _ask_on(self, flight: _Flight) -> bool:
        """Send the next fetch to the broker that has just responded, if it is the only one to ask: a faster path of
        `_send`, in a third of the time. Returns False if it does not apply."""
        node_id = flight.ask.node_id
        now_s = time.monotonic()
        if self._has_no_room or now_s >= self._leaders_until_s:
            return False
        with self._lock:
            wait_ms = self._wait_ms
            share = self._share(now_s, brokers=len(self._flights) + 1)
            ask = None if share is None else self.plan.ask_on(node_id, max_wait_ms=wait_ms, share=share)
        if ask is not None:
            self._take_off(flight.connection, ask, wait_ms)
        return ask is not None

    def _share(self, now_s: float, *, brokers: int) -> Share | None:
        now_ms, free_bytes = round(now_s * 1_000), self._free_bytes()
        return self._room.share(free_bytes=free_bytes, partitions=self.plan.reads, brokers=brokers, now_ms=now_ms)

    @property
    def _wait_ms(self) -> int:
        """Return how long a broker may hold a fetch."""
        wait_ms = self._settings.fetch_max_wait_ms
        return min(wait_ms, _RESUME_WAIT_MS) if self.plan.has_paused else wait_ms

    def _take_off(self, connection: Connection, ask: PlannedFetch, wait_ms: int) -> None:
        try:
            connection.send(ApiKey.FETCH, ask.body, newest=_BY_ID_FROM if ask.is_by_id else _BY_ID_FROM - 1)
        except BrokerUnavailable as error:
            self._cut(ask.node_id, str(error))
            return
        patience_s = time.monotonic() + (self._settings.request_timeout_ms + wait_ms) / 1_000
        self._flights[ask.node_id] = _Flight(connection, ask, patience_s, self._room.asked(ask.max_bytes))

    def _receive(self, flight: _Flight) -> None:
        self._landed(flight)
        try:
            response = flight.connection.receive()
        except BrokerUnavailable as error:
            self._cut(flight.ask.node_id, str(error))
            return
        if response.throttle_time_ms > 0:
            self._throttled(flight.ask.node_id, flight.connection.address, response.throttle_time_ms)
        batches: list[tuple[Segment, int, FetchedBatches]] = []
        wire_bytes = records = 0
        with self._lock:
            found = self.plan.answered(flight.ask, response)
        for segment, turn in found.segments:
            own = FetchedBatches()
            next_offset = own.collect(segment, self._settings.isolation, self._settings.check_crcs)
            with self._lock:
                self.plan.advance(segment, turn, next_offset)
            batches.append((segment, turn, own))
            wire_bytes += len(segment.data)
            for header in own.headers:
                records += header.record_count
        for name, code in found.errors.items():
            self._refused(name, code)
        if found.moved:
            for topic in found.moved:
                self._cluster.forget_leaders(topic)
            self._again_s = time.monotonic() + self._settings.retry_backoff_ms / 1_000
        takes_bytes = self._room.came(wire_bytes)
        is_trickle = records <= FEW
        if is_trickle:  # a record that came alone: its worker wakes up while the next request is made
            self._open(batches)
        if not (found.moved or found.errors):
            try:
                if not self._ask_on(flight):
                    self._send()  # before many are opened: the broker works meanwhile
                self._is_asked = not self.plan.has_unplaced
            except (BrokerUnavailable, PartitionUnavailable, UnknownTopic) as error:
                self._later(str(error))
        if not is_trickle:
            self._open(batches)
        self._room.gives_back(takes_bytes)

    def _landed(self, flight: _Flight) -> None:
        """Record that the fetch is not in flight any more."""
        del self._flights[flight.ask.node_id]
        self._room.gives_back(flight.takes_bytes)

    def _open(self, batches: Iterable[tuple[Segment, int, FetchedBatches]]) -> None:
        """Hand on what came. What turns out to be too much when it is inflated is given up, to be fetched again."""
        has_delivered = False
        for segment, turn, found in batches:
            name, next_offset, held_bytes = TopicPartition(segment.topic, segment.partition), segment.start, 0
            parts, is_all = decode_fetch(name, found, self._limits), False
            while not is_all and self._takes(name, turn, next_offset, is_first=not has_delivered):
                rows = next(parts, None)
                if rows is None:
                    is_all = True
                else:
                    next_offset, has_delivered = rows.offsets[-1] + 1, True
                    is_all = next_offset > found.headers[-1].last_offset
                    size_bytes = rows.size_bytes + RECORD_OVERHEAD_BYTES * len(rows)
                    held_bytes += size_bytes
                    self._deliver(rows, turn, size_bytes)
            self._room.grew(len(segment.data), held_bytes, is_all=is_all)

    def _takes(self, name: TopicPartition, turn: int, offset: int, *, is_first: bool) -> bool:
        """Return whether the partition takes more of its response. Without room it is read again from here on; but part
        of each response is taken, as room may never be enough.
        """
        with self._lock:
            if not self.plan.is_current(name, turn):
                return False
            if is_first or self._free_bytes() > 0:
                return True
            self.plan.seek(name, offset)
            self._is_asked = False
            return False

    def _cut(self, node_id: int, reason: str, names: Iterable[TopicPartition] = ()) -> None:
        """Drop a connection that was lost or refused: the partitions that were read there may have new leaders."""
        with self._lock:
            topics = self.plan.lost(node_id)
        for topic in topics.union(name.topic for name in names):
            self._cluster.forget_leaders(topic)
        self._later(reason)

    def _refused(self, name: TopicPartition, code: ErrorCode) -> None:
        error = refused(f"fetch from {name}", code)
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise error
        self._partition_failed(name, str(error))
        self._later(str(error))

    def _look_up(self) -> None:
        """Look up the start of partitions without a committed offset, or whose offset was deleted."""
        with self._lock:
            unplaced = self.plan.unplaced()
            at_start = {name for name in unplaced if self.plan.begins_at_start(name)}
        unplaced = {name: found for name, found in unplaced.items() if self._metadata_of(name.topic) is not None}
        if not unplaced:
            return
        left = {name: found for name, found in unplaced.items() if name not in at_start}
        if left and self._reset not in ("earliest", "latest", "smallest", "largest", "beginning", "end"):
            name, (_, was_lost) = next(iter(left.items()))
            what = "its offset is no longer in the log" if was_lost else "the group has committed nothing"
            raise NoCommittedOffset(f"{name}: {what}, and auto.offset.reset={self._reset} forbids a guess")
        at = EARLIEST if self._reset in ("earliest", "smallest", "beginning") else LATEST
        found = self._cluster.list_offsets({name: EARLIEST if name in at_start else at for name in unplaced})
        with self._lock:
            for name, (turn, was_lost) in unplaced.items():
                offset = found[name][0]
                self.plan.placed(name, turn, offset)
                if was_lost:
                    self._note("offset_reset", f"{name}: its offset was out of range; reading goes on at {offset}")
