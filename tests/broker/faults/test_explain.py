"""Why a partition is as it is, from facts."""

from __future__ import annotations

from typing import Any

from broker_embedded.cluster.explain import explain
from broker_embedded.cluster.facts import (
    DiskFaultFacts,
    EmbeddedClusterFacts,
    FaultFacts,
    NodeFacts,
    NodeState,
    OngoingTransaction,
    PartitionFacts,
    ReplicaFacts,
    ShareFacts,
    ShareRunFacts,
)


def copy(node: int, log_end_offset: int = 10, **changes: Any) -> ReplicaFacts:
    fields = {"high_watermark": log_end_offset, "last_stable_offset": log_end_offset, **changes}
    return ReplicaFacts(node=node, log_start_offset=0, log_end_offset=log_end_offset, **fields)


def partition(**changes: Any) -> PartitionFacts:
    """t-0 on three brokers, all in sync, two wanted."""
    fields: dict[str, Any] = {
        "leader": 1,
        "leader_epoch": 4,
        "replicas": (1, 2, 3),
        "isr": (1, 2, 3),
        "min_insync_replicas": 2,
        "copies": {node: copy(node) for node in (1, 2, 3)},
        **changes,
    }
    return PartitionFacts(topic="t", partition=0, **fields)


def cluster(state: PartitionFacts, *, down: dict[int, NodeState] | None = None, **changes: Any) -> EmbeddedClusterFacts:
    states = dict.fromkeys((1, 2, 3), NodeState.RUNNING) | (down or {})
    nodes = {node: NodeFacts(node=node, state=states[node], is_voter=True) for node in states}
    fields: dict[str, Any] = {
        "controller": 1,
        "nodes": nodes,
        "settings": {"broker.session.timeout.ms": "600", "replica.lag.time.max.ms": "30000"},
        **changes,
    }
    return EmbeddedClusterFacts(partitions={("t", 0): state}, **fields)


def why(facts: EmbeddedClusterFacts) -> str:
    return "\n".join(explain(facts, "t", 0)[1:])


def test_a_healthy_partition_is_said_to_be_healthy() -> None:
    first, second = explain(cluster(partition()), "t", 0)
    assert first == "t-0: leader 1 (epoch 4), replicas [1, 2, 3], in sync [1, 2, 3]; high watermark 10, log end 10."
    assert "Nothing is in its way" in second


def test_what_does_not_exist_is_named_with_what_does() -> None:
    facts = cluster(partition())
    assert explain(facts, "t", 7) == ["t-7 does not exist: t has partitions 0 to 0."]
    assert explain(facts, "u", 0) == ["u-0 does not exist: the cluster has no topic u."]


def test_no_leader_because_the_last_in_sync_replica_is_gone_and_unclean_election_is_off() -> None:
    state = partition(leader=-1, isr=(2,), copies={})
    text = why(cluster(state, down={2: NodeState.KILLED}))
    assert "of the in-sync replicas [2] none is there (2 is killed)" in text
    assert "unclean.leader.election.enable is false" in text
    assert "start broker 2" in text
    assert "[1, 3] may lead and what only the in-sync replicas have is lost" in text


def test_no_leader_while_every_replica_is_down_asks_for_a_start_only() -> None:
    state = partition(leader=-1, isr=(2, 3), copies={})
    text = why(cluster(state, down=dict.fromkeys((1, 2, 3), NodeState.STOPPED)))
    assert "start broker 2 or 3" in text
    assert "lost" not in text


def test_an_in_sync_replica_that_could_lead_waits_for_the_controller() -> None:
    text = why(cluster(partition(leader=-1, isr=(2, 3), copies={}), down={1: NodeState.KILLED}))
    assert "[2, 3] could lead; the controller has not elected it yet" in text


def test_a_disk_offline_keeps_a_replica_from_leading() -> None:
    text = why(cluster(partition(leader=-1, isr=(2,), copies={2: copy(2, offline_reason="/b: Input/output error")})))
    assert "the log directory of its copy on 2 is offline: /b: Input/output error" in text
    assert "start broker 2 again, with a disk that works" in text


