"""Thousands of topics and partitions: created in time in proportion to their number, with the loop given back."""

from __future__ import annotations

import asyncio
import cProfile
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker_embedded.cluster.cluster import Cluster
from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.common.types import TopicPartition
from broker_embedded.controller import topic_names
from broker_embedded.controller.controller import PARTITIONS_AT_ONCE
from broker_embedded.controller.requests import NewTopic, TopicResult
from broker_embedded.replication.replica_roles import OPENED_AT_ONCE
from broker_embedded.storage.log_manager import LogManager
from ottla_wire.protocol import ErrorCode


def on_a_cluster(act: Callable[[Cluster], Awaitable[Any]]) -> Any:
    disk = MemoryFileSystem()

    async def run() -> Any:
        cluster = Cluster(filesystem=lambda node: disk)
        await cluster.start()
        try:
            return await act(cluster)
        finally:
            await cluster.stop()

    return asyncio.run(run())


def topics(count: int, *, partitions: int = 1) -> list[NewTopic]:
    return [NewTopic(name=f"t{n}", partitions=partitions, replication_factor=1) for n in range(count)]


async def create(cluster: Cluster, wanted: list[NewTopic]) -> list[TopicResult]:
    controller = await cluster.active_controller()
    return await controller.create_topics(wanted, validate_only=False)


async def all_opened(cluster: Cluster, count: int) -> None:
    def opened() -> int:
        return len(cluster.brokers[1].replicas.partitions())

    await cluster.wait_until(lambda: opened() == count, timeout_s=60, what=lambda: f"{opened()} of {count} are opened")


def test_many_topics_are_created_and_opened_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two turns of the loop, only so many are decided and opened."""
    made_in_turn: list[int] = [0]
    create_log = LogManager._create

    def counted(self: LogManager, *arguments: Any) -> Any:
        made_in_turn[-1] += 1
        return create_log(self, *arguments)

    monkeypatch.setattr(LogManager, "_create", counted)
    count = 6 * PARTITIONS_AT_ONCE + 1

    async def act(cluster: Cluster) -> list[TopicResult]:
        loop = asyncio.get_running_loop()

        def next_turn() -> None:
            made_in_turn.append(0)
            loop.call_soon(next_turn)

        next_turn()
        results = await create(cluster, topics(count))
        await all_opened(cluster, count)
        return results

    results = on_a_cluster(act)
    assert [each.name for each in results] == [each.name for each in topics(count)]
    assert {each.error for each in results} == {None}
    assert sum(made_in_turn) >= count
    assert max(made_in_turn) <= 2 * OPENED_AT_ONCE + 1


def test_a_partition_that_was_not_opened_yet_is_opened_when_it_is_asked_for() -> None:
    async def act(cluster: Cluster) -> None:
        await create(cluster, topics(1, partitions=10 * OPENED_AT_ONCE))
        replicas = cluster.brokers[1].replicas
        last = TopicPartition("t0", 10 * OPENED_AT_ONCE - 1)
        assert len(replicas.partitions()) < 10 * OPENED_AT_ONCE
        assert replicas.leader_partition(last).is_leader
        await all_opened(cluster, 10 * OPENED_AT_ONCE)

    on_a_cluster(act)


def test_a_topic_that_is_deleted_before_it_was_opened_leaves_nothing() -> None:
    async def act(cluster: Cluster) -> None:
        await create(cluster, topics(1, partitions=10 * OPENED_AT_ONCE))
        broker = cluster.brokers[1]
        controller = await cluster.active_controller()
        await controller.delete_topics([controller.image.topics["t0"]])
        await create(cluster, topics(2))
        await all_opened(cluster, 2)
        assert len(broker.logs.logs) == 2

    on_a_cluster(act)


def test_leadership_lost_half_way_is_told_of_the_topics_that_were_not_reached() -> None:
    async def act(cluster: Cluster) -> list[TopicResult]:
        controller = await cluster.active_controller()
        answer = controller.create_topics(topics(3 * PARTITIONS_AT_ONCE), validate_only=False)
        controller.close()
        cluster.nodes[1].quorum.close()
        return await answer

    results = on_a_cluster(act)
    refused = [each.error.code for each in results[PARTITIONS_AT_ONCE:] if each.error is not None]
    assert {each.error for each in results[:PARTITIONS_AT_ONCE]} == {None}
    assert refused == [ErrorCode.NOT_CONTROLLER] * 2 * PARTITIONS_AT_ONCE


def test_leaders_stay_balanced_while_topics_come_and_go() -> None:
    async def act(cluster: Cluster) -> None:
        await create(cluster, topics(30, partitions=3))
        controller = await cluster.active_controller()
        doomed = [topic for name, topic in controller.image.topics.items() if name.endswith("1")]
        await controller.delete_topics(doomed)
        counted = [state.leader for topic in controller.image.topics.values() for state in topic.partitions.values()]
        assert controller.image.leader_counts == {1: len(counted)}

    on_a_cluster(act)


@pytest.mark.parametrize("name", ["a.b", "a_b.c", "a.b_c.d_e.f_g.h", "no-marks", "._", "a..b"])
def test_a_colliding_name_is_found_among_others(name: str) -> None:
    swapped = name.translate(str.maketrans("._", "_."))
    assert topic_names.collision_with(name, {"x", "x.y", name}) is None
    found = topic_names.collision_with(name, {"x", "x.y", name, swapped})
    assert found == (swapped if swapped != name else None)


def test_each_further_topic_costs_as_many_steps_as_the_first_ones() -> None:
    def calls(count: int) -> int:
        async def act(cluster: Cluster) -> int:
            profile = cProfile.Profile()
            profile.enable()
            for each in topics(count):
                await create(cluster, [each])
            profile.disable()
            return sum(each.callcount for each in profile.getstats())

        return int(on_a_cluster(act))

    assert calls(800) < 1.2 * 4 * calls(200)
