"""Whole groups of our members and the broker's group, in simulated time: answers are lost, members stand still, come
and go. No socket, no thread, no clock: a seed says what happens.

Whatever happens, no two members that the group knows have the same partition; and when it is quiet again, each
partition has one owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.coordinator.group.classic import (
    AnswerRequest,
    ClassicGroup,
    Heartbeat,
    Join,
    Leave,
    Leaving,
    Stored,
    Sync,
    Tick,
    step,
)
from broker_embedded.coordinator.group.classic.group import ClassicGroupConfig
from broker_embedded.coordinator.group.config import GroupConfig
from broker_embedded.coordinator.group.consumer.assignment import TopicIdPartition
from broker_embedded.coordinator.group.heartbeats import HeartbeatRequest, HeartbeatResponse
from broker_embedded.coordinator.group.shard import GroupShard
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.records import TopicPartition
from ottla.wire_client.group.classic_protocol import (
    Assign,
    ElectedLeader,
    Failed,
    Fenced,
    GroupRequest,
    Membership,
    MembershipPhase,
    Revoke,
)
from ottla.wire_client.group.consumer_protocol import ConsumerProtocolMembership
from ottla_wire.protocol import ApiKey, ErrorCode

NEXT = "next generation"
TOPIC_ID = b"a" * 16
PARTITIONS = 7
SESSION_MS = 6_000
REBALANCE_MS = 20_000
TURN_MS = 50
LONGEST_DRAIN_MS = 2_000


class Group:
    """The coordinator's side: the broker's own state machine, whose stores succeed at once."""

    def __init__(self) -> None:
        self.state = ClassicGroup("g", ClassicGroupConfig())
        self.answers: dict[int, Any] = {}
        self._tickets = 0
        self._ids = 0

    def ask(self, ask: GroupRequest, instance: str | None, now_ms: int) -> int:
        """Returns the ticket of the answer, which may come much later."""
        self._tickets += 1
        ticket, body = self._tickets, ask.body
        self._feed(self._event(ticket, ask.api_key, body, instance), now_ms)
        return ticket

    def knows(self, member_id: str) -> bool:
        return member_id in self.state.members

    def pass_to(self, now_ms: int) -> None:
        while self.state.wake_at_ms is not None and self.state.wake_at_ms <= now_ms:
            self._feed(Tick(), max(self.state.wake_at_ms, 0))

    def _event(self, ticket: int, api_key: ApiKey, body: dict[str, Any], instance: str | None) -> Any:
        if api_key is ApiKey.JOIN_GROUP:
            self._ids += 1
            return Join(
                ticket=ticket,
                member_id=body["member_id"],
                new_member_id=f"m{self._ids}",
                group_instance_id=instance,
                client_id="c",
                client_host="/127.0.0.1",
                session_timeout_ms=body["session_timeout_ms"],
                rebalance_timeout_ms=body["rebalance_timeout_ms"],
                protocol_type=body["protocol_type"],
                protocols=tuple((each["name"], each["metadata"]) for each in body["protocols"]),
                requires_known_member_id=True,
                can_skip_assignment=True,
            )
        if api_key is ApiKey.LEAVE_GROUP:
            return Leave(ticket=ticket, members=(Leaving(member_id=body["member_id"]),))
        named = {
            "ticket": ticket,
            "member_id": body["member_id"],
            "generation": body["generation_id"],
            "group_instance_id": instance,
        }
        if api_key is ApiKey.HEARTBEAT:
            return Heartbeat(**named)
        return Sync(
            **named,
            protocol_type=body["protocol_type"],
            protocol_name=body["protocol_name"],
            assignments={each["member_id"]: each["assignment"] for each in body["assignments"]},
        )

    def _feed(self, event: Any, now_ms: int) -> None:
        for effect in step(self.state, event, now_ms):
            if isinstance(effect, AnswerRequest):
                assert isinstance(effect.ticket, int)
                found = effect.answer
                self.answers[effect.ticket] = SimpleNamespace(
                    **{name: getattr(found, name) for name in found.__dataclass_fields__},
                    error_code=int(found.error),
                    generation_id=getattr(found, "generation", None),
                )
            else:
                self._feed(Stored(store_id=effect.store_id), now_ms)


class AssigningGroup:
    """A group whose broker assigns (KIP-848): the broker's own coordinator, whose log takes everything at once."""

    def __init__(self) -> None:
        self.answers: dict[int, Any] = {}
        self._tickets = 0
        self._now_ms = 0
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        states = {
            number: PartitionImage(
                partition=number, replicas=(0,), isr=(0,), leader=0, leader_epoch=0, partition_epoch=0
            )
            for number in range(PARTITIONS)
        }
        topic = TopicImage(name="a", topic_id=TOPIC_ID, partitions=states)
        self._image = ClusterImage(cluster_id="c", topics={"a": topic}, topic_names={TOPIC_ID: "a"}, offset=1)
        settings: dict[str, Any] = {
            "group_consumer_session_timeout_ms": SESSION_MS,
            "group_consumer_min_session_timeout_ms": SESSION_MS,
            "group_consumer_heartbeat_interval_ms": 500,
            "group_consumer_min_heartbeat_interval_ms": 500,
        }
        config = GroupConfig.of(BrokerConfig(**settings))
        context: Any = SimpleNamespace(
            now_ms=lambda: self._now_ms,
            monotonic_ms=lambda: self._now_ms,
            metadata=lambda: self._image,
            append=lambda records, on_done: on_done(ErrorCode.NONE),
            call_at=self._call_at,
        )
        self._shard = GroupShard(0, context, lambda: config)
        self._shard.on_loaded()

    def knows(self, member_id: str) -> bool:
        group = self._shard.consumer.get("g")
        return group is not None and member_id in group.members

    def ask(self, ask: GroupRequest, instance: str | None, now_ms: int) -> int:
        self._tickets += 1
        self._now_ms, body = now_ms, ask.body
        owned = {
            TopicIdPartition(each["topic_id"], number)
            for each in body["topic_partitions"]
            for number in each["partitions"]
        }
        request = HeartbeatRequest(
            group_id="g",
            member_id=body["member_id"],
            member_epoch=body["member_epoch"],
            instance_id=instance,
            rebalance_timeout_ms=body["rebalance_timeout_ms"],
            topic_names=frozenset(body["subscribed_topic_names"]),
            owned=frozenset(owned),
        )
        reply: Reply[HeartbeatResponse] = Reply(lambda answer: {"answer": answer})
        self._shard.consumer_heartbeat(request, reply)
        assert reply.body is not None
        found: HeartbeatResponse = reply.body["answer"]
        told = found.assignment
        self.answers[self._tickets] = SimpleNamespace(
            error_code=int(found.error),
            member_epoch=found.member_epoch,
            heartbeat_interval_ms=found.heartbeat_interval_ms,
            assignment=None if told is None else _by_topic(told),
        )
        return self._tickets

    def pass_to(self, now_ms: int) -> None:
        while self._timers and self._timers[0][0] <= now_ms:
            due_ms, _, callback = self._timers.pop(0)
            self._now_ms = max(self._now_ms, due_ms)
            callback()
        self._now_ms = now_ms

    def _call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Any:
        self._tickets += 1
        timer = deadline_ms, self._tickets, callback
        self._timers = sorted([*self._timers, timer], key=lambda each: each[:2])

        def cancel() -> None:
            if timer in self._timers:
                self._timers.remove(timer)

        return SimpleNamespace(cancel=cancel)


