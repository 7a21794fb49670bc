"""Whole quorums from one seed: lost, late, doubled and reordered messages, cut links, crashes in the middle of a step.

After every event: an epoch has at most one leader, what was committed once stands at its offset for ever and on every
node, a new leader has all of it, a node's epoch never falls. At the end the network heals and a leader must commit.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_embedded.controller.raft.effects import (
    AppendFetched,
    AppendLeaderChange,
    CommitEntries,
    Diverged,
    Effect,
    ElectionState,
    PeerReply,
    SaveState,
    Send,
    TruncateTo,
)
from broker_embedded.controller.raft.events import (
    Answered,
    Event,
    LogChanged,
    NotAnswered,
    Requested,
    ResignRequested,
    Started,
    TimerFired,
)
from broker_embedded.controller.raft.machine import next_deadline_ms, step
from broker_embedded.controller.raft.member import Member, Timeouts
from broker_embedded.controller.raft.messages import FetchAnswer, FetchRequest, FetchResponse, Request
from broker_embedded.controller.raft.replication import fetch_answer
from broker_embedded.controller.raft.roles import RaftRole

TIMEOUTS = Timeouts(fetch_ms=400, election_ms=200, election_backoff_max_ms=200)
REQUEST_TIMEOUT_MS = 300
LONG_POLL_MS = 130

Entry = tuple[int, str]


class MemoryLog:
    """Entries in memory; a crash keeps what was synced and, by chance, some of what was not."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.synced: list[Entry] = []

    @property
    def end_offset(self) -> int:
        return len(self.entries)

    @property
    def epoch_starts(self) -> Sequence[tuple[int, int]]:
        starts: list[tuple[int, int]] = []
        for offset, (epoch, _) in enumerate(self.entries):
            if not starts or starts[-1][0] != epoch:
                starts.append((epoch, offset))
        return starts

    def sync(self) -> None:
        self.synced = list(self.entries)

    def crash(self, random: Random) -> None:
        is_longer = self.entries[: len(self.synced)] == self.synced
        kept = random.randint(len(self.synced), max(len(self.synced), len(self.entries))) if is_longer else 0
        self.entries = self.entries[:kept] if is_longer else list(self.synced)
        self.sync()


class Crashed(Exception):
    """The node died between two effects."""