def test_no_controller_because_the_voters_have_no_majority() -> None:
    facts = cluster(partition(), controller=-1, down={2: NodeState.KILLED, 3: NodeState.PAUSED})
    assert "of the voters [1, 2, 3] only [1] run, a majority is 2" in why(facts)
    assert "until node 2 or 3 is started" in why(facts)
    assert "the quorum is electing one" in why(cluster(partition(), controller=-1))


def test_a_leader_that_died_a_moment_ago_is_waited_for_until_its_session_ends() -> None:
    text = why(cluster(partition(copies={2: copy(2)}), down={1: NodeState.KILLED}, controller=2))
    assert "Its leader 1 is killed and the controller has not noticed yet" in text
    assert "at most 600 ms" in text


def test_a_dead_broker_that_nobody_can_replace_stays_a_little_longer_where_deaths_are_noticed() -> None:
    settings = {"broker.session.timeout.ms": "600", "peer.death.detection.enable": "True"}
    facts = cluster(partition(isr=(1,)), down={1: NodeState.KILLED}, controller=2, settings=settings)
    assert "at most 1500 ms after its last heartbeat" in why(facts)


def test_too_few_in_sync_refuses_acks_all_and_says_who_is_missing_and_why() -> None:
    lagging = copy(3, 7, behind_for_ms=1_200, fetch_error="UNKNOWN_LEADER_EPOCH")
    state = partition(isr=(1,), copies={1: copy(1), 3: lagging})
    text = why(cluster(state, down={2: NodeState.KILLED}))
    assert "refused with NOT_ENOUGH_REPLICAS: 1 in sync [1], min.insync.replicas wants 2" in text
    assert "it ends when 1 of [2, 3] caught up" in text
    assert "Replica 2 is not in sync: 2 is killed." in text
    assert "Replica 3 is not in sync, which is 3 records behind for 1200 ms" in text
    assert "its fetch ended with UNKNOWN_LEADER_EPOCH" in text


def test_the_high_watermark_waits_for_a_follower_whose_link_is_cut() -> None:
    state = partition(copies={1: copy(1, 15, high_watermark=10), 2: copy(2, 15), 3: copy(3, 10, behind_for_ms=300)})
    facts = cluster(state, cut_links={(3, 1): "the link from node 3 to node 1 is cut"})
    text = why(facts)
    assert "The high watermark waits at 10 for in-sync replica 3, which is 5 records behind for 300 ms" in text
    assert "the link from node 3 to node 1 is cut" in text
    assert "replica.lag.time.max.ms (30000 ms)" in text
    assert "in-sync replica 2" not in text


def test_a_slow_link_and_a_paused_follower_are_named() -> None:
    state = partition(copies={1: copy(1, 15, high_watermark=10), 2: copy(2, 12), 3: copy(3, 10)})
    text = why(cluster(state, down={3: NodeState.PAUSED}, slow_links={(2, 1): 250}))
    assert "what it asks its leader arrives 250 ms late" in text
    assert "3 is paused" in text


def test_a_leader_that_cannot_reach_the_controller_is_named() -> None:
    facts = cluster(partition(), controller=2, cut_links={(1, 2): "the link from node 1 to node 2 is cut"})
    assert "cannot ask controller 2 to change the ISR: the link from node 1 to node 2 is cut" in why(facts)


def test_a_change_of_the_isr_that_is_not_decided_is_named() -> None:
    assert "has asked the controller for the ISR [1, 2]" in why(cluster(partition(pending_isr=(1, 2))))


def test_an_open_transaction_holds_the_last_stable_offset() -> None:
    open_one = OngoingTransaction(producer_id=4_000, first_offset=6, transactional_id="billing", open_for_ms=9_000)
    later = OngoingTransaction(producer_id=4_001, first_offset=8)
    state = partition(copies={1: copy(1, last_stable_offset=6)}, open_transactions=(later, open_one))
    text = why(cluster(state))
    assert "read_committed stop at 6: producer 4000 (billing) has had a transaction open for 9000 ms" in text
    undecided = partition(copies={1: copy(1, last_stable_offset=6)})
    assert "the marker that ends a transaction is not replicated yet" in why(cluster(undecided))


