"""`ottla groups` where a partition has no leader, or a commit is beyond the log's end: unknown is not 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from click.testing import CliRunner, Result
from command_output import document, rows

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.cli import main
from ottla.testing import Kafka, wait_until

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Three brokers, of which the one that had the only replica of `orders-0` is dead. `billing` is at the start."""
    with EmbeddedCluster(brokers=3, config={"offsets.topic.replication.factor": 3}) as running:
        with Admin(running.bootstrap_servers, timeout_s=20) as admin:
            admin.create_topics({"orders": TopicSpec(partitions=3, replication_factor=1), "other": None})
            kafka = Kafka(running.bootstrap_servers, kind="embedded", cluster=running)
            for partition in range(3):
                kafka.produce("orders", [b"x"] * 4, partition=partition)
            admin.apply_reset(admin.plan_reset("billing", to="earliest", topics={"orders": None}))
            running.kill(running.leader("orders", 0))
            wait_until(lambda: None in [each.leader for each in admin.describe_topics("orders")[0].partitions])
        yield running


@pytest.fixture
def ottla(cluster: EmbeddedCluster) -> Run:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["groups", *arguments, "-b", cluster.bootstrap_servers])

    return run


def test_the_lag_of_a_partition_without_a_leader_is_not_known(ottla: Run, cluster: EmbeddedCluster) -> None:
    shown = ottla("lag", "billing")
    by_partition = {row[2]: row[5] for row in rows(shown)}
    assert [by_partition[number] for number in "012"].count("") >= 1
    assert by_partition["0"] == ""
    assert "billing: the lag of orders-0" in shown.stderr
    assert "the partition has no leader" in shown.stderr
    (found,) = document(ottla("list", "--lag", "--format", "json"), "ottla.groups.list/1")["items"]
    assert found["lag"] is None
    assert found["lag_at_least"] in (4, 8)
    assert document(ottla("show", "billing", "--format", "json"), "ottla.groups.show/1")["lag"] is None
    assert "unknown" in ottla("lag", "billing", "--format", "table").stdout


def test_a_limit_of_lag_fails_where_it_is_not_known(ottla: Run) -> None:
    unknown = ottla("lag", "billing", "--above", "100")
    assert unknown.exit_code == 1
    assert "billing: not known whether it is more than 100 records behind" in unknown.stderr
    behind = ottla("lag", "billing", "--above", "3")
    assert behind.exit_code == 1
    assert "records behind, more than 3" in behind.stderr
    assert "billing is at least" in behind.stderr


def test_a_group_of_unknown_lag_may_be_lagging(ottla: Run) -> None:
    assert [row[0] for row in rows(ottla("list", "--lagging"))] == ["billing"]


def test_a_commit_beyond_the_end_is_a_negative_lag(ottla: Run, cluster: EmbeddedCluster) -> None:
    with Admin(cluster.bootstrap_servers, timeout_s=20) as admin:
        admin.create_topics({"short": TopicSpec(partitions=1, replication_factor=2)})
        consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "ahead"})
        consumer.commit(offsets=[confluent_kafka.TopicPartition("short", 0, 7)], asynchronous=False)
        consumer.close()
        try:
            shown = ottla("lag", "ahead", "--above", "0")
            assert rows(shown)[0][3:6] == ["7", "0", "-7"]
            assert shown.exit_code == 0
            assert "ahead: 7 is committed for short-0, beyond the log's end 0" in shown.stderr
        finally:
            admin.delete_groups("ahead")
