"""Whatever happens in whatever order: what was acknowledged stays, high watermarks only grow, logs come together.

Messages are delivered one by one, metadata reaches each broker when it likes, links are cut, brokers die (also with
what they had not fsynced) and come back; elections are clean. After every step the invariants are checked, and at the
end, when everything works again, all replicas have to be equal.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_embedded.common.types import NO_LEADER, TopicPartition
from broker_embedded.replication.leadership import AppendResult
from ottla_wire.protocol import ErrorCode

T0 = TopicPartition("t", 0)
MakeCluster = Callable[..., Any]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3), st.sampled_from([-1, 1])),
        st.tuples(st.just("deliver"), st.integers(0, 11), st.integers(1, 6)),
        st.tuples(st.just("deliver"), st.integers(0, 11), st.integers(1, 6)),
        st.tuples(st.just("deliver"), st.integers(0, 11), st.integers(1, 6)),
        st.tuples(st.just("tell"), st.integers(1, 3), st.integers(1, 4)),
        st.tuples(st.just("wait"), st.sampled_from([5, 50, 600, 4_000]), st.just(0)),
        st.tuples(st.just("elect"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("cut"), st.integers(1, 3), st.integers(1, 3)),
        st.tuples(st.just("heal"), st.just(0), st.just(0)),
        st.tuples(st.just("die"), st.integers(1, 3), st.sampled_from([0, 1, 2])),
        st.tuples(st.just("return"), st.integers(1, 3), st.just(0)),
    ),
    max_size=80,
)


class History:
    """A run, and what has to hold of it."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.waiting: list[tuple[bytes, list[AppendResult]]] = []
        self.acknowledged: dict[int, bytes] = {}
        self.high_watermarks: dict[int, tuple[Any, int]] = {}
        self.number = 0

    # --- steps

    def append(self, node: int, acks: int) -> None:
        if not self.cluster[node].is_up:
            return
        self.number += 1
        value = b"%d" % self.number
        results = self.cluster[node].append(value, acks=acks)
        if acks == -1:
            self.waiting.append((value, results))

    def deliver(self, which: int, count: int) -> None:
        for _ in range(count):
            self.cluster.loop.run()
            busy = self.cluster.wire.busy()
            if busy:
                self.cluster.wire.step(busy[which % len(busy)])
        self.cluster.loop.run()

    def tell(self, node: int, count: int) -> None:
        one = self.cluster[node]
        if one.is_up:
            one.catch_up(one.applied + count)

    def wait(self, ms: int, _: int) -> None:
        self.cluster.clock.advance(ms)
        self.cluster.loop.run()

    def elect(self, which: int, _: int) -> None:
        able = [node for node in self.cluster.state.isr if self.cluster[node].is_up]
        if able:
            self.cluster.elect(able[which % len(able)])

    def cut(self, source: int, target: int) -> None:
        if source != target:
            self.cluster.wire.cut.add((source, target))
            self.cluster.wire.fail(source, target)

    def heal(self, *_: int) -> None:
        self.cluster.wire.cut.clear()

    def die(self, node: int, how: int) -> None:
        """The controller notices at once; the brokers hear of it when they are told."""
        cluster = self.cluster
        if not cluster[node].is_up:
            return
        state = cluster.state
        rest = tuple(each for each in state.isr if each != node)
        loses = how == 2 and bool(rest)  # the last one in sync keeps what it wrote, or it would be lost for good
        cluster[node].stop(cleanly=how == 0, crash=Random(self.number) if loses else None)
        cluster.fence(node)
        able = [each for each in rest if cluster[each].is_up]
        changes: dict[str, Any] = {}
        if rest:
            changes["isr"] = rest
        if state.leader == node:
            changes["leader"] = able[0] if able else NO_LEADER
        if changes:
            cluster.change(**changes)

    def come_back(self, node: int, _: int = 0) -> None:
        cluster = self.cluster
        if cluster[node].is_up:
            return
        cluster[node].start()
        if cluster.state.leader == NO_LEADER and node in cluster.state.isr:
            cluster.elect(node)

    # --- what has to hold

    def check(self) -> None:
        for value, results in list(self.waiting):
            if results:
                self.waiting.remove((value, results))
                if results[0].error is ErrorCode.NONE:
                    offset = results[0].base_offset
                    assert self.acknowledged.setdefault(offset, value) == value, "two records at one offset"
        for node_id, node in self.cluster.nodes.items():
            partition = node.replicas.partition(T0) if node.is_up else None
            if partition is None:
                self.high_watermarks.pop(node_id, None)
                continue
            own = partition.log
            assert own.log_start_offset <= own.high_watermark <= own.log_end_offset
            known = self.high_watermarks.get(node_id)
            if known is not None and known[0] is own:
                assert own.high_watermark >= known[1], f"the high watermark of broker {node_id} moved back"
            self.high_watermarks[node_id] = (own, own.high_watermark)

    def what_was_acknowledged_is_readable(self) -> None:
        """Below the high watermark of any broker stands what was acknowledged there, and nothing else."""
        for node in self.cluster.nodes.values():
            if node.is_up and node.replicas.partition(T0) is not None:
                values = node.values()[: node.partition().high_watermark]
                for offset, value in self.acknowledged.items():
                    assert offset >= len(values) or values[offset] == value

    def end(self) -> None:
        """Everything works again."""
        cluster = self.cluster
        cluster.wire.cut.clear()
        for node_id in cluster.nodes:
            self.come_back(node_id)
        cluster.tells_at_once = True
        cluster.tell()
        if cluster.state.leader == NO_LEADER:
            cluster.elect(cluster.state.isr[0])
        cluster.advance(15_000, step_ms=200)
        last = cluster[cluster.state.leader].append(b"last")
        cluster.advance(3_000, step_ms=200)
        assert [each.error for each in last] == [ErrorCode.NONE]
        self.check()
        assert set(cluster.state.isr) == {1, 2, 3}
        values = cluster[1].values()
        assert cluster[2].values() == cluster[3].values() == values
        epochs = [cluster[node].partition().log.leader_epochs for node in (1, 2, 3)]
        assert epochs[0] == epochs[1] == epochs[2]
        for offset, value in self.acknowledged.items():
            assert values[offset] == value, f"{value!r} was acknowledged at {offset} and is lost"