def test_disks_of_the_leader_are_named_and_those_of_others_are_not() -> None:
    state = partition(copies={1: copy(1, offline_reason="/b/t-0: Input/output error")})
    assert "is offline (/b/t-0: Input/output error)" in why(cluster(state))
    faults = tuple(DiskFaultFacts(broker=node, kind="full", path=f"/{node}") for node in (1, 2))
    text = why(cluster(partition(), disk_faults=faults))
    assert "The disk of its leader 1 is full (/1)" in text
    assert "(/2)" not in text
    elsewhere = partition(copies={1: copy(1, directory="/1/dir-1/t-0")})
    faults = tuple(DiskFaultFacts(broker=1, kind="slow", path=path) for path in ("/1/dir-0", "/1/dir-1"))
    text = why(cluster(elsewhere, disk_faults=faults))
    assert "has a fault: slow (/1/dir-1)" in text
    assert "(/1/dir-0)" not in text


def test_armed_faults_are_named_where_they_concern_the_partition() -> None:
    faults = (
        FaultFacts(fault_id=1, description="PRODUCE topic=t: hold=True", api="PRODUCE", topic="t", hits=2, held=2),
        FaultFacts(fault_id=2, description="of another topic", api="PRODUCE", topic="u"),
        FaultFacts(fault_id=3, description="of another partition", topic="t", partition=5),
        FaultFacts(fault_id=4, description="of every fetch", api="FETCH"),
        FaultFacts(fault_id=5, description="of groups", api="JOIN_GROUP"),
        FaultFacts(fault_id=6, description="of another broker", api="FETCH", broker=9),
    )
    text = why(cluster(partition(), faults=faults))
    assert "Fault 1 is armed: PRODUCE topic=t: hold=True (2 hits, holds 2)" in text
    assert [number for number in range(1, 7) if f"Fault {number} " in text] == [1, 4]


def share(*runs: ShareRunFacts, start: int, end: int, **changes: Any) -> ShareFacts:
    fields: dict[str, Any] = {"max_locks": 2_000, "delivery_limit": 5, "sessions": 2, **changes}
    return ShareFacts(group="resize", start_offset=start, end_offset=end, runs=runs, **fields)


HELD = (
    ShareRunFacts(first=3, last=4, state="acquired", delivery_count=2, member_id="worker", ends_in_ms=1_500),
    ShareRunFacts(first=5, last=5, state="acknowledged", delivery_count=1),
    ShareRunFacts(first=6, last=6, state="available", delivery_count=1),
    ShareRunFacts(first=7, last=7, state="archived", delivery_count=5),
)


def said(found: ShareFacts, offset: int, **changes: Any) -> str:
    facts = cluster(partition(shares=(found,), **changes))
    return explain(facts, "t", 0, offset=offset)[-1]


def test_each_record_of_a_share_group_is_explained() -> None:
    found = share(*HELD, start=3, end=8)
    assert "Record 2 is settled" in said(found, 2)
    assert said(found, 4) == (
        "Record 4 is delivered: member worker has its lease for 1500 ms unless it renews, and this is delivery 2 of 5."
    )
    assert "a member accepted it" in said(found, 5)
    assert "is available" in said(found, 6)
    assert "delivered 1 times of 5" in said(found, 6)
    assert "after 5 deliveries" in said(found, 7)
    assert "the members fetch 8 first" in said(found, 9)
    assert "no member has a session" in said(share(start=3, end=3, sessions=0), 9)
    assert "the log ends at 10" in said(found, 10)
    waiting = {1: copy(1, high_watermark=9), 2: copy(2), 3: copy(3)}
    assert "the high watermark is 9" in said(found, 9, copies=waiting)
    full = said(share(*HELD, start=3, end=8, max_locks=5), 9)
    assert "share.partition.max.record.locks is 5" in full
    assert "when record 3 is settled" in full


def test_what_holds_a_share_group_up_is_said_without_an_offset() -> None:
    facts = cluster(partition(shares=(share(*HELD, start=3, end=8, max_locks=5),)))
    stands, holds, full = explain(facts, "t", 0)[2:]
    assert "5 in flight (2 acquired, 1 available, 2 settled out of order)" in stands
    assert holds.startswith("Record 3 holds the start offset: member worker")
    assert full.startswith("Nothing new is delivered to share group resize: 5 records are in flight")
    assert "has not fetched from t-0" in explain(facts, "t", 0, group="other")[-1]
