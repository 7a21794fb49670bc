"""Every check of the doctor speaks on an embedded cluster that was brought into its trouble, and is silent on a good
one, where all checks are made."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import confluent_kafka
import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla import App
from ottla.admin import (
    Admin,
    ClusterFacts,
    DeclaredCluster,
    DeclaredTopic,
    Part,
    ReplicaMove,
    TopicSpec,
    dump_facts,
    load_facts,
)
from ottla.admin.doctor import Evidence, Limits, Report, all_checks, declaration_of, examine
from ottla.admin.facts.facts_reader import EVERYTHING
from ottla.schedule.headers import DEFAULT_NAME, TOPIC_CONFIG, schedule_topic
from ottla.schedule.tasks.task_records import Definition, tasks_topic
from ottla.schedule.wheel import WHEEL
from ottla.sync.produce.producer import Producer
from ottla.sync.serve.task_registration import register_tasks
from ottla.testing import Kafka, wait_until

HERE = "tests/admin/test_every_check_on_a_cluster.py"
_TRAPS = "tests/admin/test_doctor_on_a_cluster.py::test_every_trap_of_a_cluster_that_has_them_all"
_GONE = "tests/admin/test_doctor_on_a_cluster.py::test_brokers_that_are_gone_and_a_new_one_that_is_empty"
_WAITING = "tests/admin/test_doctor_on_a_cluster.py::test_groups_with_idle_members_and_transactions_that_stay_open"

PROVOKED_BY = {
    **dict.fromkeys(("REP01", "REP02", "REP03", "REP04", "REP05", "REP06", "REP07"), _TRAPS),
    **dict.fromkeys(("STO01", "STO03", "STO04", "STO05", "STO06", "MSG01", "MSG02"), _TRAPS),
    **dict.fromkeys(("BAL03", "BAL04", "BAL07", "MOV02", "GRP04", "DLQ01", "DLQ02", "SEC01"), _TRAPS),
    **dict.fromkeys(("REP08", "AVL01", "BAL02"), _GONE),
    **dict.fromkeys(("GRP02", "TXN01"), _WAITING),
    "AVL02": f"{HERE}::test_a_partition_with_too_few_in_sync_and_a_broker_that_clients_cannot_reach",
    "AVL03": "tests/admin/test_doctor_on_a_cluster.py::test_a_log_directory_that_is_lost",
    "AVL04": f"{HERE}::test_the_last_in_sync_that_has_lost_its_log",
    "AVL06": f"{HERE}::test_a_partition_with_too_few_in_sync_and_a_broker_that_clients_cannot_reach",
    "AVL07": f"{HERE}::test_one_controller_of_three_nodes",
    "STO02": f"{HERE}::test_a_disk_that_is_nearly_full",
    **dict.fromkeys(("MSG03", "DLQ03", "APP01"), f"{HERE}::test_a_service_that_does_not_fit_its_cluster"),
    **dict.fromkeys(("BAL01", "BAL05", "BAL06"), f"{HERE}::test_a_broker_that_has_and_takes_most"),
    "DRF01": f"{HERE}::test_a_cluster_that_is_not_as_declared",
    "MOV01": f"{HERE}::test_a_move_that_copies_nothing",
    **dict.fromkeys(("GRP01", "GRP05", "GRP06"), f"{HERE}::test_groups_that_fall_behind_rebalance_and_stop_eagerly"),
    "GRP07": f"{HERE}::test_a_group_that_is_committed_beyond_the_end",
    **dict.fromkeys(
        ("STO07", "STO08", "STO09", "STO10", "STO11", "STO12", "BAL08"),
        f"{HERE}::test_settings_that_keep_everything_compact_nothing_or_cost_much",
    ),
    "GRP03": "tests/admin/test_commit_times.py::test_a_group_whose_offsets_expire_is_found",
    "APP02": "tests/admin/test_permissions_of_a_service.py::test_what_is_missing_is_found_and_granted_by_the_fix",
    "QUO01": f"{HERE}::test_a_quota_that_lets_nothing_through",
    **dict.fromkeys(
        ("SCH01", "SCH02", "SCH03"), f"{HERE}::test_a_schedule_that_nobody_serves_and_that_would_lose_messages"
    ),
}
"""The test in which each check finds something on a cluster that runs."""

NOT_PROVOKED = {
    "AVL05": "a broker leaves a cluster by UnregisterBroker, which the embedded broker does not serve, and it refuses"
    " replicas on brokers that were never there; test_doctor.py has facts made by hand",
}
NEVER_SILENT = {"STO06": "the logs of a test's broker are in a temporary directory; test_doctor.py has others"}


def test_every_check_is_provoked_on_a_cluster_or_says_why_not() -> None:
    assert sorted(PROVOKED_BY.keys() | NOT_PROVOKED.keys()) == sorted(all_checks())
    assert sorted(PROVOKED_BY.keys() & NOT_PROVOKED.keys()) == [], "what is provoked needs no reason"


@pytest.mark.parametrize("place", sorted(set(PROVOKED_BY.values())))
def test_what_is_said_to_provoke_a_check_names_it(place: str) -> None:
    """The test is there, and it or a function that it calls names the check."""
    file, _, name = place.partition("::")
    source = Path(__file__).parents[2].joinpath(file).read_text("utf-8")
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    called = {each.id for each in ast.walk(functions[name]) if isinstance(each, ast.Name)} & functions.keys()
    named = {
        each.value
        for function in (name, *called)
        for each in ast.walk(functions[function])
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }
    assert {id for id, where in PROVOKED_BY.items() if where == place} <= named


GOOD = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 0,
    "min.insync.replicas": 2,
    "replica.fetch.max.bytes": 3_000_000,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
LETTERS = TopicSpec(partitions=1, config={"retention.ms": 30 * 24 * 3_600_000, "max.message.bytes": 2_000_000})


def billing(servers: str, *, dead_letter_topic: str = "orders.dead-letters") -> App:
    app = App("billing", bootstrap_servers=servers, dead_letter_topic=dead_letter_topic)

    @app.handler("orders", value=bytes)
    def on_order(value: bytes) -> None: ...

    return app


def test_on_a_good_cluster_all_checks_are_made_and_silent() -> None:
    """With a service, four samples, records of `__consumer_offsets`, and a group that has read all there is."""
    with (
        EmbeddedCluster(brokers=3, config=GOOD, racks=["a", "b", "c"]) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics({"orders": TopicSpec(partitions=3), "orders.dead-letters": LETTERS})
        kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
        kafka.produce("orders", [b"1", b"2", b"3"])
        admin.apply_reset(admin.plan_reset("billing", to="latest", topics={"orders": None}))
        *samples, facts = (admin.facts(Part) for _ in range(4))
        app = declaration_of(billing(cluster.bootstrap_servers))
        report = examine(Evidence(facts=facts, earlier=samples, app=app, drift=()))
    assert {finding.id: finding.message for finding in report.findings if finding.id not in NEVER_SILENT} == {}
    assert report.not_checked == ()
    assert set(report.checked) == all_checks().keys()


def subjects(report: Report, id: str) -> set[str]:
    return {finding.subject for finding in report.findings if finding.id == id}


@pytest.mark.complete
def test_a_partition_with_too_few_in_sync_and_a_broker_that_clients_cannot_reach() -> None:
    settings = {"broker.session.timeout.ms": 60_000, "peer.death.detection.enable": False}
    with EmbeddedCluster(brokers=3, config=settings) as cluster, Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics(
            {"orders": TopicSpec(partitions=1, replication_factor=3, config={"min.insync.replicas": 3})}
        )
        cluster.wait_for_isr("orders")
        lost = next(each for each in (3, 2) if each != cluster.leader("orders"))
        cluster.kill(lost)
        report = examine(Evidence(facts=admin.facts({Part.REACHED})), only=["AVL06"])
        assert subjects(report, "AVL06") == {f"broker {lost}"}, "it is dead, and still named to clients"
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": 1})
        producer.produce("orders", b"1")  # what has all records stays in sync
        assert producer.flush(30) == 0
        cluster.wait_for_isr("orders", isr={1, 2, 3} - {lost}, timeout_s=60)
        report = examine(Evidence(facts=admin.facts({Part.TOPICS, Part.TOPIC_SETTINGS})), only=["AVL02"])
        assert subjects(report, "AVL02") == {"orders-0"}


def test_the_last_in_sync_that_has_lost_its_log() -> None:
    with (
        EmbeddedCluster(brokers=3, config={"min.insync.replicas": 1}, log_dirs=2) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics({"orders": TopicSpec(partitions=1, replication_factor=2)})
        cluster.wait_for_isr("orders")
        (fact,) = (each.partitions[0] for each in admin.list_topics() if each.name == "orders")
        last, other = fact.replicas
        cluster.kill(other)
        cluster.wait_for_isr("orders", isr={last}, timeout_s=60)
        facts = admin.facts({Part.LOG_DIRS})
        (holder,) = (each for each in facts.brokers if each.id == last)
        (number,) = (
            number
            for number, log_dir in enumerate(holder.log_dirs or ())
            if any(replica.topic == "orders" for replica in log_dir.replicas)
        )
        cluster.disks.offline(last, dir=number)

        def found() -> set[str]:
            facts = admin.facts({Part.TOPICS, Part.LOG_DIRS})
            return subjects(examine(Evidence(facts=facts), only=["AVL04"]), "AVL04")

        wait_until(lambda: found() == {"orders-0"}, timeout_s=30)


def test_one_controller_of_three_nodes() -> None:
    with EmbeddedCluster(brokers=2) as cluster, Admin(cluster.bootstrap_servers) as admin:
        added = cluster.add_broker()

        def found() -> set[str]:
            facts = admin.facts({Part.QUORUM, Part.FEATURES})
            return subjects(examine(Evidence(facts=facts), only=["AVL07"]), "AVL07")

        wait_until(lambda: added in admin.facts(()).broker_ids, timeout_s=20)
        wait_until(lambda: found() == {"quorum"}, timeout_s=20)


def test_a_disk_that_is_nearly_full() -> None:
    with (
        EmbeddedCluster(brokers=1, log_dir_bytes=[1_000_000]) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics({"orders": TopicSpec(partitions=1)})
        before = admin.facts({Part.LOG_DIRS})
        assert subjects(examine(Evidence(facts=before), only=["STO02"]), "STO02") == set()
        kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
        kafka.produce("orders", [bytes(100_000)] * 9)
        facts = admin.facts({Part.LOG_DIRS})
        (path,) = (each.path for each in facts.brokers[0].log_dirs or ())
        assert subjects(examine(Evidence(facts=facts), only=["STO02"]), "STO02") == {f"broker 1: {path}"}
        at_once = Evidence(facts=facts, earlier=[before], limits=Limits(forecast_ms=0))
        (forecast,) = examine(at_once, only=["STO02"]).findings
        assert "and it is full in" in forecast.message


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, config={"group.initial.rebalance.delay.ms": 0}) as running:
        yield running


@pytest.fixture
def kafka(cluster: EmbeddedCluster) -> Kafka:
    return Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)


def test_a_service_that_does_not_fit_its_cluster(cluster: EmbeddedCluster, admin: Admin) -> None:
    admin.create_topics({"invoices": TopicSpec(partitions=1, config={"max.message.bytes": 1_000})})
    app = billing(cluster.bootstrap_servers, dead_letter_topic="orders.lost")
    app.create_topics = {"invoices": 1}
    report = examine(Evidence(facts=admin.facts(), app=declaration_of(app)), only=["MSG03", "DLQ03", "APP01"])
    assert subjects(report, "MSG03") == {"invoices"}
    assert subjects(report, "DLQ03") == {"orders.lost"}
    assert subjects(report, "APP01") == {"orders"}


def test_settings_that_keep_everything_compact_nothing_or_cost_much(admin: Admin, kafka: Kafka) -> None:
    compacted = {"cleanup.policy": "compact"}
    settings: dict[str, dict[str, object]] = {
        "STO07": {"retention.ms": -1},
        "STO08": {**compacted, "min.cleanable.dirty.ratio": 1.0},
        "STO09": {**compacted, "delete.retention.ms": 0},
        "STO10": {"segment.ms": 5_000},
        "STO11": {"flush.messages": 1},
        "STO12": {"compression.type": "zstd"},
        "BAL08": {},
    }
    admin.create_topics(
        {id.lower(): TopicSpec(partitions=2, replication_factor=1, config=config) for id, config in settings.items()}
    )
    kafka.produce("bal08", [b"1"] * 100, partition=1)
    report = examine(Evidence(facts=admin.facts(), limits=Limits(least_records=100)), only=list(settings))
    for id in settings:
        assert {each.split(" ")[0] for each in subjects(report, id)} == {id.lower()}, id


def test_a_broker_that_has_and_takes_most(admin: Admin, kafka: Kafka) -> None:
    admin.create_topics({"heavy": TopicSpec(partitions=9, replication_factor=1)})
    (heavy,) = (each for each in admin.list_topics() if each.name == "heavy")
    first = heavy.partitions[0].leader
    before = admin.facts()
    for each in heavy.partitions:
        if each.leader == first:
            kafka.produce("heavy", [bytes(50_000)] * 4, partition=each.partition)
    limits = Limits(least_bytes=1, least_rate=1.0)
    seen = Evidence(facts=admin.facts(), earlier=[before], limits=limits)
    report = examine(seen, only=["BAL01", "BAL05", "BAL06"])
    assert subjects(report, "BAL01") == subjects(report, "BAL05") == {f"broker {first}"}
    assert subjects(report, "BAL06") == set(), "it is more than one partition"

    kafka.produce("heavy", [bytes(50_000)] * 20, partition=0)
    report = examine(Evidence(facts=admin.facts(), limits=limits), only=["BAL06"])
    assert subjects(report, "BAL06") == {"heavy-0"}


def test_a_move_that_copies_nothing(cluster: EmbeddedCluster, admin: Admin, kafka: Kafka) -> None:
    admin.create_topics({"moved": TopicSpec(partitions=1, replication_factor=1)})
    kafka.produce("moved", [bytes(10_000)] * 5)
    source = cluster.wait_for_leader("moved")
    target = next(each for each in cluster.broker_ids if each not in (source, cluster.controller_id))
    cluster.links.cut(source, target)
    try:
        move = ReplicaMove(topic="moved", partition=0, old=(source,), new=(target,))
        admin.alter_replicas([move], wait=False)
        parts = {Part.MOVES, Part.LOG_DIRS}
        wait_until(lambda: bool(admin.facts(parts).moves), timeout_s=20)
        before, facts = admin.facts(parts), admin.facts(parts)
        seen = Evidence(facts=facts, earlier=[before], limits=Limits(stuck_move_ms=0))
        assert subjects(examine(seen, only=["MOV01"]), "MOV01") == {"moved-0"}
    finally:
        cluster.links.heal()
    wait_until(lambda: not admin.facts({Part.MOVES}).moves, timeout_s=60)


def test_groups_that_fall_behind_rebalance_and_stop_eagerly(
    cluster: EmbeddedCluster, admin: Admin, kafka: Kafka
) -> None:
    admin.create_topics({"read": TopicSpec(partitions=2, replication_factor=1)})
    kafka.produce("read", [b"1"] * 5, partition=0)
    admin.apply_reset(admin.plan_reset("slow", to="earliest", topics={"read": None}))
    samples: list[ClusterFacts] = []
    for _ in range(2):
        samples.append(admin.facts())
        with consuming(cluster, "restless", "read"):
            samples.append(admin.facts())
    kafka.produce("read", [b"1"] * 20, partition=0)
    limits = Limits(lag_growth=10, eager_members=0)
    report = examine(Evidence(facts=admin.facts(), earlier=samples, limits=limits), only=["GRP01", "GRP05"])
    assert subjects(report, "GRP01") == {"group slow"}
    assert subjects(report, "GRP05") == {"group restless"}
    report = examine(Evidence(facts=samples[-1], limits=limits), only=["GRP06"])
    assert subjects(report, "GRP06") == {"group restless"}


def test_a_group_that_is_committed_beyond_the_end(cluster: EmbeddedCluster, admin: Admin, kafka: Kafka) -> None:
    admin.create_topics({"made-again": TopicSpec(partitions=1, replication_factor=1)})
    kafka.produce("made-again", [b"1"] * 5)
    admin.apply_reset(admin.plan_reset("left-over", to="latest", topics={"made-again": None}))
    report = examine(Evidence(facts=admin.facts()), only=["GRP07"])
    assert subjects(report, "GRP07") == set()
    commit = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "left-over"})
    commit.commit(offsets=[confluent_kafka.TopicPartition("made-again", 0, 9)], asynchronous=False)
    commit.close()
    report = examine(Evidence(facts=admin.facts()), only=["GRP07"])
    assert subjects(report, "GRP07") == {"group left-over: made-again-0"}


@contextlib.contextmanager
def consuming(cluster: EmbeddedCluster, group: str, topic: str) -> Iterator[None]:
    """A member of a classic group with the range assignor, while the block lasts."""
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "partition.assignment.strategy": "range",
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])

    def is_assigned() -> bool:
        consumer.poll(0.05)
        return bool(consumer.assignment())

    wait_until(is_assigned, timeout_s=30)
    try:
        yield
    finally:
        consumer.close()
    cluster.wait_for_group(group, members=0)


def test_a_schedule_that_nobody_serves_and_that_would_lose_messages(admin: Admin, kafka: Kafka) -> None:
    good, bad = schedule_topic(DEFAULT_NAME), schedule_topic("by-hand")
    admin.create_topics(
        {
            good: TopicSpec(partitions=WHEEL.partitions, replication_factor=1, config=TOPIC_CONFIG),
            bad: TopicSpec(partitions=2, replication_factor=1, config=TOPIC_CONFIG | {"retention.ms": 3_600_000}),
        }
    )
    with Producer(kafka.bootstrap_servers) as producer:
        producer.send("later", b"in an hour", deliver_after=3_600).result()
    task = Definition(id="billing/report", version=(1,), topic="reports", cron="0 8 * * *")
    register_tasks(kafka.bootstrap_servers, DEFAULT_NAME, [task], settings={})
    facts = admin.facts({*EVERYTHING, Part.SCHEDULES})
    assert subjects(examine(Evidence(facts=facts), only=["SCH03"]), "SCH03") == {tasks_topic(DEFAULT_NAME)}
    report = examine(Evidence(facts=facts), only=["SCH01", "SCH02"])
    assert subjects(report, "SCH01") == {good}
    assert report.findings[-1].message.startswith(f"1 delayed messages wait in {good}")
    assert subjects(report, "SCH02") == {bad, f"{bad} retention.ms"}


def test_a_schedule_whose_messages_are_all_delivered_needs_no_scheduler(admin: Admin, kafka: Kafka) -> None:
    """Its topic has the records of what was cancelled, and of cancels, and none of them waits."""
    name = "emptied"
    topic = schedule_topic(name)
    admin.create_topics({topic: TopicSpec(partitions=WHEEL.partitions, replication_factor=1, config=TOPIC_CONFIG)})
    with Producer(kafka.bootstrap_servers, schedule=name) as producer:
        for number in range(5):
            producer.send("later", b"in an hour", deliver_after=3_600, schedule_id=f"id-{number}").result()
            producer.cancel(f"id-{number}").result()
    facts = admin.facts({Part.SCHEDULES})
    assert sum(each.records or 0 for each in facts.by_topic[topic].partitions) > 5
    assert facts.by_topic[topic].waiting == 0
    assert subjects(examine(Evidence(facts=facts), only=["SCH01"]), "SCH01").isdisjoint({topic})


def test_a_quota_that_lets_nothing_through(admin: Admin) -> None:
    before = admin.facts({Part.QUOTAS})
    assert before.quotas == ()
    entity = {"client-id": "re ports"}
    admin.alter_quotas(entity, {"producer_byte_rate": 5.0, "consumer_byte_rate": 1e6})
    try:
        facts = wait_until(lambda: (found := admin.facts({Part.QUOTAS})).quotas and found, timeout_s=30)
        (found,) = examine(Evidence(facts=facts), only=["QUO01"]).findings
        assert found.subject == "client-id re ports: producer_byte_rate"
        assert found.fix == "ottla quotas remove producer_byte_rate --client-id 're ports'"
        assert load_facts(dump_facts(facts)) == facts
    finally:
        admin.alter_quotas(entity, {"producer_byte_rate": None, "consumer_byte_rate": None})


def test_a_cluster_that_is_not_as_declared(admin: Admin) -> None:
    admin.create_topics({"drifting": TopicSpec(partitions=1, config={"retention.ms": 60_000})})
    declared = DeclaredCluster(topics={"drifting": DeclaredTopic(settings={"retention.ms": "60000"})})
    facts = admin.facts({Part.TOPICS})
    as_declared = Evidence(facts=facts, drift=admin.plan_declared(declared).changes)
    assert examine(as_declared, only=["DRF01"]).findings == ()
    admin.alter_topic_settings("drifting", {"retention.ms": 70_000})
    (found,) = examine(replace(as_declared, drift=admin.plan_declared(declared).changes), only=["DRF01"]).findings
    assert found.message == "drifting: topic setting retention.ms is 70000 and is declared as 60000"
    admin.delete_topics("drifting")
