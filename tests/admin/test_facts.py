"""Facts of a cluster: read from brokers, saved, loaded, refused where they are none, and rates of two samples."""

from __future__ import annotations

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, ClusterFacts, Part, TopicSpec, dump_facts, load_facts, rates_between, save_facts
from ottla.admin import read_facts_file as read_file
from ottla.admin.facts.cluster_facts import BrokerInfo, LogDirInfo, PartitionInfo, ReplicaInfo, TopicInfo
from ottla.admin.facts.facts_reader import expiry_horizon_ms, is_dead_letter_name
from ottla.errors import InputError
from ottla.records import TopicPartition
from ottla.testing import Kafka

HOUR_MS = 3_600_000


def produce(cluster: EmbeddedCluster, topic: str, count: int, **options: Any) -> None:
    Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster).produce(topic, [b"x" * 100] * count, **options)


def test_everything_of_a_cluster_is_read_and_survives_being_saved(
    admin: Admin, cluster: EmbeddedCluster, name: str, tmp_path: Path
) -> None:
    admin.create_topics({name: TopicSpec(partitions=1, replication_factor=3)})
    produce(cluster, name, 5, partition=0, timestamp_ms=1_700_000_000_000)
    facts = admin.facts()

    assert facts.not_read == ()
    assert facts.parts == tuple(sorted(set(Part) - {Part.COMMIT_TIMES, Part.SCHEDULES})), "which alone read records"
    assert facts.broker_ids == {1, 2, 3}
    assert all(broker.answers_as == facts.cluster_id for broker in facts.brokers)
    assert facts.brokers[0].settings["auto.create.topics.enable"].value == "true"
    assert all(log_dir.total_bytes for broker in facts.brokers for log_dir in broker.log_dirs or ())
    assert facts.quorum is not None
    assert len(facts.quorum.voters) == 3
    assert facts.finalized_features["metadata.version"] >= 7
    assert facts.acls == ()
    partition = facts.by_partition[TopicPartition(name, 0)]
    assert (partition.log_start, partition.high_watermark, partition.last_stable_offset) == (0, 5, 5)
    assert partition.newest_timestamp_ms == 1_700_000_000_000
    assert facts.topic_bytes(name) == 3 * facts.partition_bytes[TopicPartition(name, 0)] > 0

    path = tmp_path / "facts.json"
    save_facts(facts, path)
    assert read_file(path) == facts
    assert [each.name for each in tmp_path.iterdir()] == ["facts.json"]


def test_a_broker_that_is_gone_costs_its_part_and_is_named() -> None:
    with EmbeddedCluster(brokers=3) as cluster, Admin(cluster.bootstrap_servers, timeout_s=5) as admin:
        admin.create_topics({"orders": TopicSpec(partitions=3, replication_factor=3)})
        cluster.kill(3)
        facts = admin.facts({Part.OFFSETS, Part.LOG_DIRS, Part.REACHED})
        unread = {each.subject for each in facts.not_read if each.part is Part.LOG_DIRS}
        assert unread == {"broker 3"}
        assert [broker.id for broker in facts.brokers if broker.log_dirs is not None] == [1, 2]


def test_brokers_are_asked_side_by_side(admin: Admin, cluster: EmbeddedCluster) -> None:
    """Each waits until all three were asked: asked in turn, the first would wait for ever."""
    with ThreadPoolExecutor(1) as pool, cluster.faults.add(api="DESCRIBE_LOG_DIRS", hold=True) as held:
        running = pool.submit(admin.facts, {Part.LOG_DIRS})
        held.wait(hits=3, timeout_s=30)
        held.release()
        facts = running.result(30)
    assert all(broker.log_dirs for broker in facts.brokers)


def test_what_is_interrupted_leaves_no_answer_to_the_next_question(cluster: EmbeddedCluster) -> None:
    """Ctrl-C between a question and its answer: the answer would be taken for that to the next question."""
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    with Admin(cluster.bootstrap_servers.partition(",")[0], timeout_s=20) as admin, ThreadPoolExecutor(1) as pool:
        before = admin.list_topics(internal=True)
        with cluster.faults.add(api="METADATA", hold=True) as held:

            def interrupt() -> None:
                held.wait(hits=1, timeout_s=30)
                signal.pthread_kill(main_thread, signal.SIGINT)

            interrupted = pool.submit(interrupt)
            with pytest.raises(KeyboardInterrupt):
                admin.list_topics()
            interrupted.result(30)
        assert admin.list_topics(internal=True) == before


def a_cluster(*, at_ms: int = 0, cluster_id: str = "one", **partition: Any) -> ClusterFacts:
    given = {"partition": 0, "leader": 1, "leader_epoch": 0, "replicas": (1,), "in_sync": (1,)}
    size = partition.pop("size", 0)
    topic_id = partition.pop("topic_id", "a")
    fact = PartitionInfo(**{**given, **partition})
    replica = ReplicaInfo(topic="orders", partition=0, bytes=size, offset_lag=0)
    broker = BrokerInfo(id=1, host="a", port=1, log_dirs=(LogDirInfo(path="/d", replicas=(replica,)),))
    topic = TopicInfo(name="orders", topic_id=topic_id, is_internal=False, partitions=(fact,))
    return ClusterFacts(
        at_ms=at_ms, cluster_id=cluster_id, controller_id=1, parts=(Part.TOPICS,), brokers=(broker,), topics=(topic,)
    )


