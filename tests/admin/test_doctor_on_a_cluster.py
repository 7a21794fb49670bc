"""The doctor on embedded clusters: silent on a good one, and each trap that a cluster can be brought into is found."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla import App
from ottla.admin import Admin, Part, TopicSpec
from ottla.admin.doctor import Evidence, Limits, Report, examine
from ottla.testing import Kafka, assert_healthy, wait_until

YEAR_MS = 365 * 24 * 3_600_000
GOOD = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def ids(report: Report) -> set[str]:
    return {finding.id for finding in report.findings}


def subjects(report: Report, id: str) -> set[str]:
    return {finding.subject for finding in report.findings if finding.id == id}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, config=GOOD, racks=["a", "b", "c"]) as running:
        with Admin(running.bootstrap_servers) as admin:
            admin.create_topics({"orders": TopicSpec(partitions=3), "orders.dead-letters": LETTERS})
        Kafka(running.bootstrap_servers, kind="embedded", cluster=running).produce("orders", [b"1", b"2", b"3"])
        yield running


LETTERS = TopicSpec(partitions=1, config={"retention.ms": 30 * 24 * 3_600_000, "max.message.bytes": 2_000_000})


def test_a_good_cluster_and_a_service_that_fits_it(good: EmbeddedCluster) -> None:
    app = App("billing", bootstrap_servers=good.bootstrap_servers, dead_letter_topic="orders.dead-letters")

    @app.handler("orders", value=bytes)
    def on_order(value: bytes) -> None: ...

    report = assert_healthy(good, app=app, ignore=["MSG01"])  # letters are larger than a follower fetches at once
    assert report.findings == ()
    assert {each.id for each in report.not_checked} == {"BAL05", "DRF01", "MOV01", "GRP01", "GRP03", "GRP05"}, (
        "only what needs samples, records or declared files"
    )

    app.dead_letter_topic = None
    other = App("audit", bootstrap_servers=good.bootstrap_servers, dead_letter_topic="missing")
    other.handler("payments", value=bytes)(on_order)
    with pytest.raises(AssertionError, match=r"(?s)DLQ03 error: audit: missing.*fix: ottla topics create missing"):
        assert_healthy(good.bootstrap_servers, app=other, ignore=["MSG01", "STO06"])


def test_rights_that_are_missing_are_not_a_good_cluster(good: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with Admin(good.bootstrap_servers) as admin:
        monkeypatch.setattr(
            "ottla.admin.facts.response_facts.log_dirs_of",
            lambda answer: (),  # what Kafka sends to whom may not describe the cluster
        )
        with pytest.raises(AssertionError, match="AVL03 not checked: broker 1 and 2 more: it named no directory"):
            assert_healthy(admin, only=["AVL03"])


@pytest.fixture(scope="module")
def trapped() -> Iterator[tuple[EmbeddedCluster, Admin]]:
    """Three brokers with Kafka's defaults and every mistake that can be made on them."""
    config = {
        "offsets.topic.replication.factor": 1,
        "log.message.timestamp.after.max.ms": (1 << 63) - 1,
        "auto.leader.rebalance.enable": "false",
    }
    with (
        EmbeddedCluster(brokers=3, config=config, racks=["a", "a", "b"], log_dirs=2) as running,
        Admin(running.bootstrap_servers) as admin,
    ):
        yield running, admin


def test_every_trap_of_a_cluster_that_has_them_all(trapped: tuple[EmbeddedCluster, Admin]) -> None:
    cluster, admin = trapped
    kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
    usual = TopicSpec(partitions=1, replication_factor=3)
    admin.create_topics({f"usual-{number}": usual for number in range(6)})
    admin.create_topics({"orders": TopicSpec(partitions=2, replication_factor=3)})
    admin.create_topics(
        {
            "lonely": TopicSpec(partitions=1, replication_factor=1),
            "stops": TopicSpec(partitions=1, replication_factor=2, config={"min.insync.replicas": 2}),
            "unclean": TopicSpec(replication_factor=3, config={"unclean.leader.election.enable": True}),
            "huge": TopicSpec(partitions=3, replication_factor=3, config={"retention.bytes": 1 << 50}),
            "slow": TopicSpec(replication_factor=3, config={"retention.ms": 3_600_000}),
            "large": TopicSpec(replication_factor=3, config={"max.message.bytes": 9_000_000}),
            "orders.dlq": TopicSpec(replication_factor=3, config={"max.message.bytes": 1000}),
            "held": TopicSpec(replication_factor=3, config={"follower.replication.throttled.replicas": "*"}),
        }
    )
    admin.alter_broker_settings(2, {"message.max.bytes": 5_000_000})
    kafka.produce("orders.dlq", [b"a letter"])
    kafka.produce("orders", [b"x"], partition=0, timestamp_ms=admin.facts(()).at_ms + YEAR_MS)
    kafka.produce("orders", [b"x" * 1_000] * 20, partition=1)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "behind"})
    consumer.commit(offsets=[confluent_kafka.TopicPartition("orders", 1, 3)], asynchronous=False)
    consumer.close()
    admin.delete_records({next(iter(admin.records_before("orders", "latest", partitions=[1]))): 10})

    facts = admin.facts()
    report = examine(Evidence(facts=facts, limits=Limits(least_bytes=1, skew=1.01, replicas_per_broker=5)))

    assert facts.not_read == ()
    wanted = {
        "REP01": {"lonely"},
        "REP02": {"brokers"},
        "REP03": set(),  # REP01 says it
        "REP04": {"stops"},
        "REP06": {"unclean"},
        "REP07": {"__consumer_offsets"},
        "STO01": {"huge"},
        "STO03": {"orders-0"},
        "STO05": {"slow"},
        "MSG01": {"brokers", "large"},
        "MSG02": {"orders.dlq"},
        "BAL07": {"broker 1", "broker 2", "broker 3"},
        "MOV02": {"held"},
        "GRP04": {"group behind: orders-1"},
        "DLQ01": {"orders.dlq"},
        "DLQ02": {"orders.dlq"},
        "SEC01": {"brokers"},
    }
    assert {id: subjects(report, id) for id in wanted} == wanted
    assert {"REP05", "STO04", "STO06", "BAL03", "BAL04"} <= ids(report)
    assert subjects(report, "REP05") == {"min.insync.replicas"}, "one cause, one fix"
    assert subjects(examine(Evidence(facts=facts), only=["REP03"]), "REP03") == {"lonely"}


