"""Consume-transform-produce is exactly-once when the client dies: wherever it is, and again and again."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from random import Random

import pytest
from dead_members import forget_members
from exactly_once import CLIENTS, CRASH_POINTS, FENCED_EXIT, Fleet, Service, Trial

from broker_embedded.cluster import EmbeddedCluster
from ottla.testing import wait_until

PULLED_CRASH_POINTS = ("after the offsets", "after a send", "after the commit")
SETTINGS = {
    "group.min.session.timeout.ms": 500,
    # What a service leaves open is ended when its timeout is over, and not up to ten seconds later.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}

pytestmark = [pytest.mark.complete, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Members that were killed are missed after two seconds instead of six at least."""
    with EmbeddedCluster(config=SETTINGS) as running:
        yield running


@pytest.fixture
def trial(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[Trial]:
    name = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)
    made = Trial(cluster.bootstrap_servers, name, records=300)
    made.create_topics()
    made.fill()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("client", "point"),
    [
        *(("confluent", point) for point in CRASH_POINTS),
        *((client, point) for client in ("threads", "asyncio") for point in PULLED_CRASH_POINTS),
        *((client, point) for client in ("handlers", "async-handlers") for point in CRASH_POINTS),
    ],
)
def test_a_service_that_is_killed_anywhere_in_a_transaction_loses_and_repeats_nothing(
    trial: Trial, client: str, point: str
):
    trial.client = client
    dying = Service(trial, 0, crash_at=point, crash_in=3)
    assert dying.process.wait(60) == -signal.SIGKILL
    forget_members(trial.bootstrap_servers, trial.name)
    with trial.fleet(services=1) as fleet:
        trial.wait_until_done(fleet)
    trial.judge()


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_services_that_are_killed_again_and_again_lose_and_repeat_nothing(trial: Trial, client: str):
    trial.client = client

    def kill_one(fleet: Fleet, random: Random) -> None:
        fleet.kill_and_restart(random.randrange(2))

    trial.under(kill_one, blows=4, services=2, seed=7)
    trial.judge()


@pytest.mark.parametrize("client", ["handlers", "async-handlers"])
@pytest.mark.parametrize("point", ["after the records", "after the offsets"])
def test_a_service_that_hangs_until_others_have_its_partitions_writes_nothing_when_it_goes_on(
    trial: Trial, client: str, point: str
):
    trial.client = client
    # Nameless: nobody fences it by name. Its own timeout and the generation of the group have to.
    hanging = Service(trial, 0, crash_at=point, crash_in=3, stops=True, name="nameless")
    try:
        wait_until(hanging.process.is_stopped, 60, what="the stop")
        forget_members(trial.bootstrap_servers, trial.name)
        with trial.fleet(services=1) as fleet:
            trial.wait_until_done(fleet)
            hanging.process.send_signal(signal.SIGCONT)
            more = trial.records
            trial.refill()
            trial.wait_until_done(fleet, inputs=2 * more)
    finally:
        hanging.kill()
    trial.judge()


@pytest.mark.representative
def test_two_services_of_one_transactional_id_do_not_both_go_on(trial: Trial):
    first = Service(trial, 0)
    with trial.fleet(services=1) as fleet:  # the same number, so the same id
        try:
            trial.wait_until_done(fleet)
            # One of them is fenced when it writes next; which one began last is theirs.
            ended = [each.process.poll() for each in (first, *fleet.services)]
            assert set(ended) <= {None, FENCED_EXIT}
        finally:
            first.kill()
    trial.judge()


@pytest.mark.representative
def test_the_oracle_sees_what_is_lost_and_what_is_repeated(trial: Trial):
    from ottla import Producer

    with Producer(trial.bootstrap_servers) as producer:
        for partition in range(trial.partitions):
            for value in trial.inputs(partition)[:-1]:
                producer.send(trial.target, value, partition=partition)
    with pytest.raises(AssertionError, match=r"partition 0 has lost \[b'0:99'\], 1 in all"):
        trial.judge()
    with Producer(trial.bootstrap_servers) as producer:
        for partition in range(trial.partitions):
            producer.send(trial.target, trial.inputs(partition)[-1], partition=partition)
    trial.judge()
    with Producer(trial.bootstrap_servers) as producer:
        producer.send(trial.target, b"2:7", partition=2)
    with pytest.raises(AssertionError, match=r"partition 2 has \[b'2:7'\] more than once"):
        trial.judge()
