"""A killed broker is replaced at once: every timeout that could do it instead is longer than the test may take."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster

PATIENT = {
    "broker.session.timeout.ms": 600_000,
    "controller.quorum.fetch.timeout.ms": 600_000,
    "replica.lag.time.max.ms": 600_000,
}
"""Ten minutes; the waits of the tests are shorter."""
Make = Callable[..., EmbeddedCluster]


def partition_led_by(cluster: EmbeddedCluster, broker: int) -> int:
    return next(number for number in range(len(cluster.broker_ids)) if cluster.leader("t", number) == broker)


@pytest.mark.representative("a broker")
@pytest.mark.parametrize("is_controller", [False, True], ids=["a broker", "the controller too"])
def test_a_leader_that_is_killed_is_replaced_without_the_end_of_any_session(
    make_cluster: Make, make_client: Any, is_controller: bool
) -> None:
    cluster = make_cluster(config=PATIENT)
    cluster.create_topic("t", partitions=3, replication_factor=3, config={"min.insync.replicas": 2})
    controller = cluster.controller_id
    victim = controller if is_controller else next(each for each in cluster.broker_ids if each != controller)
    partition = partition_led_by(cluster, victim)
    client = make_client(cluster)
    client.send("t", "before", partition=partition)
    cluster.kill(victim)
    client.send("t", "after", partition=partition)
    survivors = set(cluster.broker_ids) - {victim}
    cluster.wait_for_isr("t", partition, isr=survivors)
    assert cluster.leader("t", partition) in survivors
    cluster.start_broker(victim)  # and the session of the dead one does not keep it out
    cluster.wait_for_isr("t", partition)
    assert client.read("t", 2, partition=partition) == ["before", "after"]


def test_nobody_waits_for_a_follower_that_is_killed(make_cluster: Make, make_client: Any) -> None:
    """It was in sync a moment ago, so it might be about to join again, if it lived."""
    cluster = make_cluster(config=PATIENT)
    cluster.create_topic("t", partitions=3, replication_factor=3, config={"min.insync.replicas": 2})
    victim = next(each for each in cluster.broker_ids if each != cluster.controller_id)
    partitions = [number for number in range(3) if cluster.leader("t", number) != victim]
    client = make_client(cluster)
    for partition in partitions:
        client.send("t", "before", partition=partition)
    cluster.kill(victim)
    for partition in partitions:
        client.send("t", "after", partition=partition)
        assert client.read("t", 2, partition=partition) == ["before", "after"]
    cluster.start_broker(victim)
    for partition in partitions:
        cluster.wait_for_isr("t", partition)


def test_a_paused_broker_is_not_taken_for_dead(make_cluster: Make) -> None:
    """Not even by a new controller, which asks after everybody."""
    cluster = make_cluster(4, config=PATIENT)
    cluster.create_topic("t", partitions=4, replication_factor=3)
    paused, controller = 4, cluster.controller_id
    assert paused != controller, "it does not vote"
    led = partition_led_by(cluster, paused)
    cluster.pause(paused)
    lost = partition_led_by(cluster, controller)
    cluster.kill(controller)
    assert cluster.wait_for_leader("t", lost, timeout_s=60) != controller
    assert cluster.leader("t", led) == paused
    assert paused in cluster.isr("t", led)


def test_a_cluster_that_is_stopped_elects_nobody_on_the_way(
    tmp_path: Path, make_cluster: Make, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = make_cluster(data_dir=tmp_path, config=PATIENT)
    cluster.create_topic("t", partitions=3, replication_factor=3)
    with caplog.at_level(logging.INFO, "broker_embedded"):
        cluster.stop()
    assert [each.getMessage() for each in caplog.records if "dead" in each.getMessage()] == []
    assert [each.getMessage() for each in caplog.records if "controller is active" in each.getMessage()] == []
