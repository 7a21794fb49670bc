"""`ottla exporter` on clusters: what it shows, when brokers go, and of a user who may see half."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result
from prometheus_client.parser import text_string_to_metric_families
from secured_commands import grant, login

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.cli import main
from ottla.exporter.cluster_metrics_table import CLUSTER_METRICS
from ottla.exporter.cluster_readings import ConnectTimes, ExportChoices
from ottla.exporter.reading_loop import STALE_INTERVALS, ReadingLoop, connect_times
from ottla.records import TopicPartition
from ottla.testing import Kafka, SecureKafka, secure_kafka, wait_until
from ottla.wire_client.client_settings import connection_settings
from ottla.wire_client.cluster.cluster_client import Cluster

Metrics = dict[str, dict[tuple[str, ...], float]]


def metrics_of(text: str | bytes) -> Metrics:
    """Metric → label values in the order of the table → value. Every label of the table is there, and no other."""
    found: Metrics = {}
    for family in text_string_to_metric_families(text if isinstance(text, str) else text.decode()):
        for sample in family.samples:
            labels = CLUSTER_METRICS[sample.name].labels
            assert set(sample.labels) == set(labels), sample.name
            place = tuple(sample.labels[label] for label in labels)
            assert place not in found.setdefault(sample.name, {}), "a scrape with a series twice is refused"
            found[sample.name][place] = sample.value
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, config={"offsets.topic.replication.factor": 3}) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers, timeout_s=20) as made:
        yield made


@pytest.fixture(scope="module")
def kafka(cluster: EmbeddedCluster) -> Kafka:
    return Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)


@pytest.fixture
def ottla(cluster: EmbeddedCluster) -> Callable[..., Result]:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["exporter", "--once", "-b", cluster.bootstrap_servers, *arguments])

    return run


def loop_of(admin: Any, servers: str, *, monotonic: Callable[[], float] = lambda: 0.0, **choices: Any) -> ReadingLoop:
    wire = connection_settings({"bootstrap.servers": servers})
    return ReadingLoop(
        admin,
        lambda facts: connect_times(facts, wire),
        ExportChoices(**choices),
        open_cluster=lambda **changes: Cluster(replace(wire, **changes)),
        every_s=30.0,
        doctor_every_s=None,
        warn=lambda _: None,
        monotonic=monotonic,
    )


def test_one_reading_has_lag_sizes_brokers_and_findings(
    ottla: Callable[..., Result], admin: Admin, kafka: Kafka
) -> None:
    admin.create_topics({"read": TopicSpec(partitions=2, replication_factor=3)})
    for partition in range(2):
        kafka.produce("read", [b"x"] * 5, partition=partition)
    admin.apply_reset(admin.plan_reset("readers", to="earliest", topics={"read": [0]}))
    admin.apply_reset(admin.plan_reset("readers", to="latest", topics={"read": [1]}))
    done = ottla("--partitions")
    assert done.exit_code == 0, done.stderr
    found = metrics_of(done.stdout)
    assert found["ottla_cluster_up"][()] == 1
    assert found["ottla_cluster_group_lag_records"]["readers", "read"] == 5
    assert found["ottla_cluster_group_partition_lag_records"]["readers", "read", "0"] == 5
    assert found["ottla_cluster_group_partition_lag_records"]["readers", "read", "1"] == 0
    assert found["ottla_cluster_group_lag_seconds"]["readers", "read"] > 0
    assert found["ottla_cluster_group_members"]["readers",] == 0
    assert found["ottla_cluster_group_info"]["readers", "Classic", "Empty"] == 1
    assert found["ottla_cluster_topic_records"]["read",] == 10
    assert found["ottla_cluster_topic_size_bytes"]["read",] > 0
    assert found["ottla_cluster_partition_end_offset"]["read", "1"] == 5
    assert [found["ottla_cluster_broker_up"][str(broker),] for broker in (1, 2, 3)] == [1, 1, 1]
    assert all(found["ottla_cluster_broker_connects_total"][str(broker), "ok"] == 1 for broker in (1, 2, 3))
    assert sum(found["ottla_cluster_broker_leaders"].values()) == found["ottla_cluster_partitions"][()]
    assert found["ottla_cluster_topic_under_min_isr_partitions"]["read",] == 0
    assert found["ottla_cluster_open_transactions"][()] == 0
    assert found["ottla_doctor_findings"]["REP01", "error"] == 0
    assert found["ottla_doctor_not_checked"]["REP01",] == 0
    assert ("APP01",) not in found["ottla_doctor_not_checked"], "it is about services"
    assert set(found["ottla_exporter_hidden"].values()) == {0}
    in_sight = {name for name, metric in CLUSTER_METRICS.items() if name not in found}
    assert in_sight == {"ottla_cluster_quota", "ottla_exporter_dropped_series"}, "each other one has a series here"
    without = metrics_of(ottla().stdout)
    assert not {name for name in without if CLUSTER_METRICS[name].is_of_partition}
    assert without["ottla_cluster_group_lag_records"]["readers", "read"] == 5
    excluded = ottla("--partitions", "--exclude", "read*", "--exclude", "other").stdout
    assert "readers" not in excluded
    assert metrics_of(excluded)["ottla_cluster_topic_records"]["read",] == 10


def test_an_excluded_group_that_cannot_be_read_is_not_counted(
    ottla: Callable[..., Result], cluster: EmbeddedCluster, admin: Admin
) -> None:
    admin.create_topics({"hidden": TopicSpec(partitions=1, replication_factor=1)})
    admin.apply_reset(admin.plan_reset("hidden-group", to="earliest", topics={"hidden": [0]}))
    with cluster.faults.add(api="OFFSET_FETCH", group="hidden-group", error="GROUP_AUTHORIZATION_FAILED"):
        shown, excluded = (metrics_of(ottla(*given).stdout) for given in ((), ("--exclude", "hidden-*")))
    assert shown["ottla_exporter_hidden"]["group_offsets", "not authorized"] == 1
    assert excluded["ottla_exporter_hidden"]["group_offsets", "not authorized"] == 0


def test_series_above_the_bound_are_named(ottla: Callable[..., Result]) -> None:
    found = metrics_of(ottla("--max-series", "1").stdout)
    assert len(found["ottla_cluster_topic_partitions"]) == 1
    assert found["ottla_exporter_dropped_series"]["ottla_cluster_broker_up",] == 2


def test_quotas_and_open_transactions_are_shown(
    ottla: Callable[..., Result], cluster: EmbeddedCluster, admin: Admin
) -> None:
    servers = ["-b", cluster.bootstrap_servers, "--yes"]
    for entity in (["--user", "web"], ["--ip-defaults"]):
        name = "producer_byte_rate" if "--user" in entity else "connection_creation_rate"
        done = CliRunner().invoke(main, ["quotas", "set", f"{name}=1024", *entity, *servers])
        assert done.exit_code == 0, done.output
    admin.create_topics({"paid": TopicSpec(partitions=1, replication_factor=3)})
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "till", "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("paid", b"1")
    producer.flush()
    found = metrics_of(ottla().stdout)
    assert found["ottla_cluster_quota"]["web", "", "", "producer_byte_rate"] == 1024
    assert found["ottla_cluster_quota"]["", "", "<default>", "connection_creation_rate"] == 1024
    assert found["ottla_cluster_open_transactions"][()] == 1
    assert found["ottla_cluster_oldest_transaction_seconds"][()] > 0
    assert found["ottla_cluster_overdue_transactions"][()] == 0
    producer.abort_transaction()


def test_losses_are_counted_between_readings(admin: Admin, kafka: Kafka, cluster: EmbeddedCluster) -> None:
    admin.create_topics({"short": TopicSpec(partitions=1, replication_factor=3)})
    kafka.produce("short", [b"x"] * 9, partition=0)
    admin.apply_reset(admin.plan_reset("slow", to="earliest", topics={"short": None}))
    loop = loop_of(admin, cluster.bootstrap_servers)
    loop.read()
    assert metrics_of(loop.scrape())["ottla_cluster_group_lost_records_total"]["slow", "short"] == 0
    admin.delete_records({TopicPartition("short", 0): 4})
    kafka.produce("short", [b"x"] * 2, partition=0)
    loop.read()
    found = metrics_of(loop.scrape())
    assert found["ottla_cluster_group_lost_records_total"]["slow", "short"] == 4
    assert found["ottla_cluster_topic_written_records_total"]["short",] == 2
    assert found["ottla_cluster_topic_truncated_records_total"]["short",] == 0
    assert found["ottla_cluster_group_lag_records"]["slow", "short"] == 7


def test_a_commit_beyond_the_end_is_shown(admin: Admin, kafka: Kafka, cluster: EmbeddedCluster) -> None:
    admin.create_topics({"ended": TopicSpec(partitions=1, replication_factor=3)})
    kafka.produce("ended", [b"x"] * 3, partition=0)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "ahead"})
    try:
        consumer.commit(offsets=[confluent_kafka.TopicPartition("ended", 0, 99)], asynchronous=False)
    finally:
        consumer.close()
    loop = loop_of(admin, cluster.bootstrap_servers)
    loop.read()
    found = metrics_of(loop.scrape())
    assert found["ottla_cluster_group_beyond_end_partitions"]["ahead", "ended"] == 1
    assert found["ottla_cluster_group_lag_records"]["ahead", "ended"] == 0


def test_the_marker_of_a_transaction_is_no_lag(admin: Admin, cluster: EmbeddedCluster) -> None:
    admin.create_topics({"marked": TopicSpec(partitions=1, replication_factor=3)})
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "marker"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("marked", b"1")
    producer.commit_transaction()
    admin.apply_reset(admin.plan_reset("done", to=1, topics={"marked": None}))
    admin.apply_reset(admin.plan_reset("waits", to=0, topics={"marked": None}))
    loop = loop_of(admin, cluster.bootstrap_servers)
    loop.read()
    assert metrics_of(loop.scrape())["ottla_cluster_group_lag_records"]["done", "marked"] == 1, "not yet known"
    loop.read()
    found = metrics_of(loop.scrape())
    assert found["ottla_cluster_group_lag_records"]["done", "marked"] == 0
    assert found["ottla_cluster_group_lag_seconds"]["done", "marked"] == 0
    assert found["ottla_cluster_group_stalled_seconds"]["done", "marked"] == 0
    assert found["ottla_cluster_group_lag_records"]["waits", "marked"] == 1
    assert found["ottla_cluster_group_lag_seconds"]["waits", "marked"] > 0


def test_a_log_that_lost_its_end_is_counted() -> None:
    with EmbeddedCluster() as running, Admin(running.bootstrap_servers, timeout_s=20) as admin:
        running.create_topic("cut")
        Kafka(running.bootstrap_servers, kind="embedded", cluster=running).produce("cut", [b"x"] * 8, partition=0)
        loop = loop_of(admin, running.bootstrap_servers)
        loop.read()
        running.kill(1, lose_unsynced=True)
        running.start_broker(1)
        running.wait_for_leader("cut")
        wait_until(lambda: loop.read() is None and loop.problem is None)
        assert metrics_of(loop.scrape())["ottla_cluster_topic_truncated_records_total"]["cut",] == 8


def test_a_broker_that_is_away_is_a_gauge() -> None:
    with (
        EmbeddedCluster(brokers=3, config={"offsets.topic.replication.factor": 3}) as running,
        Admin(running.bootstrap_servers, timeout_s=20) as admin,
    ):
        admin.create_topics(
            {
                "wide": TopicSpec(partitions=3, replication_factor=3),
                "narrow": TopicSpec(partitions=3, replication_factor=1),
            }
        )
        Kafka(running.bootstrap_servers, kind="embedded", cluster=running).produce("narrow", [b"x"], partition=0)
        admin.apply_reset(admin.plan_reset("billing", to="earliest", topics={"narrow": None}))
        loop = loop_of(admin, running.bootstrap_servers)
        loop.read()
        victim = running.leader("narrow", 0)
        assert metrics_of(loop.scrape())["ottla_cluster_broker_up"][str(victim),] == 1
        running.kill(victim)

        def is_seen() -> Metrics | None:
            loop.read()
            found = metrics_of(loop.scrape())
            return found if found["ottla_cluster_topic_offline_partitions"]["narrow",] == 1 else None

        found = wait_until(is_seen)
        assert found["ottla_cluster_up"][()] == 1
        assert found["ottla_cluster_broker_up"][str(victim),] == 0
        assert found["ottla_cluster_broker_connects_total"][str(victim), "failed"] >= 1
        assert found["ottla_cluster_topic_under_replicated_partitions"]["wide",] == 3
        assert found["ottla_cluster_group_unknown_lag_partitions"]["billing", "narrow"] == 1
        assert found["ottla_exporter_hidden"]["log_dirs", "unavailable"] == 1


def test_a_cluster_that_is_away_is_a_gauge_and_old_figures_end() -> None:
    now_s = [0.0]
    said: list[str] = []
    running = EmbeddedCluster()
    with running, Admin(running.bootstrap_servers, timeout_s=2) as admin:
        loop = ReadingLoop(
            admin,
            lambda _: ConnectTimes(),
            ExportChoices(),
            open_cluster=pytest.fail,
            every_s=30.0,
            doctor_every_s=None,
            warn=said.append,
            monotonic=lambda: now_s[0],
        )
        assert metrics_of(loop.scrape())["ottla_cluster_up"][()] == 0, "nothing was read yet"
        loop.read()
        assert said == []
        assert metrics_of(loop.scrape())["ottla_cluster_up"][()] == 1
        running.kill(1)
        loop.read()
        loop.read()
        found = metrics_of(loop.scrape())
        assert found["ottla_cluster_up"][()] == 0
        assert found["ottla_exporter_reads_total"] == {("ok",): 1, ("failed",): 2}
        assert "ottla_cluster_topics" in found, "the last figures, for a while"
        assert loop.problem is not None
        assert len(said) == 1
        assert "cannot be read" in said[0]
        now_s[0] = STALE_INTERVALS * 30.0 + 1
        assert "ottla_cluster_topics" not in metrics_of(loop.scrape())
        running.start_broker(1)
        wait_until(lambda: loop.read() is None and loop.problem is None)
        assert said[-1] == "the cluster is read again"


class BrokenOnce:
    """An `Admin` whose first answer cannot be understood."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._is_broken = True

    def facts(self, parts: Any) -> Any:
        if self._is_broken:
            self._is_broken = False
            raise ValueError("not a number")
        return self._admin.facts(parts)

    def carry_out(self, asking: Any) -> None:
        self._admin.carry_out(asking)