def _by_topic(assignment: Iterable[TopicIdPartition]) -> Any:
    numbers = [place.partition for place in assignment]
    topics = [SimpleNamespace(topic_id=TOPIC_ID, partitions=numbers)] if numbers else []
    return SimpleNamespace(topic_partitions=topics)


class Member:
    """What the shell does for a membership, with nothing but time in between."""

    def __init__(self, kind: str, random: Random, instance: str | None) -> None:
        common: dict[str, Any] = {
            "group": "g",
            "topics": ["a"],
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "heartbeat_ms": 500,
            "instance_id": instance,
        }
        self.membership: Membership
        if kind == NEXT:
            self.membership = ConsumerProtocolMembership(member_id=f"{random.getrandbits(64):x}", **common)
            self.membership.topic_ids = {TOPIC_ID: "a"}
        else:
            self.membership = Membership(assignors=[kind], **common)
        self.instance = instance
        self.has: set[TopicPartition] = set()
        """What its handlers have: from `Assign` until it is let go or lost."""
        self.stands_until_ms = 0
        self._random = random
        self._asked: tuple[GroupRequest, int] | None = None
        self._lost_at_ms: int | None = None
        self._letting_go: tuple[frozenset[TopicPartition], int] | None = None

    def turn(self, group: Group | AssigningGroup, now_ms: int, *, loses: float) -> None:
        if now_ms < self.stands_until_ms:
            return
        self._carry_out(self.membership.tick(now_ms), now_ms)
        if self._letting_go is not None and now_ms >= self._letting_go[1]:
            self.has -= self._letting_go[0]
            self._letting_go = None
            self.membership.revoke_done(now_ms)
        if self._lost_at_ms is not None:
            if now_ms >= self._lost_at_ms:
                self._asked = self._lost_at_ms = None
                self.membership.unanswered(now_ms)
        elif self._asked is not None:
            ask, ticket = self._asked
            if ticket in group.answers:
                self._asked = None
                self._carry_out(self.membership.answered(ask, group.answers.pop(ticket), now_ms), now_ms)
        else:
            self._ask(group, now_ms, loses=loses)

    def leave(self, group: Group | AssigningGroup, now_ms: int) -> None:
        self.has.clear()
        ask = self.membership.leave()
        if ask is not None:
            group.ask(ask, self.instance, now_ms)

    def _ask(self, group: Group | AssigningGroup, now_ms: int, *, loses: float) -> None:
        ask = self.membership.next_ask(now_ms)
        if ask is None:
            return
        if self._random.random() < loses / 2:  # it never arrives
            self._lost_at_ms = now_ms + self._random.randrange(1_000)
            return
        self._asked = ask, group.ask(ask, self.instance, now_ms)
        if self._random.random() < loses / 2:  # nobody hears the answer
            self._lost_at_ms = now_ms + self._random.randrange(1_000)

    def _carry_out(self, changes: list[Any], now_ms: int) -> None:
        for change in changes:
            match change:
                case Assign(partitions):
                    assert self.has.isdisjoint(partitions)
                    self.has.update(partitions)
                case Revoke(partitions):
                    until_ms = now_ms + self._random.randrange(LONGEST_DRAIN_MS)
                    self._letting_go = frozenset(partitions), until_ms
                case Fenced(partitions):
                    self.has.difference_update(partitions)
                    self._letting_go = None
                case ElectedLeader():
                    self._carry_out(self.membership.led({"a": PARTITIONS}, now_ms), now_ms)
                case Failed(error):
                    raise AssertionError("nothing happens here that ends a member") from error
                case _:
                    raise AssertionError(change)


