"""Named scenarios: what is lost and what is not when brokers die, come back, or come back different."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.common.errors import BrokerError, StartupError
from broker_embedded.controller.change_queue import not_controller
from broker_embedded.controller.controller import Controller
from ottla_wire.protocol import ApiKey, ErrorCode

REPLICATED = {"replication_factor": 3, "config": {"min.insync.replicas": 2}}


def test_the_leader_dies_a_new_one_serves_the_old_returns_follows_and_leads_again(
    cluster: EmbeddedCluster, client: Any, wire: Any
) -> None:
    cluster.create_topic("t", **REPLICATED)
    client.send("t", "a", "b")
    first = cluster.leader("t")

    cluster.kill(first, lose_unsynced=True)
    client.send("t", "c")
    second = cluster.wait_for_leader("t")
    assert second != first

    cluster.start_broker(first)
    cluster.wait_for_isr("t")
    assert cluster.leader("t") == second, "it follows until somebody wants it to lead"
    body = {"election_type": 0, "topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout_ms": 20_000}
    assert wire(cluster, second).call(ApiKey.ELECT_LEADERS, 2, body).error_code == 0
    cluster.wait_for_leader("t", leader=first)
    client.send("t", "d")
    assert client.read("t", 4) == ["a", "b", "c", "d"]


@pytest.mark.complete
def test_every_broker_may_die_one_after_the_other_and_nothing_acknowledged_is_lost(
    cluster: EmbeddedCluster, client: Any
) -> None:
    cluster.create_topic("t", **REPLICATED)
    sent = []
    for round_number, broker in enumerate([1, 2, 3, 1]):
        client.send("t", f"before-{round_number}")
        cluster.kill(broker, lose_unsynced=True)
        client.send("t", f"after-{round_number}")
        cluster.start_broker(broker)
        cluster.wait_for_isr("t")
        sent += [f"before-{round_number}", f"after-{round_number}"]
    assert client.read("t", len(sent)) == sent


def test_a_clean_stop_moves_the_leaders_first(cluster: EmbeddedCluster, client: Any) -> None:
    cluster.create_topic("t", partitions=6, **REPLICATED)
    cluster.stop_broker(2)
    assert {cluster.leader("t", number) for number in range(6)} <= {1, 3}
    client.send("t", "a")
    cluster.start_broker(2)
    cluster.wait_for_isr("t")


def test_a_record_that_only_the_leader_had_is_gone_with_it_and_one_for_all_is_not(
    make_cluster: Callable[..., EmbeddedCluster], make_client: Any
) -> None:
    cluster = make_cluster(config={"replica.lag.time.max.ms": 60_000})
    client = make_client(cluster)
    cluster.create_topic("t", replication_factor=3)
    client.send("t", "for all")
    leader = cluster.leader("t")
    for broker in (1, 2, 3):
        if broker != leader:
            cluster.links.cut(broker, leader, one_way=True)  # nobody can fetch any more
    client.send("t", "for the leader alone", acks=1, **{"enable.idempotence": False})
    cluster.kill(leader)
    cluster.links.heal()
    cluster.wait_for_leader("t")
    cluster.start_broker(leader)
    cluster.wait_for_isr("t")
    client.send("t", "later")
    assert client.read("t", 2) == ["for all", "later"]


def test_without_enough_in_sync_replicas_acks_all_is_refused_and_acks_1_is_not(
    make_cluster: Callable[..., EmbeddedCluster], make_client: Any, make_records: Any, wire: Any
) -> None:
    # The leader is to stay the leader, also where the machine stands still for a second.
    cluster = make_cluster(config={"replica.lag.time.max.ms": 1_000, "broker.session.timeout.ms": 60_000})
    client = make_client(cluster)
    cluster.create_topic("t", **REPLICATED)
    client.send("t", "three have it")
    leader = cluster.leader("t")
    followers = {1, 2, 3} - {leader}
    for follower in followers:
        cluster.links.cut(follower, leader, one_way=True)  # they cannot fetch; the leader can still ask the controller
    connection = wire(cluster, leader)
    # Who lacks nothing is in sync, however long ago it fetched: something has to be lacking.
    assert connection.produce("t", make_records(b"one has it"), acks=1).error_code == 0
    cluster.wait_for_isr("t", isr={leader})

    refused = connection.produce("t", make_records(b"refused"))
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert any("min.insync.replicas" in sentence for sentence in cluster.explain("t"))
    assert connection.produce("t", make_records(b"one more"), acks=1).error_code == 0

    cluster.links.heal()
    cluster.wait_for_isr("t")
    client.send("t", "all have it")
    assert client.read("t", 4) == ["three have it", "one has it", "one more", "all have it"]


@pytest.mark.complete
def test_with_clean_elections_nobody_leads_until_the_last_in_sync_replica_is_back(
    cluster: EmbeddedCluster, client: Any, until: Any
) -> None:
    cluster.create_topic("t", replication_factor=2)
    leader = cluster.leader("t")
    state = cluster.facts().partitions["t", 0]
    follower = next(broker for broker in state.replicas if broker != leader)
    client.send("t", "a")
    cluster.kill(follower)
    cluster.wait_for_isr("t", isr={leader})
    client.send("t", "only the leader has it")
    cluster.kill(leader)
    cluster.start_broker(follower)
    until(lambda: cluster.leader("t") == -1)
    assert any("in sync" in sentence for sentence in cluster.explain("t"))
    cluster.start_broker(leader)
    cluster.wait_for_leader("t", leader=leader)
    cluster.wait_for_isr("t")
    assert client.read("t", 2) == ["a", "only the leader has it"]


@pytest.mark.complete
def test_an_unclean_election_serves_again_and_loses_what_was_said(cluster: EmbeddedCluster, client: Any) -> None:
    cluster.create_topic("t", replication_factor=2, config={"unclean.leader.election.enable": "true"})
    leader = cluster.leader("t")
    follower = next(each for each in cluster.facts().partitions["t", 0].replicas if each != leader)
    client.send("t", "a")
    cluster.kill(follower)
    cluster.wait_for_isr("t", isr={leader})
    client.send("t", "lost")
    cluster.kill(leader)
    cluster.start_broker(follower)
    cluster.wait_for_leader("t", leader=follower)
    client.send("t", "b", **{"enable.idempotence": False})
    cluster.start_broker(leader)
    cluster.wait_for_isr("t")
    assert client.read("t", 2) == ["a", "b"]


def test_a_broker_with_an_empty_log_directory_never_makes_the_others_delete(
    make_cluster: Callable[..., EmbeddedCluster], make_client: Any, tmp_path: Path
) -> None:
    """KAFKA-3410: it was the last in-sync replica, and comes back with nothing."""
    cluster = make_cluster(data_dir=tmp_path)
    client = make_client(cluster)
    cluster.create_topic("t", replication_factor=2)
    leader = cluster.leader("t")
    follower = next(each for each in cluster.facts().partitions["t", 0].replicas if each != leader)
    client.send("t", "a", "b")
    cluster.stop_broker(follower)
    cluster.wait_for_isr("t", isr={leader})
    cluster.kill(leader)
    shutil.rmtree(tmp_path / f"broker-{leader}")
    cluster.start_broker(follower)
    cluster.start_broker(leader)
    held = cluster.facts().partitions["t", 0].copies[follower]
    assert (held.log_start_offset, held.log_end_offset) == (0, 2), "what the follower had it has still"
    for broker in (leader, follower):
        assert broker in cluster.running_broker_ids


def test_a_log_directory_of_another_broker_is_refused_by_name(tmp_path: Path) -> None:
    with EmbeddedCluster(3, data_dir=tmp_path):
        pass
    shutil.rmtree(tmp_path / "broker-3")
    (tmp_path / "broker-2").rename(tmp_path / "broker-3")
    with pytest.raises(StartupError, match=r"broker-3.*found 2.*|node\.id"):
        EmbeddedCluster(3, data_dir=tmp_path).start()


def test_a_new_broker_under_a_new_id_gets_nothing_until_partitions_are_moved_to_it(
    cluster: EmbeddedCluster, client: Any, wire: Any
) -> None:
    cluster.create_topic("t", replication_factor=3)
    client.send("t", "a")
    cluster.kill(3)
    cluster.wait_for_isr("t", isr={1, 2})
    assert cluster.add_broker() == 4
    assert cluster.facts().partitions["t", 0].replicas.count(4) == 0
    assert any("3" in sentence for sentence in cluster.explain("t"))

    wanted = {"name": "t", "partitions": [{"partition_index": 0, "replicas": [1, 2, 4]}]}
    body = {"timeout_ms": 20_000, "allow_replication_factor_change": True, "topics": [wanted]}
    answer = wire(cluster, cluster.leader("t")).call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, body)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
    cluster.wait_for_isr("t", isr={1, 2, 4})
    assert set(cluster.facts().partitions["t", 0].replicas) == {1, 2, 4}
    assert cluster.facts().partitions["t", 0].copies[4].log_end_offset == 1


@pytest.mark.complete
def test_the_controller_dies_and_another_decides(cluster: EmbeddedCluster, client: Any, until: Any) -> None:
    first = cluster.controller_id
    cluster.kill(first)
    until(lambda: cluster.controller_id not in (first, -1))
    cluster.create_topic("t", replication_factor=2)
    client.send("t", "a")
    cluster.start_broker(first)
    assert client.read("t", 1) == ["a"]


@pytest.mark.complete
def test_a_broker_that_is_cut_off_falls_out_of_sync_and_comes_back(
    make_cluster: Callable[..., EmbeddedCluster], make_client: Any
) -> None:
    cluster = make_cluster(config={"replica.lag.time.max.ms": 1_000})
    client = make_client(cluster)
    cluster.create_topic("t", **REPLICATED)
    client.send("t", "a")
    leader = cluster.leader("t")
    away = next(broker for broker in (3, 2, 1) if broker not in (leader, cluster.controller_id))
    cluster.links.isolate(away)
    cluster.wait_for_isr("t", isr={1, 2, 3} - {away})
    client.send("t", "b")
    cluster.links.heal()
    cluster.wait_for_isr("t")
    assert cluster.facts().partitions["t", 0].copies[away].log_end_offset == 2


@pytest.mark.complete
def test_a_paused_leader_is_replaced_and_learns_of_it_when_it_wakes(cluster: EmbeddedCluster, client: Any) -> None:
    cluster.create_topic("t", **REPLICATED)
    impatient = {"socket.timeout.ms": 2_000}  # what was asked of the paused broker is asked again after that
    client.send("t", "a", **impatient)
    leader = cluster.leader("t")
    cluster.pause(leader)
    cluster.wait_for_isr("t", isr={1, 2, 3} - {leader})
    client.send("t", "b", **impatient)
    cluster.resume(leader)
    cluster.wait_for_isr("t")
    assert client.read("t", 2) == ["a", "b"]


def test_consumers_read_from_the_broker_in_their_rack(
    make_cluster: Callable[..., EmbeddedCluster], make_client: Any, wire: Any, until: Any
) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    cluster = make_cluster(racks=["a", "b", "c"], config={"replica.selector.class": selector})
    client = make_client(cluster)
    cluster.create_topic("t", replication_factor=3)
    client.send("t", "a")
    leader = cluster.leader("t")
    follower = next(broker for broker in (1, 2, 3) if broker != leader)
    rack = "abc"[follower - 1]
    to_leader = wire(cluster, leader)
    body = {**to_leader.fetch_body("t", 0), "rack_id": rack}

    def preferred() -> int:
        return int(to_leader.call(ApiKey.FETCH, 11, body).responses[0].partitions[0].preferred_read_replica)

    until(lambda: preferred() == follower)  # once the leader has heard that the follower has the record
    assert client.read("t", 1, **{"client.rack": rack}) == ["a"]


def test_a_follower_takes_no_records(cluster: EmbeddedCluster, make_records: Any, wire: Any) -> None:
    cluster.create_topic("t", replication_factor=3)
    other = next(broker for broker in (1, 2, 3) if broker != cluster.leader("t"))
    answer = wire(cluster, other).produce("t", make_records(b"a"))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("is_made", [False, True])
def test_a_controller_that_loses_its_lead_while_a_topic_is_made_is_followed_by_another(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    create_topics = Controller.create_topics
    asked: list[Controller] = []

    async def lose_the_lead(controller: Controller, *arguments: Any, **options: Any) -> Any:
        if is_made:
            await create_topics(controller, *arguments, **options)
        raise not_controller()

    def create(controller: Controller, *arguments: Any, **options: Any) -> Any:
        asked.append(controller)
        if len(asked) == 1:
            return asyncio.ensure_future(lose_the_lead(controller, *arguments, **options))
        return create_topics(controller, *arguments, **options)

    monkeypatch.setattr(Controller, "create_topics", create)
    cluster.create_topic("t")
    assert len(asked) == 2
    assert cluster.leader("t") in cluster.broker_ids

    with pytest.raises(BrokerError) as refused:
        cluster.create_topic("t")
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