def test_an_answer_that_cannot_be_understood_does_not_end_the_exporter(admin: Admin, cluster: EmbeddedCluster) -> None:
    loop = loop_of(BrokenOnce(admin), cluster.bootstrap_servers)
    loop.start()
    try:
        wait_until(lambda: loop.problem is not None and "ValueError in the exporter" in loop.problem)
        assert metrics_of(loop.scrape())["ottla_cluster_up"][()] == 0
        loop.read()
        assert metrics_of(loop.scrape())["ottla_cluster_up"][()] == 1
    finally:
        loop.close()


USERS = {"admin": "admin-secret", "half": "half-secret"}
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "false",
}


@pytest.fixture(scope="module")
def secured() -> Iterator[SecureKafka]:
    with (
        secure_kafka("SASL_SSL", mechanism="SCRAM-SHA-512", users=USERS, config=SECURED) as running,
        Admin(running.bootstrap_servers, settings=running.settings) as admin,
    ):
        admin.create_topics({"seen": TopicSpec(partitions=1), "hidden": TopicSpec(partitions=1)})
        for topic in ("seen", "hidden"):
            admin.apply_reset(admin.plan_reset(f"group-{topic}", to="earliest", topics={topic: None}))
        as_admin = login(running, "admin", USERS["admin"])
        grant(as_admin, "half", "--topic", "seen", "--operation", "describe")
        grant(as_admin, "half", "--group", "group-seen", "--operation", "describe")
        yield running


