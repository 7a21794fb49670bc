"""A log directory fails on a running cluster: what was led from there is led elsewhere, the rest stays."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.node import Node
from broker_embedded.common.types import TopicPartition
from broker_embedded.controller.controller import Controller
from broker_embedded.controller.requests import NewTopic
from broker_embedded.metadata.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, ClusterImage, PartitionImage
from ottla.testing import wait_until

WAIT_S = 60


class Running:
    """Two brokers, of which the second leads the four partitions of "t" at first."""

    def __init__(self, **options: Any) -> None:
        self.cluster = EmbeddedCluster(brokers=2, **options)
        self.cluster.start()
        self.cluster._call(self._create())
        for broker in (1, 2):
            self.until(lambda broker=broker: self.path_of(broker, 3), what="logs of every replica")

    async def _create(self) -> None:
        wanted = NewTopic(name="t", assignments=dict.fromkeys(range(4), (2, 1)))
        (result,) = await self.controller.create_topics([wanted], validate_only=False)
        assert result.error is None

    def node(self, broker: int) -> Node:
        return self.cluster._cluster.nodes[broker]

    @property
    def controller(self) -> Controller:
        return self.node(1).controller

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    @property
    def partitions(self) -> list[PartitionImage]:
        return list(self.image.topics["t"].partitions.values())

    def path_of(self, broker: int, partition: int) -> str:
        """The log directory of a replica."""
        found = self.node(broker).logs.get("t", partition)
        return "" if found is None else found.directory.rpartition("/")[0]

    def fail(self, broker: int, path: str) -> None:
        async def on_the_loop() -> None:
            self.node(broker).logs.directories.fail(path, "made to fail")

        self.cluster._call(on_the_loop())

    def until(self, condition: Callable[[], object], *, what: str) -> None:
        wait_until(lambda: bool(condition()), WAIT_S, what=what)

    def knows_all_places(self) -> bool:
        return all(state.directory_of(node) != UNASSIGNED_DIRECTORY for state in self.partitions for node in (1, 2))


@pytest.fixture
def run() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def make(**options: Any) -> Running:
        started.append(Running(**options))
        return started[-1]

    yield make
    for running in started:
        running.cluster.stop()


def test_partitions_of_a_failed_directory_move_and_those_of_the_other_stay(run: Callable[..., Running]) -> None:
    running = run(log_dirs=2)
    running.until(running.knows_all_places, what="the controller to know where replicas are")
    paths = [running.path_of(2, number) for number in range(4)]
    assert len(set(paths)) == 2
    running.fail(2, paths[0])
    gone = [number for number, path in enumerate(paths) if path == paths[0]]

    def has_moved(number: int) -> bool:
        state = running.partitions[number]
        return (state.leader, state.isr) == (1, (1,)) and running.image.offline_replicas(state) == [2]

    running.until(lambda: all(has_moved(number) for number in gone), what="others to lead what has failed")
    running.until(lambda: len(running.image.brokers[2].log_dirs) == 1, what="the directory to be struck off")


@pytest.mark.parametrize("was_leader", [True, False])
def test_a_replica_in_a_failed_directory_is_not_fetched_for_and_so_not_taken_for_in_sync(
    run: Callable[..., Running], was_leader: bool
) -> None:
    running = run(log_dirs=2)
    running.until(running.knows_all_places, what="the controller to know where replicas are")
    broker, other = (2, 1) if was_leader else (1, 2)
    failed_path = running.path_of(broker, 0)
    gone = [number for number in range(4) if running.path_of(broker, number) == failed_path]
    running.fail(broker, failed_path)
    running.until(
        lambda: all(
            (running.partitions[number].leader, running.partitions[number].isr) == (other, (other,)) for number in gone
        ),
        what="the failed replicas to leave the ISR",
    )
    replicas = running.node(broker).broker.replicas
    running.until(
        lambda: not any(replicas.follows(TopicPartition("t", number)) for number in gone), what="their fetches to end"
    )
    whole = [number for number in range(4) if number not in gone]
    assert whole
    assert all(set(running.partitions[number].isr) == {1, 2} for number in whole)


def test_a_broker_whose_only_directory_fails_is_fenced_and_stays_so(run: Callable[..., Running]) -> None:
    running = run()
    running.fail(2, running.path_of(2, 0))
    running.until(lambda: running.image.brokers[2].fenced, what="the broker to be fenced")
    assert {state.leader for state in running.partitions} == {1}
    session = running.controller.lives._sessions._sessions[2]
    seen_ms = session.last_contact_ms
    running.until(lambda: session.last_contact_ms > seen_ms + 300, what="heartbeats that go on")
    assert running.image.brokers[2].fenced


def test_a_replaced_directory_of_several_fills_again_while_the_other_broker_leads(
    run: Callable[..., Running], tmp_path: Path
) -> None:
    running = run(log_dirs=2, data_dir=tmp_path)
    running.until(running.knows_all_places, what="the controller to know where replicas are")
    old = {state.directory_of(2) for state in running.partitions}
    path = running.path_of(2, 0)
    running.cluster.stop_broker(2)
    shutil.rmtree(path)
    running.cluster.start_broker(2)
    assert {state.leader for state in running.partitions} == {1}
    running.until(lambda: all(set(state.isr) == {1, 2} for state in running.partitions), what="full ISRs")
    running.until(running.knows_all_places, what="the controller to know where replicas are")
    new = {state.directory_of(2) for state in running.partitions}
    assert len(new & old) == 1
    assert LOST_DIRECTORY not in new


def restart_with_what_is_left(running: Running, failed: str, data_dir: Path) -> None:
    """Start broker 2 again with its remaining directory only, as after the broken disk was taken out."""
    (left,) = {path for path in (running.path_of(2, number) for number in range(4)) if path != failed}
    running.cluster.stop_broker(2)
    Path(left).rename(data_dir / "left")
    shutil.rmtree(data_dir / "broker-2")
    (data_dir / "left").rename(data_dir / "broker-2")
    running.cluster._cluster._log_dirs = 1
    running.cluster.start_broker(2)


def test_a_broker_that_comes_back_with_the_remaining_directory_alone_serves_everything_from_there(
    run: Callable[..., Running], tmp_path: Path
) -> None:
    running = run(log_dirs=2, data_dir=tmp_path)
    running.until(running.knows_all_places, what="the controller to know where replicas are")
    failed = running.path_of(2, 0)
    running.fail(2, failed)
    running.until(lambda: len(running.image.brokers[2].log_dirs) == 1, what="the directory to be struck off")
    restart_with_what_is_left(running, failed, tmp_path)
    running.until(lambda: all(set(state.isr) == {1, 2} for state in running.partitions), what="full ISRs")
    running.until(
        lambda: not any(running.image.offline_replicas(state) for state in running.partitions),
        what="the controller to know that nothing is in the lost directory any more",
    )


def test_a_partition_whose_only_replica_was_in_the_failed_directory_is_led_again_empty(
    run: Callable[..., Running], tmp_path: Path
) -> None:
    running = run(log_dirs=2, data_dir=tmp_path)

    async def create() -> None:
        alone = NewTopic(name="alone", assignments=dict.fromkeys(range(4), (2,)))
        (result,) = await running.controller.create_topics([alone], validate_only=False)
        assert result.error is None

    def alone() -> list[PartitionImage]:
        return list(running.image.topics["alone"].partitions.values())

    running.cluster._call(create())
    running.until(
        lambda: running.knows_all_places() and all(state.directory_of(2) != UNASSIGNED_DIRECTORY for state in alone()),
        what="the controller to know where replicas are",
    )
    failed = running.path_of(2, 0)
    running.fail(2, failed)
    running.until(lambda: any(state.leader < 0 for state in alone()), what="partitions without a leader")
    running.until(lambda: len(running.image.brokers[2].log_dirs) == 1, what="the directory to be struck off")
    restart_with_what_is_left(running, failed, tmp_path)
    running.until(lambda: {state.leader for state in alone()} == {2}, what="everything to be led")


def test_the_last_in_sync_replica_does_not_lead_empty_when_its_directory_is_replaced(
    run: Callable[..., Running], tmp_path: Path
) -> None:
    running = run(log_dirs=2, data_dir=tmp_path)
    running.until(running.knows_all_places, what="the controller to know where replicas are")
    here = running.path_of(1, 0)
    running.fail(1, here)
    alone = {number for number in range(4) if running.path_of(1, number) == here}
    running.until(lambda: all(running.partitions[each].isr == (2,) for each in alone), what="broker 2 to be alone")
    running.until(lambda: len(running.image.brokers[1].log_dirs) == 1, what="the directory to be struck off")
    (number, *_) = alone
    there = running.path_of(2, number)
    gone = {each for each in alone if running.path_of(2, each) == there}
    running.cluster.stop_broker(2)
    shutil.rmtree(there)
    running.cluster.start_broker(2)
    running.until(
        lambda: all(set(running.partitions[each].isr) == {1, 2} for each in range(4) if each not in alone),
        what="full ISRs of what both have",
    )
    running.until(
        lambda: all(running.partitions[each].leader == 2 for each in alone - gone), what="what broker 2 has to be led"
    )

    async def create() -> None:
        (result,) = await running.controller.create_topics(
            [NewTopic(name="later", assignments={0: (2,)})], validate_only=False
        )
        assert result.error is None

    running.cluster._call(create())
    running.until(
        lambda: running.image.topics["later"].partitions[0].directory_of(2) != UNASSIGNED_DIRECTORY,
        what="broker 2 to have told everything that it has to tell",
    )
    assert {(running.partitions[each].leader, running.partitions[each].isr) for each in gone} == {(-1, (2,))}