class Node:
    """One member: what its disk keeps, and the machine while it lives."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.log = MemoryLog()
        self.saved: ElectionState | None = None
        self.member: Member | None = None
        self.life = 0
        self.reply: Any = None
        self.timer_ms: int | None = None
        self.waiting: list[tuple[int, FetchRequest, Any]] = []


class Quorum:
    """Voters, observers, the network between them and the time."""

    def __init__(self, seed: int, *, voters: int, observers: int = 0, faults: bool = True) -> None:
        self.random = Random(seed)
        self.voters = tuple(range(1, voters + 1))
        self.nodes = {node_id: Node(node_id) for node_id in range(1, voters + observers + 1)}
        self.faults = faults
        self.now_ms = 1000
        self.queue: list[tuple[int, int, Any]] = []
        self.order = 0
        self.cut: set[tuple[int, int]] = set()
        self.leaders: dict[int, int] = {}
        self.committed: list[Entry] = []
        self.written = 0
        for node_id in self.nodes:
            self.start(node_id)

    # --- the world

    def at(self, delay_ms: int, action: Any) -> None:
        self.order += 1
        heapq.heappush(self.queue, (self.now_ms + delay_ms, self.order, action))

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self.queue and self.queue[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self.queue)
            action()
            self.check()
        self.now_ms = end_ms

    def delay_ms(self) -> int:
        if not self.faults:
            return 1
        return self.random.choice((1, 1, 2, 5, self.random.randint(0, 150)))

    def is_lost(self, source: int, target: int) -> bool:
        return (source, target) in self.cut or (self.faults and self.random.random() < 0.05)

    # --- nodes

    def start(self, node_id: int) -> None:
        node = self.nodes[node_id]
        if node.member is not None:
            return
        node.life += 1
        node.waiting = []
        node.timer_ms = None
        node.member = Member(
            node_id=node_id, voters=self.voters, log=node.log, state=node.saved, random=self.random, timeouts=TIMEOUTS
        )
        self.step(node, Started())

    def crash(self, node_id: int) -> None:
        node = self.nodes[node_id]
        node.member = None
        node.life += 1
        node.log.crash(self.random)

    def step(self, node: Node, event: Event) -> Any:
        """Run the machine and what it wants done; returns the reply. A crash may come between any two effects."""
        assert node.member is not None
        node.reply = None
        pending = [event]
        try:
            while pending:
                for effect in step(node.member, pending.pop(0), self.now_ms):
                    if self.faults and self.random.random() < 0.001:
                        raise Crashed
                    if self.perform(node, effect):
                        pending.append(LogChanged())
        except Crashed:
            self.crash(node.node_id)
            self.at(self.random.randint(1, 1500), lambda: self.start(node.node_id))
            return None
        self.set_timer(node)
        self.wake(node)
        return node.reply

    def perform(self, node: Node, effect: Effect) -> bool:
        """Returns whether the log changed."""
        log = node.log
        match effect:
            case SaveState():
                assert node.saved is None or effect.state.epoch >= node.saved.epoch
                node.saved = effect.state
            case Send():
                self.send(node, effect.to, effect.request)
            case PeerReply():
                node.reply = effect.response
            case AppendLeaderChange():
                self.append(node, [(effect.epoch, f"leader {effect.leader_id}")])
                return True
            case AppendFetched():
                self.append(node, effect.batches)
                return True
            case TruncateTo():
                log.entries = log.entries[: effect.offset]
                log.sync()
                return True
            case CommitEntries():
                self.check_committed(node, effect.high_watermark)
            case Diverged():
                raise AssertionError(effect.message)
        return False

    def append(self, node: Node, entries: Sequence[Entry]) -> None:
        node.log.entries += entries
        if self.faults and self.random.random() < 0.005:
            raise Crashed  # written, not synced
        node.log.sync()

    def write(self) -> None:
        """A controller appends: any node that believes it is the active one."""
        for node in self.nodes.values():
            if node.member is not None and node.member.is_active_leader:
                self.written += 1
                try:
                    self.append(node, [(node.member.epoch, f"value {self.written}")])
                except Crashed:
                    self.crash(node.node_id)
                    self.at(self.random.randint(1, 1500), lambda node=node: self.start(node.node_id))
                else:
                    self.step(node, LogChanged())

    def set_timer(self, node: Node) -> None:
        assert node.member is not None
        due_ms = next_deadline_ms(node.member)
        if due_ms is None or due_ms == node.timer_ms:
            return
        node.timer_ms = due_ms
        life = node.life

        def fire() -> None:
            if node.life == life and node.timer_ms == due_ms:
                node.timer_ms = None
                self.step(node, TimerFired())

        self.at(max(1, due_ms - self.now_ms), fire)

    # --- messages

    def send(self, node: Node, to: int, request: Request) -> None:
        life = node.life
        is_settled = False

        def settle(event: Event) -> None:
            nonlocal is_settled
            if not is_settled and node.life == life:
                is_settled = True
                self.step(node, event)

        def answer(response: Any) -> None:
            if not self.is_lost(to, node.node_id):
                self.at(self.delay_ms(), lambda: settle(Answered(sender=to, request=request, response=response)))

        def arrive() -> None:
            target = self.nodes[to]
            if target.member is None:
                return
            response = self.step(target, Requested(request=request))
            if isinstance(response, FetchAnswer):
                assert isinstance(request, FetchRequest)
                if response.is_worth_sending:
                    answer(self.with_entries(target, request, response))
                elif target.member is not None:
                    target.waiting.append((self.now_ms + LONG_POLL_MS, request, answer))
                    self.at(LONG_POLL_MS, lambda: self.wake(target))
            elif response is not None:
                answer(response)

        self.at(REQUEST_TIMEOUT_MS, lambda: settle(NotAnswered(peer=to, request=request)))
        for _ in range(2 if self.faults and self.random.random() < 0.03 else 1):
            if not self.is_lost(node.node_id, to):
                self.at(self.delay_ms(), arrive)

    def with_entries(self, node: Node, fetch: FetchRequest, answer: FetchAnswer) -> FetchResponse:
        entries = node.log.entries[fetch.fetch_offset :] if answer.may_have_batches else []
        return FetchResponse(answer=answer, batches=entries[: self.random.randint(1, 5)] if self.faults else entries)

    def wake(self, node: Node) -> None:
        if node.member is None:
            return
        waiting, node.waiting = node.waiting, []
        for until_ms, fetch, reply in waiting:
            answer = fetch_answer(node.member, fetch)
            if answer.is_worth_sending or until_ms <= self.now_ms:
                reply(self.with_entries(node, fetch, answer))
            else:
                node.waiting.append((until_ms, fetch, reply))

    # --- what must hold

    def check(self) -> None:
        for node in self.nodes.values():
            member = node.member
            if member is not None and member.role is RaftRole.LEADER:
                known = self.leaders.setdefault(member.epoch, node.node_id)
                assert known == node.node_id, f"epoch {member.epoch} is led by {known} and by {node.node_id}"
                if member.epoch == max(self.leaders):
                    assert node.log.entries[: len(self.committed)] == self.committed, "a leader lacks what is committed"

    def check_committed(self, node: Node, high_watermark: int) -> None:
        assert node.log.end_offset >= high_watermark
        known = min(high_watermark, len(self.committed))
        assert node.log.entries[:known] == self.committed[:known], f"node {node.node_id} committed something else"
        self.committed += node.log.entries[known:high_watermark]

    # --- faults

    def disturb(self) -> None:
        """One random fault."""
        random = self.random
        leading = [each.node_id for each in self.active_leaders()]
        node_id = random.choice(leading if leading and random.random() < 0.5 else list(self.nodes))
        match random.randrange(7):
            case 0:
                self.crash(node_id)
                self.at(random.randint(1, 2000), lambda: self.start(node_id))
            case 1:
                self.cut = {pair for other in self.nodes for pair in ((node_id, other), (other, node_id))}
            case 2:
                self.cut.add((node_id, random.choice(list(self.nodes))))
            case 3 | 4:
                self.cut = set()
            case 5:
                node = self.nodes[node_id]
                if node.member is not None:
                    self.step(node, ResignRequested())
            case 6:
                node = self.nodes[node_id]
                if node.member is not None:
                    self.step(node, TimerFired(late_ms=random.randint(0, 500)))

    def heal(self) -> None:
        self.faults = False
        self.cut = set()
        for node_id in self.nodes:
            self.start(node_id)

    def active_leaders(self) -> list[Node]:
        return [each for each in self.nodes.values() if each.member is not None and each.member.is_active_leader]


def simulate(seed: int, *, voters: int, observers: int = 0, rounds: int = 40) -> None:
    quorum = Quorum(seed, voters=voters, observers=observers)
    for _ in range(rounds):
        quorum.run(quorum.random.choice((5, 50, 200, 700)))
        if quorum.random.random() < 0.7:
            quorum.disturb()
        for _ in range(quorum.random.randint(0, 3)):
            quorum.write()
        quorum.check()
    quorum.heal()
    quorum.run(10_000)
    quorum.write()
    quorum.run(2_000)
    value = f"value {quorum.written}"
    assert quorum.written
    assert any(entry[1] == value for entry in quorum.committed), "a healed quorum commits"
    for node in quorum.nodes.values():
        assert node.member is not None
        assert node.log.entries[: node.member.high_watermark] == quorum.committed, "and everybody learns it"


@pytest.mark.parametrize("seed", range(40))
def test_three_voters_and_an_observer_keep_one_history_under_every_fault(seed: int) -> None:
    simulate(seed, voters=3, observers=1)


@pytest.mark.parametrize("seed", range(1000, 1020))
def test_five_voters_keep_one_history_under_every_fault(seed: int) -> None:
    simulate(seed, voters=5)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(min_value=0, max_value=2**40), voters=st.sampled_from((1, 2, 3, 4, 5)))
def test_quorums_of_any_size_keep_one_history(seed: int, voters: int) -> None:
    simulate(seed, voters=voters, observers=seed % 2, rounds=20)


def test_a_fresh_quorum_has_its_leader_after_a_few_messages() -> None:
    quorum = Quorum(1, voters=3, faults=False)
    quorum.run(15)
    assert [each.node_id for each in quorum.active_leaders()] == [1]


@pytest.mark.parametrize("seed", range(20))
def test_the_next_leader_acts_in_less_than_a_second_after_the_first_has_died(seed: int) -> None:
    quorum = Quorum(seed, voters=3, faults=False)
    quorum.run(1000)
    (first,) = quorum.active_leaders()
    quorum.crash(first.node_id)
    quorum.run(990)
    (second,) = quorum.active_leaders()
    assert second is not first


@pytest.mark.parametrize("seed", range(20))
def test_a_leader_that_resigns_is_followed_by_another_within_a_few_messages(seed: int) -> None:
    quorum = Quorum(seed, voters=3, faults=False)
    quorum.run(1000)
    (first,) = quorum.active_leaders()
    quorum.step(first, ResignRequested())
    quorum.crash(first.node_id)
    quorum.run(20)
    (second,) = quorum.active_leaders()
    assert second is not first


def test_a_leader_without_a_majority_resigns_and_a_returning_node_disturbs_nobody() -> None:
    quorum = Quorum(3, voters=3, faults=False)
    quorum.run(1000)
    (first,) = quorum.active_leaders()
    quorum.cut = {pair for other in quorum.nodes for pair in ((first.node_id, other), (other, first.node_id))}
    quorum.run(3000)
    assert first not in quorum.active_leaders()
    (second,) = quorum.active_leaders()
    epoch = second.member.epoch if second.member else -1
    quorum.cut = set()
    quorum.run(3000)
    assert quorum.active_leaders() == [second]
    assert second.member is not None
    assert second.member.epoch == epoch
