"""What the tests of groups share: a classic group driven by hand, with an account of who waits and who was answered."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.coordinator.group.classic import (
    AnswerRequest,
    ClassicGroup,
    ClassicHeartbeatAnswer,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Leaving,
    State,
    Store,
    Stored,
    Sync,
    SyncAnswer,
    Tick,
    Unload,
    step,
)
from broker_embedded.coordinator.group.classic.group import ClassicGroupConfig
from broker_embedded.coordinator.group.config import GroupConfig
from broker_embedded.coordinator.group.consumer.assignment import TopicIdPartition, by_topic
from broker_embedded.coordinator.group.heartbeats import HeartbeatRequest, HeartbeatResponse
from broker_embedded.coordinator.group.offsets.committed import OffsetKey
from broker_embedded.coordinator.group.requests import (
    CommitOffsets,
    DeleteOffsets,
    FetchOffsets,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    PartitionCommit,
)
from broker_embedded.coordinator.group.shard import GroupShard
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.coordinator.runtime.shard import CoordinatorRecord
from broker_embedded.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla_wire.protocol import ErrorCode, codec


class GroupDriver:
    """Steps one group and keeps its clock. No ticket is answered twice; stores succeed at once unless told not to."""

    def __init__(self, **config: int) -> None:
        self.group = ClassicGroup("g", ClassicGroupConfig(**config))
        self.now_ms = 1_000
        self.answers: dict[int, Any] = {}
        self.waiting: dict[int, str] = {}
        self.stores: list[Store] = []
        self.held: list[Store] = []
        self.hold_stores = False
        self.store_error = ErrorCode.NONE
        self._next_ticket = 1
        self._next_member = 1

    # -- events

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"\x00"),),
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        known_id: bool = False,
        can_skip: bool = True,
    ) -> int:
        """JoinGroup as before version 4 unless `known_id`; returns the ticket."""
        fresh = f"m{self._next_member}"
        self._next_member += 1
        return self.send(
            "join",
            lambda ticket: Join(
                ticket=ticket,
                member_id=member_id,
                new_member_id=fresh,
                group_instance_id=instance,
                client_id="c",
                client_host="/127.0.0.1",
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                protocol_type=protocol_type,
                protocols=protocols,
                requires_known_member_id=known_id,
                can_skip_assignment=can_skip,
            ),
        )

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        return self.send(
            "sync",
            lambda ticket: Sync(
                ticket=ticket,
                member_id=member_id,
                generation=self.group.generation if generation is None else generation,
                group_instance_id=instance,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignments=assignments or {},
            ),
        )

    def heartbeat(self, member_id: str, generation: int | None = None, *, instance: str | None = None) -> ErrorCode:
        ticket = self.send(
            "heartbeat",
            lambda ticket: Heartbeat(
                ticket=ticket,
                member_id=member_id,
                generation=self.group.generation if generation is None else generation,
                group_instance_id=instance,
            ),
        )
        answer: ClassicHeartbeatAnswer = self.answers[ticket]
        return answer.error

    def leave(self, *leaving: str | Leaving) -> LeaveAnswer:
        members = tuple(Leaving(member_id=one) if isinstance(one, str) else one for one in leaving)
        ticket = self.send("leave", lambda ticket: Leave(ticket=ticket, members=members))
        answer: LeaveAnswer = self.answers[ticket]
        return answer

    def pass_ms(self, ms: int) -> None:
        """Let time pass and tick when the group asked to be woken, as a timer would."""
        until = self.now_ms + ms
        while self.group.wake_at_ms is not None and self.group.wake_at_ms <= until:
            self.now_ms = max(self.now_ms, self.group.wake_at_ms)
            self.feed(Tick())
        self.now_ms = until

    def unload(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        self.feed(Unload(error=error))

    def release_stores(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Tell the group that what it wanted stored is (with `error`: is not) in the log."""
        held, self.held = self.held, []
        for store in held:
            self.feed(Stored(store_id=store.store_id, error=error))

    # -- plumbing

    def send(self, kind: str, make: Callable[[int], Any]) -> int:
        ticket = self._next_ticket
        self._next_ticket += 1
        self.waiting[ticket] = kind
        self.feed(make(ticket))
        return ticket

    def feed(self, event: Any) -> None:
        for effect in step(self.group, event, self.now_ms):
            if isinstance(effect, AnswerRequest):
                assert effect.ticket in self.waiting, f"{effect.ticket} was answered twice or never asked"
                assert isinstance(effect.ticket, int)
                del self.waiting[effect.ticket]
                self.answers[effect.ticket] = effect.answer
            else:
                self.stores.append(effect)
                self.held.append(effect)
        if not self.hold_stores and self.held:
            self.release_stores(self.store_error)

    # -- reading

    def joined(self, ticket: int) -> JoinAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, ticket: int) -> SyncAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncAnswer)
        return answer

    def is_waiting(self, ticket: int) -> bool:
        return ticket in self.waiting

    # -- shortcuts

    def stable_with(self, count: int, *, instances: bool = False, **join: Any) -> list[str]:
        """Bring the group to Stable with `count` members, the first of them leader; their ids."""
        ids: list[str] = []
        for number in range(count):
            tickets = [self.join(instance=f"i{number}" if instances else None, **join)]
            rejoined = [
                self.join(member_id, instance=f"i{n}" if instances else None, **join) for n, member_id in enumerate(ids)
            ]
            ids.append(self.joined(tickets[0]).member_id)
            assert all(self.joined(ticket).error is ErrorCode.NONE for ticket in rejoined)
            plan = {member_id: member_id.encode() for member_id in ids}
            for n, member_id in enumerate(ids):
                self.sync(member_id, assignments=plan if n == 0 else None)
        assert self.group.state is State.STABLE
        return ids


