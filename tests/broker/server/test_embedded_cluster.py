"""`EmbeddedCluster`: start, stop, restart, from any thread."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.common.errors import BrokerError, StartupError
from ottla_wire.protocol import ApiKey, ErrorCode

MakeBatch = Callable[..., bytes]
Connect = Callable[[str], Any]
NEW_PRODUCER = {"transactional_id": None, "transaction_timeout_ms": 1}


def test_a_restart_keeps_ports_topics_settings_and_data(
    tmp_path: Path, make_wire_client: Connect, make_batch: MakeBatch
) -> None:
    cluster = EmbeddedCluster(data_dir=tmp_path)
    cluster.start()
    before = cluster.bootstrap_servers
    cluster.create_topic("t", partitions=2, config={"max.message.bytes": 5000})
    cluster.create_topic("gone")
    client = make_wire_client(before)
    client.produce("t", make_batch(b"a", b"b"), partition=1)
    ids = {topic.name: topic.topic_id for topic in client.call(ApiKey.METADATA, 12, {"topics": None}).topics}
    cluster_id = client.call(ApiKey.METADATA, 12, {"topics": []}).cluster_id
    client.call(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["gone"], "timeout_ms": 1})
    producer_id = client.call(
        ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 1}
    ).producer_id
    cluster.stop()

    cluster.start()
    assert cluster.bootstrap_servers == before
    client = make_wire_client(before)
    metadata = client.call(ApiKey.METADATA, 12, {"topics": None})
    assert [(topic.name, topic.topic_id) for topic in metadata.topics] == [("t", ids["t"])]
    assert metadata.cluster_id == cluster_id
    assert client.fetch("t", partition=1).high_watermark == 2
    assert client.produce("t", make_batch(b"x" * 6000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert client.produce("t", make_batch(b"c"), partition=1).base_offset == 2
    assert client.call(ApiKey.INIT_PRODUCER_ID, 4, NEW_PRODUCER).producer_id > producer_id
    cluster.stop()


def test_a_restart_raises_the_leader_epoch_so_that_readers_notice_a_lost_tail(
    tmp_path: Path, make_wire_client: Connect, make_batch: MakeBatch
) -> None:
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("t")
        make_wire_client(cluster.bootstrap_servers).produce("t", make_batch(b"a"))
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        client = make_wire_client(cluster.bootstrap_servers)
        (topic,) = client.call(ApiKey.METADATA, 9, {"topics": [{"name": "t"}]}).topics
        epoch = topic.partitions[0].leader_epoch
        assert epoch > 0
        client.produce("t", make_batch(b"b"))
        fenced = client.fetch("t", current_leader_epoch=0)
        assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
        wanted = {"partition": 0, "current_leader_epoch": epoch, "leader_epoch": 0}
        body = {"topics": [{"topic": "t", "partitions": [wanted]}]}
        end = client.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, body).topics[0].partitions[0]
        assert (end.leader_epoch, end.end_offset) == (0, 1)
        diverged = client.fetch("t", 5, version=12, last_fetched_epoch=0)
        assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (0, 1)


def test_brokers_that_are_gone_after_a_restart_lead_nothing(tmp_path: Path, make_wire_client: Connect) -> None:
    with EmbeddedCluster(brokers=3, data_dir=tmp_path) as cluster:
        cluster.create_topic("t", partitions=3)
    with EmbeddedCluster(brokers=1, data_dir=tmp_path) as cluster:
        client = make_wire_client(cluster.bootstrap_servers)
        answer = client.call(ApiKey.METADATA, 9, {"topics": [{"name": "t"}]})
        leaders = {each.partition_index: (each.leader_id, each.error_code) for each in answer.topics[0].partitions}
        assert [broker.node_id for broker in answer.brokers] == [1]
        assert sorted(leaders.values()) == [(-1, 5), (-1, 5), (1, 0)]
    with EmbeddedCluster(brokers=3, data_dir=tmp_path) as cluster:
        client = make_wire_client(cluster.bootstrap_servers)
        answer = client.call(ApiKey.METADATA, 9, {"topics": [{"name": "t"}]})
        assert sorted(each.leader_id for each in answer.topics[0].partitions) == [1, 2, 3]


def test_a_produce_to_a_follower_names_the_leader(make_wire_client: Connect, make_batch: MakeBatch) -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("t", partitions=2)
        client = make_wire_client(cluster.bootstrap_servers)
        partitions = client.call(ApiKey.METADATA, 9, {"topics": [{"name": "t"}]}).topics[0].partitions
        elsewhere = next(each for each in partitions if each.leader_id == 2)
        refused = client.produce("t", make_batch(b"v"), partition=elsewhere.partition_index, version=10)
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused.current_leader.leader_id == 2
        fetched = client.fetch("t", partition=elsewhere.partition_index, version=12)
        assert fetched.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert fetched.current_leader.leader_id == 2


def test_a_temporary_directory_is_removed_at_the_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t")
        (made,) = tmp_path.iterdir()
        assert (made / "broker-1" / "t-0" / f"{0:020d}.log").exists()
    assert list(tmp_path.iterdir()) == []


def test_topics_are_made_from_many_threads_at_once(cluster: EmbeddedCluster, client: Any) -> None:
    threads = [threading.Thread(target=cluster.create_topic, args=(f"t{number}",)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(client.call(ApiKey.METADATA, 9, {"topics": None}).topics) == 20


def test_a_port_in_use_ends_the_start_and_leaves_nothing_running() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        cluster = EmbeddedCluster(port=taken.getsockname()[1])
        threads = threading.active_count()
        with pytest.raises(StartupError, match="is in use"):
            cluster.start()
        assert threading.active_count() == threads
    with cluster:
        cluster.create_topic("t")


def test_a_wrong_setting_is_refused_when_the_cluster_is_made() -> None:
    with pytest.raises(StartupError, match=r"num\.partitions: found 'x', wanted a whole number"):
        EmbeddedCluster(config={"num.partitions": "x"})


def test_a_cluster_that_does_not_run_says_so() -> None:
    with pytest.raises(RuntimeError, match="not running"):
        EmbeddedCluster().create_topic("t")
    EmbeddedCluster().stop()


def test_a_replication_factor_above_the_brokers_is_refused(cluster: EmbeddedCluster) -> None:
    with pytest.raises(BrokerError, match="replication factor of 3 cannot be reached because only 1 broker"):
        cluster.create_topic("t", replication_factor=3)


def test_the_switch_interval_is_lowered_while_a_cluster_runs_and_put_back() -> None:
    before = sys.getswitchinterval()
    with EmbeddedCluster(), EmbeddedCluster():
        assert sys.getswitchinterval() < 0.001
    assert sys.getswitchinterval() == before


def test_a_group_is_waited_for_until_it_is_stable_and_until_it_is_empty() -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t")
        with pytest.raises(TimeoutError, match="group g: found no such group after 10 ms, wanted Stable"):
            cluster.wait_for_group("g", members=1, timeout_s=0.01)
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
        consumer.subscribe(["t"])
        cluster.wait_for_group("g", members=1)
        while not consumer.assignment():  # librdkafka may hang if it closes with an assignment it has not delivered
            consumer.poll(0.1)
        consumer.close()
        cluster.wait_for_group("g", members=0)