def test_groups_with_idle_members_and_transactions_that_stay_open(trapped: tuple[EmbeddedCluster, Admin]) -> None:
    cluster, admin = trapped
    admin.create_topics({"narrow": TopicSpec(partitions=1, replication_factor=3)})
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "wide"}
    members = [confluent_kafka.Consumer(settings) for _ in range(2)]
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "pay"})
    try:
        for each in members:
            each.subscribe(["narrow"])
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("narrow", b"1")
        producer.flush()

        def is_joined() -> bool:
            for each in members:
                each.poll(0.05)
            (group,) = admin.facts({Part.GROUP_MEMBERS}, groups=["wide"]).groups or (None,)
            return group is not None and group.state == "Stable" and len(group.members or ()) == 2

        wait_until(is_joined, timeout_s=30)
        report = examine(Evidence(facts=admin.facts(), limits=Limits(transaction_ms=0)), only=["GRP02", "TXN01"])
        assert subjects(report, "GRP02") == {"group wide"}
        assert subjects(report, "TXN01") == {"pay"}
        producer.abort_transaction()
    finally:
        for each in members:
            each.close()


def test_brokers_that_are_gone_and_a_new_one_that_is_empty() -> None:
    with (
        EmbeddedCluster(brokers=3, config=GOOD, racks=["a", "a", "b"]) as cluster,
        Admin(cluster.bootstrap_servers, timeout_s=20) as admin,
    ):
        admin.create_topics({"orders": TopicSpec(partitions=6), "alone": TopicSpec(partitions=3, replication_factor=1)})
        Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster).produce("orders", [b"x" * 500] * 60)
        before = admin.facts()
        added = cluster.add_broker()
        wait_until(lambda: added in admin.facts(()).broker_ids, timeout_s=20)
        limits = Limits(least_bytes=1)
        report = examine(Evidence(facts=admin.facts(), limits=limits))
        assert subjects(report, "BAL02") == {f"broker {added}"}
        assert subjects(report, "REP08") == {"brokers"}, "the new one says no rack"

        cluster.kill(3)
        report = examine(Evidence(facts=admin.facts({Part.REACHED}), limits=limits), only=["AVL06"])
        assert subjects(report, "AVL06") in ({"broker 3"}, set()), "until the controller has noticed"
        wait_until(lambda: any(each.is_fenced for each in admin.facts(()).brokers), timeout_s=40)
        facts = admin.facts()
        report = examine(Evidence(facts=facts, earlier=[before], limits=limits))
        assert len(subjects(report, "AVL01")) == 1
        assert all("waits for broker 3 (away)" in each.message for each in report.findings if each.id == "AVL01")
        assert subjects(report, "AVL05") == set(), "it is away and still registered"
        assert any("broker 3: it is fenced" in each.reason for each in report.not_checked)


def test_a_log_directory_that_is_lost() -> None:
    with EmbeddedCluster(brokers=1, log_dirs=2) as cluster, Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics({"orders": TopicSpec(partitions=4)})
        (broker,) = admin.facts({Part.LOG_DIRS}).brokers
        paths = [log_dir.path for log_dir in broker.log_dirs or ()]
        cluster.disks.offline(1, dir=1)

        def lost() -> set[str]:
            return subjects(examine(Evidence(facts=admin.facts({Part.LOG_DIRS, Part.TOPICS})), only=["AVL03"]), "AVL03")

        wait_until(lost, timeout_s=20)
        assert lost() == {f"broker 1: {paths[1]}"}