def run_of(history: History) -> dict[str, Callable[[int, int], None]]:
    return {
        "append": history.append,
        "deliver": history.deliver,
        "tell": history.tell,
        "wait": history.wait,
        "elect": history.elect,
        "cut": history.cut,
        "heal": history.heal,
        "die": history.die,
        "return": history.come_back,
    }


@pytest.mark.timeout(600)  # the thorough profile
@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(steps=STEPS)
def test_acknowledged_records_survive_and_logs_come_together(
    make_cluster: MakeCluster, steps: list[tuple[str, int, int]]
) -> None:
    cluster = make_cluster(3, **{"replica.lag.time.max.ms": 3_000, "replica.fetch.backoff.ms": 100})
    cluster.create()
    cluster.tells_at_once = False
    history = History(cluster)
    run = run_of(history)
    for name, one, other in steps:
        run[name](one, other)
        history.check()
    history.what_was_acknowledged_is_readable()
    history.end()


@pytest.mark.timeout(600)  # the thorough profile
@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(steps=STEPS)
def test_after_unclean_elections_records_are_lost_and_logs_come_together_all_the_same(
    make_cluster: MakeCluster, steps: list[tuple[str, int, int]]
) -> None:
    cluster = make_cluster(3, **{"replica.lag.time.max.ms": 3_000, "replica.fetch.backoff.ms": 100})
    cluster.create()
    cluster.tells_at_once = False
    history = History(cluster)
    run = run_of(history)

    def elect_anybody(which: int, _: int) -> None:
        able = [node for node in cluster.nodes if cluster[node].is_up]
        if able:
            leader = able[which % len(able)]
            cluster.elect(leader, isr=(leader,))

    run["elect"] = elect_anybody
    for name, one, other in steps:
        run[name](one, other)
    history.waiting.clear()
    history.high_watermarks.clear()
    history.end()