def test_a_user_who_may_see_half_gets_that_and_what_is_hidden(secured: SecureKafka) -> None:
    done = CliRunner().invoke(main, ["exporter", "--once", *login(secured, "half", USERS["half"])])
    assert done.exit_code == 0, done.stderr
    found = metrics_of(done.stdout)
    assert set(found["ottla_cluster_group_lag_records"]) == {("group-seen", "seen")}
    assert set(found["ottla_cluster_topic_partitions"]) == {("seen",)}
    assert "ottla_cluster_topic_size_bytes" not in found
    assert "ottla_cluster_open_transactions" in found, "none of its own is open"
    hidden = {
        part for (part, reason), count in found["ottla_exporter_hidden"].items() if reason == "not authorized" and count
    }
    assert {"log_dirs", "acls", "quotas", "broker_settings"} <= hidden
    assert not any(count for (_, reason), count in found["ottla_exporter_hidden"].items() if reason == "unavailable")
    assert found["ottla_doctor_not_checked"]["STO02",] == 1
    whole = metrics_of(
        CliRunner().invoke(main, ["exporter", "--once", *login(secured, "admin", USERS["admin"])]).stdout
    )
    assert set(whole["ottla_exporter_hidden"].values()) == {0}
    assert ("group-hidden", "hidden") in whole["ottla_cluster_group_lag_records"]


