"""Consume-transform-produce is exactly-once when a broker, or the service, dies at the worst moment of a transaction.

`test_exactly_once_in_a_cluster` does the same at random moments, for minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from exactly_once import InProcess, Trial

from broker_embedded.cluster import EmbeddedCluster
from ottla import FencedError

STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
SETTINGS = {
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 1,
    "group.min.session.timeout.ms": 500,
}

pytestmark = [pytest.mark.complete, pytest.mark.timeout(300)]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, config=SETTINGS) as running:
        yield running


@pytest.fixture
def trial(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[Trial]:
    name = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)
    made = Trial(cluster.bootstrap_servers, name, records=90)
    made.create_topics(replication_factor=3, config={"min.insync.replicas": "2"})
    made.fill()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("moment", "led"),
    [
        # What is held when the broker dies was never done there; the second transaction is met, not the first.
        pytest.param({"api": "TXN_OFFSET_COMMIT", "skip": 1}, OFFSETS, id="the group's coordinator, for the offsets"),
        pytest.param({"api": "END_TXN", "skip": 1}, STATE, id="the transaction's coordinator, for the decision"),
        pytest.param(
            {"api": "WRITE_TXN_MARKERS", "source": "brokers"},
            STATE,
            id="the transaction's coordinator, for the markers",
        ),
        # What is done, and nobody was told: the service asks again.
        pytest.param(
            {"api": "PRODUCE", "partition": 0, "after_apply": True}, "target", id="a leader, with the records"
        ),
    ],
)
def test_nothing_is_lost_or_repeated_when_a_broker_dies_that_a_transaction_waits_for(
    cluster: EmbeddedCluster, trial: Trial, moment: dict[str, Any], led: str
):
    if led == "target":
        led = moment["topic"] = trial.target
    with cluster.faults.add(**moment, hold=True, count=1) as held, InProcess(trial, 0) as service:
        held.wait(timeout_s=60)
        victim = cluster.wait_for_leader(led)
        cluster.kill(victim)
        trial.wait_until_done(service)
    cluster.start_broker(victim)
    trial.judge()


def test_a_service_that_wakes_up_after_another_took_over_is_fenced_and_changes_nothing(
    cluster: EmbeddedCluster, trial: Trial
):
    with cluster.faults.add(api="END_TXN", hold=True, skip=1, count=1) as held, InProcess(trial, 0) as asleep:
        held.wait(timeout_s=60)
        initialised = cluster.faults.add(
            api="INIT_PRODUCER_ID", transactional_id=asleep.transactional_id, delay_ms=0, after_apply=True
        )
        with InProcess(trial, 0) as successor:
            initialised.wait(timeout_s=60)
            held.release()
            trial.wait_until_done(successor)
    assert isinstance(asleep.failure, FencedError)
    trial.judge()