PLACE = TopicPartition("orders", 0)


class TestRates:
    def test_bytes_are_what_the_log_grew_by(self) -> None:
        before = a_cluster(log_start=0, high_watermark=10, size=1_000)
        after = a_cluster(at_ms=10_000, log_start=0, high_watermark=60, size=6_000)
        rates = rates_between(before, after)
        assert rates.records_in == {PLACE: 5.0}
        assert rates.bytes_in == {PLACE: 500.0}
        assert rates.leader_bytes_in(after) == {1: 500.0}

    def test_where_retention_took_some_they_are_offsets_at_their_average_size(self) -> None:
        before = a_cluster(log_start=0, high_watermark=100, size=10_000)
        after = a_cluster(at_ms=1_000, log_start=90, high_watermark=110, size=2_000)
        assert rates_between(before, after).bytes_in == {PLACE: 10 * 2_000 / 20}

    @pytest.mark.parametrize(
        "after",
        [
            {"log_start": 0, "high_watermark": 5},  # an unclean election cut it off
            {"log_start": 0, "high_watermark": 20, "topic_id": "b"},  # another topic of the same name
            {"log_start": None, "high_watermark": None},
        ],
    )
    def test_what_cannot_be_told_is_left_out(self, after: dict[str, Any]) -> None:
        rates = rates_between(a_cluster(log_start=0, high_watermark=10), a_cluster(at_ms=1_000, **after))
        assert (rates.records_in, rates.bytes_in) == ({}, {})

    def test_two_clusters_and_two_samples_in_the_wrong_order_are_refused(self) -> None:
        with pytest.raises(InputError, match="one cluster"):
            rates_between(a_cluster(), a_cluster(at_ms=5, cluster_id="two"))
        with pytest.raises(InputError, match="the later one"):
            rates_between(a_cluster(at_ms=5), a_cluster(at_ms=5))


class TestHostileFiles:
    GOOD = json.loads(dump_facts(a_cluster(size=7)))

    @pytest.mark.parametrize(
        ("change", "place"),
        [
            ({"brokers": [{"id": "1"}]}, r"\$\.brokers\[0\]\.id"),
            ({"brokers": None}, r"\$\.brokers"),
            ({"parts": ["everything"]}, r"\$\.parts\[0\]"),
            ({"topics": [{"name": 5}]}, r"\$\.topics\[0\]\.name"),
            ({"schema": "ottla.facts/2"}, "ottla.facts/2"),
            ({"at_ms": 1.5}, r"\$\.at_ms"),
            ({"at_ms": 10**30}, r"\$\.at_ms"),
        ],
    )
    def test_what_is_no_facts_is_refused_with_the_place(self, change: dict[str, Any], place: str) -> None:
        with pytest.raises(InputError, match=place):
            load_facts(json.dumps({**self.GOOD, **change}).encode())

    def test_a_field_that_is_missing_is_named(self) -> None:
        with pytest.raises(InputError, match="cluster_id"):
            load_facts(json.dumps({k: v for k, v in self.GOOD.items() if k != "cluster_id"}).encode())

    @pytest.mark.parametrize(
        "data", [b"", b"\xff\xfe", b"{", b"[]", b'"ottla.facts/1"', b"[" * 100_000, b'{"schema":' * 50_000]
    )
    def test_what_is_no_document_is_refused(self, data: bytes) -> None:
        with pytest.raises(InputError):
            load_facts(data)

    def test_a_field_that_is_not_known_yet_is_passed_over(self) -> None:
        assert load_facts(json.dumps({**self.GOOD, "weather": [1]}).encode()) == a_cluster(size=7)

    def test_a_file_that_is_not_there_is_an_input_error(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="No such file"):
            read_file(tmp_path / "missing.json")
        with pytest.raises(InputError, match="missing"):
            save_facts(a_cluster(), tmp_path / "missing" / "facts.json")

    @given(st.data())
    def test_no_bytes_raise_anything_else(self, data: st.DataObject) -> None:
        good = bytearray(dump_facts(a_cluster(size=7)))
        for _ in range(data.draw(st.integers(1, 4))):
            good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
        try:
            load_facts(bytes(good))
        except InputError:
            pass


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders.dead-letters", True),
        ("orders.dlq", True),
        ("orders-dlt", True),
        ("dead_letter_orders", True),
        ("orders", False),
        ("deadline-letters", False),
        ("middlquay", False),
    ],
)
def test_topics_named_as_dead_letter_topics_are(name: str, expected: bool) -> None:
    assert is_dead_letter_name(name) is expected


def test_a_record_is_near_its_end_within_a_quarter_of_what_it_is_kept() -> None:
    assert expiry_horizon_ms(7 * 24 * HOUR_MS, HOUR_MS) == HOUR_MS
    assert expiry_horizon_ms(HOUR_MS, HOUR_MS) == HOUR_MS // 4


def test_facts_say_what_follows_from_them() -> None:
    facts = a_cluster(size=7, log_start=2, high_watermark=9)
    assert facts.by_partition[PLACE].records == 7
    assert facts.topic_bytes("orders") == 7
    assert facts.topic_bytes("payments") == 0
    assert replace(facts, brokers=()).topic_bytes("orders") is None