def test_a_password_that_is_refused_is_a_gauge_and_not_shown(secured: SecureKafka) -> None:
    done = CliRunner().invoke(main, ["exporter", "--once", *login(secured, "half", "wrong-secret")])
    assert done.exit_code == 1
    assert metrics_of(done.stdout)["ottla_cluster_up"][()] == 0
    assert "AuthenticationRefused" in done.stderr
    assert "wrong-secret" not in done.output


@pytest.mark.complete
def test_the_process_serves_and_ends_at_sigterm(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "exporter", "--port", "0", "--every", "1s", "-b", cluster.bootstrap_servers],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OTTLA_CLUSTERS": str(tmp_path / "none.toml")},
    )
    try:
        assert process.stderr is not None
        address = process.stderr.readline().split()[-1]

        def scraped() -> Metrics:
            with urllib.request.urlopen(address, timeout=10) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                return metrics_of(answer.read())

        wait_until(lambda: scraped()["ottla_exporter_reads_total"]["ok",] >= 2)
        assert scraped()["process_resident_memory_bytes"][()] > 1_000_000
        base = address.removesuffix("/metrics")
        for path in ("/health/live", "/health/ready", "/"):
            with urllib.request.urlopen(base + path, timeout=10) as answer:
                assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{base}/etc", timeout=10)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--every", "10ms"], "wanted 1s or more"),
        (["--skip", "XYZ99"], "no check has this id"),
        (["--baseline", "none.toml"], "none.toml"),
        (["--host", "203.0.113.1", "--port", "1"], "cannot listen there"),
    ],
)
def test_options_that_cannot_be_are_refused(cluster: EmbeddedCluster, arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(main, ["exporter", "-b", cluster.bootstrap_servers, *arguments])
    assert done.exit_code == 2
    assert said in done.stderr