@pytest.fixture
def driver() -> Callable[..., GroupDriver]:
    """Makes a `GroupDriver`; keyword arguments are settings of the group."""
    return GroupDriver


# -- a shard over a log in memory


T0 = OffsetKey("t", 0)


class FakeLog:
    """Keeps records; can refuse them, or keep the caller waiting for the high watermark."""

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.fail_with = ErrorCode.NONE
        self._held: list[tuple[list[CoordinatorRecord], Callable[[ErrorCode], None]]] | None = None

    def hold(self) -> None:
        self._held = []

    def release(self) -> None:
        held, self._held = self._held or [], None
        for records, on_done in held:
            self.records += records
            on_done(ErrorCode.NONE)

    def append(self, records: Sequence[CoordinatorRecord], on_done: Callable[[ErrorCode], None]) -> None:
        if self.fail_with is not ErrorCode.NONE:
            on_done(self.fail_with)
        elif self._held is not None:
            self._held.append((list(records), on_done))
        else:
            self.records += records
            on_done(ErrorCode.NONE)


class FakeTimer:
    def __init__(self, world: ShardDriver, deadline_ms: int, callback: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self.callback = callback
        self.world = world

    def cancel(self) -> None:
        if self in self.world.timers:
            self.world.timers.remove(self)


class ShardDriver:
    """A shard with a clock and a log of its own. Implements `ShardContext`."""

    WALL_START_MS = 1_700_000_000_000

    def __init__(self, log: FakeLog | None = None, now_ms: int = 0, **settings: int) -> None:
        self.log = log or FakeLog()
        self.settings = settings
        self.monotonic = now_ms
        self.timers: list[FakeTimer] = []
        self.reloads: list[str] = []
        self.image = ClusterImage(cluster_id="c")
        self.config = GroupConfig.of(BrokerConfig(**settings))
        self.shard = GroupShard(0, self, lambda: self.config)
        self.member_id = ""
        self._next = 0
        for record in list(self.log.records):
            self.shard.replay(record, timestamp_ms=0, producer_id=-1)
        self.shard.on_loaded()

    # -- ShardContext

    def now_ms(self) -> int:
        return self.WALL_START_MS + self.monotonic

    def monotonic_ms(self) -> int:
        return self.monotonic

    def metadata(self) -> ClusterImage:
        return self.image

    def append(self, records: Sequence[CoordinatorRecord], on_done: Callable[[ErrorCode], None]) -> None:
        self.log.append(records, on_done)

    def append_in_transaction(
        self,
        records: Sequence[CoordinatorRecord],
        on_done: Callable[[ErrorCode], None],
        *,
        producer_id: int,
        producer_epoch: int,
    ) -> None:
        self.log.append(records, on_done)

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self, deadline_ms, callback)
        self.timers.append(timer)
        return timer

    def reload(self, reason: str) -> None:
        self.reloads.append(reason)

    # -- the world

    def pass_ms(self, ms: int) -> None:
        until = self.monotonic + ms
        while True:
            due = [timer for timer in self.timers if timer.deadline_ms <= until]
            if not due:
                break
            timer = min(due, key=lambda one: one.deadline_ms)
            self.timers.remove(timer)
            self.monotonic = max(self.monotonic, timer.deadline_ms)
            timer.callback()
        self.monotonic = until

    def keep_alive_ms(self, ms: int, *, step_ms: int) -> None:
        """Time passes while the member sends heartbeats."""
        self.group().members[self.member_id].session_timeout_ms = 2 * step_ms
        assert self.heartbeat(self.member_id, self.group().generation) is ErrorCode.NONE
        for _ in range(ms // step_ms):
            self.pass_ms(step_ms)
            assert self.heartbeat(self.member_id, self.group().generation) is ErrorCode.NONE

    def restart(self) -> ShardDriver:
        """The broker stops; another shard replays the log."""
        self.shard.unload(ErrorCode.NOT_COORDINATOR)
        return ShardDriver(self._only_durable(), self.monotonic, **self.settings)

    def _only_durable(self) -> FakeLog:
        log = FakeLog()
        log.records = list(self.log.records)
        return log

    # -- requests

    def reply(self) -> Reply[Any]:
        return Reply(lambda answer: {"answer": answer})

    def commit_later(
        self,
        *,
        key: OffsetKey = T0,
        offset: int = 1,
        metadata: str = "",
        leader_epoch: int = -1,
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
        producer_id: int = -1,
    ) -> Reply[Any]:
        """`producer_id` makes it a TxnOffsetCommit."""
        reply = self.reply()
        partition = PartitionCommit(key=key, offset=offset, leader_epoch=leader_epoch, metadata=metadata)
        request = CommitOffsets(
            group_id=group,
            partitions=(partition,),
            member_id=member_id,
            generation=generation,
            producer_id=producer_id,
            producer_epoch=0,
        )
        self.shard.commit_offsets(request, reply)
        return reply

    def commit(self, *, key: OffsetKey = T0, **commit: Any) -> ErrorCode:
        answer: OffsetsCommitted = self.answer(self.commit_later(key=key, **commit))
        return answer.error_of(key)

    def commit_many(self, request: CommitOffsets) -> OffsetsCommitted:
        reply = self.reply()
        self.shard.commit_offsets(request, reply)
        answer: OffsetsCommitted = self.answer(reply)
        return answer

    def fetch(self, request: FetchOffsets) -> OffsetsFetched:
        return self.shard.fetch_offsets(request)

    def delete_offsets(self, request: DeleteOffsets) -> OffsetsDeleted:
        reply = self.reply()
        self.shard.delete_offsets(request, reply)
        answer: OffsetsDeleted = self.answer(reply)
        return answer

    def delete_group(self, group_id: str) -> ErrorCode:
        errors: list[ErrorCode] = []
        self.shard.admin.delete_group(group_id, errors.append)
        return errors[0]

    def join_later(self, member_id: str = "", topics: Sequence[str] = ()) -> Reply[Any]:
        reply = self.reply()
        self._next += 1
        metadata = codec.encode_record_value("ConsumerProtocolSubscription", 0, {"topics": list(topics)})
        event = Join(
            ticket=reply,
            member_id=member_id,
            new_member_id=f"m{self._next}",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(("range", metadata),),
            requires_known_member_id=False,
        )
        self.shard.join("g", event, reply)
        return reply

    def join(self, member_id: str = "", topics: Sequence[str] = ()) -> Any:
        return self.join_later(member_id, topics).body

    def sync(self, member_id: str, plan: dict[str, bytes]) -> Reply[Any]:
        reply = self.reply()
        generation = self.group().generation
        self.shard.sync("g", Sync(ticket=reply, member_id=member_id, generation=generation, assignments=plan), reply)
        return reply

    def heartbeat(self, member_id: str, generation: int) -> ErrorCode:
        reply = self.reply()
        self.shard.heartbeat("g", Heartbeat(ticket=reply, member_id=member_id, generation=generation), reply)
        answer: ClassicHeartbeatAnswer = self.answer(reply)
        return answer.error

    def leave(self, member_id: str) -> None:
        reply = self.reply()
        self.shard.leave("g", Leave(ticket=reply, members=(Leaving(member_id=member_id),)), reply)

    def stable_member(self, topics: Sequence[str] = ()) -> str:
        self.member_id = self.join(topics=topics)["answer"].member_id
        self.sync(self.member_id, {self.member_id: b"plan"})
        return self.member_id

    # -- KIP-848

    def set_topics(self, **partitions: int) -> None:
        """The cluster has these topics, with so many partitions."""
        topics = {}
        for name, count in partitions.items():
            known = self.image.topics.get(name)
            topic_id = name.encode().ljust(16, b"-")
            states = {
                number: PartitionImage(
                    partition=number, replicas=(0,), isr=(0,), leader=0, leader_epoch=0, partition_epoch=0
                )
                for number in range(count)
            }
            topics[name] = TopicImage(name=name, topic_id=known.topic_id if known else topic_id, partitions=states)
        names = {topic.topic_id: name for name, topic in topics.items()}
        self.image = replace(self.image, topics=topics, topic_names=names, offset=self.image.offset + 1)

    def beat(self, member_id: str, epoch: int, *, group: str = "g", **fields: Any) -> HeartbeatResponse:
        """ConsumerGroupHeartbeat. `topics` subscribes by name, `owned` as a dict of topic name to partitions."""
        reply = self.reply()
        if "topics" in fields:
            fields["topic_names"] = frozenset(fields.pop("topics"))
        if fields.get("owned") is not None:
            fields["owned"] = self.assignment(fields["owned"])
        self.shard.consumer_heartbeat(
            HeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields), reply
        )
        answer: HeartbeatResponse = self.answer(reply)
        return answer

    def enter(self, member_id: str, *, topics: Sequence[str] = ("t",), **fields: Any) -> HeartbeatResponse:
        """The first heartbeat of a member: everything is said."""
        return self.beat(member_id, 0, topics=topics, owned={}, rebalance_timeout_ms=60_000, **fields)

    def assignment(self, topics: dict[str, Sequence[int]]) -> Any:
        return frozenset(
            TopicIdPartition(self.image.topics[name].topic_id, number)
            for name, numbers in topics.items()
            for number in numbers
        )

    def named(self, assignment: Any) -> dict[str, list[int]]:
        """topic name -> partitions."""
        return {self.image.topic_names[topic_id]: each for topic_id, each in by_topic(assignment).items()}

    def group(self) -> Any:
        return self.shard.classic.get("g")

    def answer(self, reply: Reply[Any]) -> Any:
        assert reply.body is not None, "the request was not answered"
        return reply.body["answer"]


@pytest.fixture
def make_shard() -> Callable[..., ShardDriver]:
    """Makes a `ShardDriver`; keyword arguments are broker settings."""
    return lambda **settings: ShardDriver(**settings)


@pytest.fixture
def shard() -> ShardDriver:
    return ShardDriver()


# -- real clients


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """A cluster for the tests of one module; each makes its own topics and groups."""
    # Members of KIP-848 groups learn news by heartbeat; every 5 s, Kafka's default, would be most of these tests' time.
    with EmbeddedCluster(config={"group.consumer.heartbeat.interval.ms": 100}) as running:
        yield running


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own with six partitions and 60 records, value = number, key = the same."""
    name = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[-200:]
    cluster.create_topic(name, partitions=6)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(60):
        producer.produce(name, key=str(number), value=str(number), partition=number % 6)
    assert producer.flush(20) == 0
    return name


@pytest.fixture
def until() -> Callable[..., None]:
    """Call `step` again and again until `condition` holds; fails after `seconds`."""

    def wait(
        condition: Callable[[], bool], step: Callable[[], object] = lambda: time.sleep(0.01), *, seconds: int = 100
    ):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true in time"
            step()

    return wait
