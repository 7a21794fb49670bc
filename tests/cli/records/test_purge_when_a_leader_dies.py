"""A leader dies half way through `ottla dlq purge`: it goes on with the next one, or says what it could not do."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner, Result
from command_output import Run
from dead_letters_of_hours import starts, write_letters

from broker_embedded.cluster import EmbeddedCluster
from ottla.cli import main
from ottla.testing import Kafka
from ottla.testing.topics import create_topic

BROKERS = 3
LETTERS = 12


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=BROKERS, config={"unclean.leader.election.enable": "false"}) as running:
        yield running


@pytest.fixture
def kafka(cluster: EmbeddedCluster) -> Kafka:
    return Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)


@pytest.fixture
def ottla(kafka: Kafka) -> Run:
    env = {"OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    return lambda *arguments: CliRunner().invoke(main, ["dlq", *arguments], env=env)


def letters(kafka: Kafka, cluster: EmbeddedCluster, *, copies: int) -> str:
    """As many letters in each of three partitions, led by different brokers."""
    topic = "dead-letters"
    create_topic(
        kafka.bootstrap_servers, topic, partitions=BROKERS, replication_factor=copies, config={"retention.ms": -1}
    )
    write_letters(kafka, topic, count=LETTERS, partitions=BROKERS)
    for partition in range(BROKERS):
        cluster.wait_for_isr(topic, partition)
    return topic


def purge_while_a_leader_dies(ottla: Run, cluster: EmbeddedCluster, topic: str, *options: str) -> tuple[Result, int]:
    """The leader of partition 0 is killed when it has deleted and has not said so."""
    leader = cluster.wait_for_leader(topic)
    with (
        ThreadPoolExecutor(1) as pool,
        cluster.faults.add(api="DELETE_RECORDS", broker=leader, hold=True, after_apply=True, count=1) as held,
    ):
        running = pool.submit(ottla, "purge", topic, "--yes", *options)
        held.wait(hits=1, timeout_s=30)
        cluster.kill(leader)
        held.release()
        return running.result(120), leader


def test_the_next_leader_is_asked_again(ottla: Run, kafka: Kafka, cluster: EmbeddedCluster) -> None:
    topic = letters(kafka, cluster, copies=BROKERS)
    ended, _ = purge_while_a_leader_dies(ottla, cluster, topic, "--timeout", "60")
    assert (ended.exit_code, starts(kafka, topic)) == (0, [LETTERS // BROKERS] * BROKERS), ended.output
    assert f"{LETTERS} dead letters deleted" in ended.stderr


def test_a_leader_that_stays_away_is_named_and_the_same_command_goes_on(
    ottla: Run, kafka: Kafka, cluster: EmbeddedCluster
) -> None:
    topic = letters(kafka, cluster, copies=1)
    ended, died = purge_while_a_leader_dies(ottla, cluster, topic, "--timeout", "3")
    assert ended.exit_code == 2, ended.output
    assert f"{topic}-0" in ended.stderr
    assert "deleted" not in ended.stderr
    cluster.start_broker(died)
    cluster.wait_for_leader(topic)
    again = ottla("purge", topic, "--yes", "--timeout", "60")
    assert (again.exit_code, starts(kafka, topic)) == (0, [LETTERS // BROKERS] * BROKERS), again.output
