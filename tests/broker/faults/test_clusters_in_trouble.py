"""Whole clusters with cut links, failing disks, killed and paused brokers: what clients meet, what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.explain import explain
from broker_embedded.cluster.facts import EmbeddedClusterFacts
from ottla.testing import wait_until
from ottla_wire.protocol import ApiKey, ErrorCode

STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)
GONE = {STORAGE_ERROR, int(ErrorCode.NOT_LEADER_OR_FOLLOWER)}


@pytest.fixture
def three() -> Iterator[EmbeddedCluster]:
    """A topic on three brokers, of which two have to be in sync."""
    with EmbeddedCluster(brokers=3, config={"replica.lag.time.max.ms": 500}) as running:
        running.create_topic("r", replication_factor=3, config={"min.insync.replicas": 2})
        running.wait_for_leader("r")
        yield running


@pytest.fixture
def ask(make_asker: Callable[[str], Any]) -> Callable[[EmbeddedCluster, int], Any]:
    """A connection to one broker of a cluster."""

    def connect(cluster: EmbeddedCluster, broker: int) -> Any:
        return make_asker(cluster.bootstrap_servers.split(",")[broker - 1])

    return connect


@pytest.fixture
def write(ask: Callable[..., Any]) -> Callable[..., None]:
    """Writes a value to r-0, wherever it is led, until that is acknowledged: a busy machine may move the leader."""

    def write(cluster: EmbeddedCluster, value: bytes, *, acks: int = -1) -> None:
        def is_acknowledged() -> bool:
            leader = cluster.leader("r")
            try:
                return bool(ask(cluster, leader).produce("r", {0: value}, acks=acks)[0].error_code == 0)
            except OSError:
                return False

        wait_until(is_acknowledged, 60, what="an acknowledgement")

    return write


@pytest.fixture
def read(ask: Callable[..., Any]) -> Callable[[EmbeddedCluster], bytes]:
    """What consumers see of r-0, as it is stored."""

    def read(cluster: EmbeddedCluster) -> bytes:
        return bytes(ask(cluster, cluster.wait_for_leader("r")).fetch("r", 0)[0].records or b"")

    return read


def others(cluster: EmbeddedCluster, broker: int) -> list[int]:
    return [node for node in cluster.broker_ids if node != broker]


# --- disks


def test_a_full_disk_refuses_produces_and_loses_nothing(cluster: EmbeddedCluster, asker: Any) -> None:
    for value in (b"a", b"b"):
        assert asker.produce("t", {0: value})[0].error_code == 0
    with cluster.disks.full(1) as full:
        refused = asker.produce("t", {0: b"c"})[0]
        assert refused.error_code == STORAGE_ERROR
        assert "free space" in refused.error_message
        assert full.hits
        assert asker.fetch("t", 0)[0].high_watermark == 2
        assert "disk of its leader 1 is full" in "".join(cluster.explain("t", 0))
    assert asker.produce("t", {0: b"d"})[0].base_offset == 2
    assert asker.end_offset("t") == 3


def test_partitions_of_a_log_directory_that_fails_are_offline_and_the_others_go_on(
    make_asker: Callable[[str], Any], tmp_path: Path
) -> None:
    with EmbeddedCluster(log_dirs=2, data_dir=tmp_path) as cluster:
        cluster.create_topic("t", partitions=4)
        asker = make_asker(cluster.bootstrap_servers)
        assert {each.error_code for each in asker.produce("t", dict.fromkeys(range(4), b"a")).values()} == {0}
        cluster.disks.offline(1, dir=0)
        answers = asker.produce("t", dict.fromkeys(range(4), b"b"))
        gone = sorted(at for at, answer in answers.items() if answer.error_code == STORAGE_ERROR)
        alive = sorted(at for at, answer in answers.items() if answer.error_code == 0)
        assert (len(gone), len(alive)) == (2, 2)
        fetched = asker.fetch("t", 0, 1, 2, 3)
        assert {fetched[at].error_code for at in gone} <= GONE  # the controller may have heard of it already
        assert {at: fetched[at].high_watermark for at in alive} == dict.fromkeys(alive, 2)
        assert "is offline" in "".join(cluster.explain("t", gone[0]))
        described = asker.call(ApiKey.DESCRIBE_LOG_DIRS, 3, {"topics": None}).results
        assert sorted(each.error_code for each in described) == [0, STORAGE_ERROR]

        cluster.disks.heal()
        cluster.stop_broker(1)
        cluster.start_broker(1)
        asker = make_asker(cluster.bootstrap_servers)
        for partition in range(4):
            cluster.wait_for_leader("t", partition)
        ends = {at: asker.end_offset("t", at) for at in range(4)}
        assert ends == {**dict.fromkeys(gone, 1), **dict.fromkeys(alive, 2)}


def test_a_long_poll_is_told_when_the_disk_below_it_fails(
    cluster: EmbeddedCluster, connect: Callable[..., Any]
) -> None:
    reader, writer = connect("reader"), connect("writer")
    wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}]
    body = {
        "max_wait_ms": 3_600_000,
        "min_bytes": 1,
        "max_bytes": 1_000,
        "topics": [{"topic": "t", "partitions": wanted}],
    }
    reader.send(ApiKey.FETCH, 11, body)
    cluster.disks.offline(1)
    assert writer.produce("t", {0: b"a"})[0].error_code == STORAGE_ERROR
    reader.socket.settimeout(30)
    (answer,) = reader.receive().responses[0].partitions
    assert answer.error_code in GONE


def test_requests_wait_for_a_slow_disk_and_the_other_brokers_do_not(cluster: EmbeddedCluster, asker: Any) -> None:
    with cluster.disks.slow(1, delay_ms=20) as slow:
        assert asker.produce("t", {0: b"a"})[0].error_code == 0
        assert asker.fetch("t", 0)[0].high_watermark == 1
        assert slow.hits >= 2
    hits = slow.hits
    assert asker.produce("t", {0: b"b"})[0].error_code == 0
    assert slow.hits == hits


def test_a_power_cut_at_the_leader_loses_nothing_that_was_acknowledged_by_all(
    three: EmbeddedCluster, write: Callable[..., None], read: Callable[..., bytes]
) -> None:
    three.wait_for_isr("r")
    values = [b"value-%02d" % number for number in range(20)]
    for value in values:
        write(three, value)
    leader = three.wait_for_leader("r")
    three.kill(leader, lose_unsynced=True)
    wait_until(lambda: three.leader("r") not in (-1, leader), 30, what="another leader")
    wait_until(lambda: all(value in read(three) for value in values), 30, what="all that was acknowledged")
    three.start_broker(leader)
    three.wait_for_isr("r")
    wait_until(lambda: all(value in read(three) for value in values), 30, what="all that was acknowledged")


# --- words


def test_an_open_transaction_is_explained_with_the_name_of_who_has_it_open(cluster: EmbeddedCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "billing"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"a", partition=0)
    assert producer.flush(30) == 0
    assert "(billing) has had a transaction open" in "\n".join(cluster.explain("t"))
    producer.commit_transaction(30)
    wait_until(lambda: "billing" not in "\n".join(cluster.explain("t")), 30, what="the end of the transaction")


def test_more_in_sync_replicas_wanted_than_there_are_refuse_nothing_and_are_no_cause(
    cluster: EmbeddedCluster, asker: Any
) -> None:
    cluster.create_topic("strict", config={"min.insync.replicas": 3})
    assert asker.produce("strict", {0: b"a"})[0].error_code == 0
    assert cluster.facts().partitions["strict", 0].min_insync_replicas == 1
    assert "Nothing is in its way" in cluster.explain("strict")[1]


# --- links


def test_a_follower_that_is_cut_off_leaves_the_isr_and_returns_when_the_link_is_whole(
    three: EmbeddedCluster, write: Callable[..., None]
) -> None:
    three.wait_for_isr("r")
    leader = three.wait_for_leader("r")
    controller = three.controller_id
    cut_off = next(node for node in others(three, leader) if node != controller)
    three.links.cut(cut_off, leader)
    write(three, b"a", acks=1)

    def without_it() -> EmbeddedClusterFacts | None:
        facts = three.facts()
        return facts if cut_off not in facts.partitions["r", 0].isr or three.leader("r") != leader else None

    facts = wait_until(without_it, 30, what="another ISR")
    if facts.partitions["r", 0].leader == leader:
        assert f"the link from node {cut_off} to node {leader} is cut" in "\n".join(explain(facts, "r", 0))
    three.links.heal()
    three.wait_for_isr("r")


def test_a_paused_follower_holds_the_high_watermark_back_and_that_is_explained(
    ask: Callable[..., Any],
) -> None:
    """With a long lag time and session nothing else happens in between."""
    config = {"replica.lag.time.max.ms": 600_000, "broker.session.timeout.ms": 600_000}
    with EmbeddedCluster(brokers=3, config=config) as cluster:
        cluster.create_topic("r", replication_factor=3)
        leader = cluster.wait_for_leader("r")
        cluster.wait_for_isr("r")
        follower = others(cluster, leader)[-1]
        asker = ask(cluster, leader)
        cluster.pause(follower)
        assert asker.produce("r", {0: b"a"}, acks=1)[0].error_code == 0
        text = "\n".join(cluster.explain("r"))
        assert f"The high watermark waits at 0 for in-sync replica {follower}" in text
        assert f"{follower} is paused" in text
        cluster.resume(follower)
        wait_until(lambda: asker.fetch("r", 0)[0].high_watermark == 1, 30)


def test_a_replica_that_is_missing_is_explained_with_the_broker_that_was_killed(
    three: EmbeddedCluster, write: Callable[..., None]
) -> None:
    three.wait_for_isr("r")
    gone = others(three, three.wait_for_leader("r"))[0]
    three.kill(gone)
    three.wait_for_isr("r", isr=set(three.broker_ids) - {gone})
    assert f"Replica {gone} is not in sync" in "\n".join(three.explain("r"))
    assert f"{gone} is killed" in "\n".join(three.explain("r"))
    write(three, b"a")
    three.start_broker(gone)
    three.wait_for_isr("r")


# --- faults between brokers


def test_a_follower_that_is_refused_its_fetches_falls_out_of_sync(
    three: EmbeddedCluster, write: Callable[..., None]
) -> None:
    three.wait_for_isr("r")
    leader = three.wait_for_leader("r")
    follower = others(three, leader)[0]
    with three.faults.add(
        api="FETCH",
        topic="r",
        partition=0,
        source="brokers",
        when=lambda request: follower in (request.replica_id, getattr(request.replica_state, "replica_id", -1)),
        error="NOT_LEADER_OR_FOLLOWER",
    ) as fault:
        fault.wait(timeout_s=30)
        wait_until(
            lambda: three.facts().partitions["r", 0].copies[follower].fetch_error, 30, what="a fetch that failed"
        )
        write(three, b"a", acks=1)
        wait_until(lambda: follower not in three.isr("r") or three.leader("r") != leader, 30)
        if follower not in three.isr("r"):
            assert "its fetch ended with NOT_LEADER_OR_FOLLOWER" in "\n".join(three.explain("r"))
    three.wait_for_isr("r")
    wait_until(
        lambda: not three.facts().partitions["r", 0].copies[follower].fetch_error, 30, what="a fetch that went well"
    )


def test_faults_outlive_a_restart_of_their_broker(cluster: EmbeddedCluster, make_asker: Callable[[str], Any]) -> None:
    fault = cluster.faults.add(api="PRODUCE", topic="t", partition=0, error="REQUEST_TIMED_OUT", count=1)
    hold = cluster.faults.add(api="PRODUCE", topic="t", partition=1, hold=True)
    doomed = make_asker(cluster.bootstrap_servers)
    doomed.send_produce("t", {1: b"dies with its broker"})
    hold.wait(timeout_s=30)
    cluster.kill(1)
    hold.remove()
    cluster.start_broker(1)
    asker = make_asker(cluster.bootstrap_servers)
    cluster.wait_for_leader("t", 0)
    cluster.wait_for_leader("t", 1)
    assert asker.produce("t", {0: b"a"})[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert fault.hits == 1
    assert asker.end_offset("t", 1) == 0