class World:
    def __init__(self, seed: int, kind: str, *, has_static: bool) -> None:
        self._random = Random(seed)
        self._kind = kind
        self.group: Group | AssigningGroup = AssigningGroup() if kind == NEXT else Group()
        self.members: list[Member] = []
        self.now_ms = 0
        self._names = [f"till-{number}" for number in range(2)] if has_static else []
        for _ in range(3):
            self._come()

    def turn(self, *, is_quiet: bool) -> None:
        self.now_ms += TURN_MS
        self.group.pass_to(self.now_ms)
        if not is_quiet:
            self._disturb()
        for member in self._random.sample(self.members, len(self.members)):
            member.turn(self.group, self.now_ms, loses=0.0 if is_quiet else 0.1)
            self._check()

    def owners(self) -> list[TopicPartition]:
        return sorted(place for member in self.members for place in member.has)

    def _disturb(self) -> None:
        dice = self._random.random()
        if dice < 0.01 and len(self.members) < 6:
            self._come()
        elif dice < 0.02 and len(self.members) > 1:
            member = self._random.choice(self.members)
            self.members.remove(member)
            if member.instance is not None:
                self._names.append(member.instance)
            if self._random.random() < 0.5:  # else it is killed
                member.leave(self.group, self.now_ms)
        elif dice < 0.03:
            member = self._random.choice(self.members)
            member.stands_until_ms = self.now_ms + self._random.randrange(2 * SESSION_MS)

    def _come(self) -> None:
        instance = self._names.pop() if self._names and self._random.random() < 0.5 else None
        self.members.append(Member(self._kind, self._random, instance))

    def _check(self) -> None:
        """Whom the group has expelled may not have noticed yet: what it commits is refused."""
        known = [member.has for member in self.members if self.group.knows(member.membership.member_id)]
        owned = sorted(place for has in known for place in has)
        assert all(one != other for one, other in pairwise(owned)), "two members of the group have a partition"


@pytest.mark.parametrize(
    ("kind", "has_static"),
    [("cooperative-sticky", False), ("cooperative-sticky", True), ("range", False), ("range", True), (NEXT, False)],
)
@pytest.mark.parametrize("seed", range(4))
def test_no_partition_has_two_owners_and_in_the_end_each_has_one(seed: int, kind: str, has_static: bool) -> None:
    world = World(seed, kind, has_static=has_static)
    for _ in range(3_000):
        world.turn(is_quiet=False)
    for _ in range((2 * SESSION_MS + 3 * REBALANCE_MS) // TURN_MS):
        world.turn(is_quiet=True)
    assert {member.membership.phase for member in world.members} == {MembershipPhase.STABLE}
    assert world.owners() == [TopicPartition("a", number) for number in range(PARTITIONS)]
