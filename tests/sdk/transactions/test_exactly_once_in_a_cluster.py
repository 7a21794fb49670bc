"""Consume-transform-produce is exactly-once when brokers and coordinators die, with and without their clients."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from random import Random

import pytest
from exactly_once import Fleet, Trial

from broker_embedded.cluster import EmbeddedCluster

STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
SETTINGS = {
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 1,
    "group.min.session.timeout.ms": 500,
}

Strike = Callable[[Fleet, Random], None]


pytestmark = [pytest.mark.timeout(300), pytest.mark.soak]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, config=SETTINGS) as running:
        yield running


@pytest.fixture
def trial(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[Trial]:
    name = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)
    made = Trial(cluster.bootstrap_servers, name, records=300)
    made.create_topics(replication_factor=3, config={"min.insync.replicas": "2"})
    made.fill()
    yield made
    made.close()


def replace(cluster: EmbeddedCluster, trial: Trial, broker: int) -> None:
    """Kill a broker and bring it back; when this returns everything is on three brokers again."""
    cluster.kill(broker)
    cluster.start_broker(broker)
    for topic in (STATE, OFFSETS):
        cluster.wait_for_isr(topic)
    for partition in range(trial.partitions):
        cluster.wait_for_isr(trial.source, partition)
        cluster.wait_for_isr(trial.target, partition)


def leader_of(cluster: EmbeddedCluster, trial: Trial, what: str) -> int:
    if what == "the coordinator of the transaction":
        return cluster.wait_for_leader(STATE)
    if what == "the coordinator of the group":
        return cluster.wait_for_leader(OFFSETS)
    return cluster.wait_for_leader(trial.target)


@pytest.mark.parametrize("client", ["confluent", "handlers", "async-handlers"])
@pytest.mark.parametrize(
    "what", ["the coordinator of the transaction", "the coordinator of the group", "a leader that is written to"]
)
def test_nothing_is_lost_or_repeated_when_a_broker_dies(cluster: EmbeddedCluster, trial: Trial, what: str, client: str):
    trial.client = client

    def strike(fleet: Fleet, random: Random) -> None:
        replace(cluster, trial, leader_of(cluster, trial, what))

    trial.under(strike, blows=2, services=2, seed=3)
    trial.judge()


def test_nothing_is_lost_or_repeated_when_brokers_and_services_die_together(cluster: EmbeddedCluster, trial: Trial):
    def strike(fleet: Fleet, random: Random) -> None:
        fleet.services[random.randrange(2)].kill()
        replace(cluster, trial, random.choice(cluster.broker_ids))
        fleet.restart_what_ended()

    trial.under(strike, blows=3, services=2, seed=5)
    trial.judge()
