"""Faults of requests: what they pick, what they do, how often, and that everything else gets real answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_embedded.cluster.faults import Corrupt, Faults
from ottla.testing import wait_until
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records.batch import check_crc, parse_header

NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


# --- errors of partitions


def test_a_produce_to_one_partition_fails_and_the_others_are_appended(faults: Faults, asker: Any) -> None:
    with faults.add(api="PRODUCE", topic="t", partition=0, error="NOT_LEADER_OR_FOLLOWER", count=2) as fault:
        for _ in range(2):
            answers = asker.produce("t", {0: b"a", 1: b"b"})
            assert (answers[0].error_code, answers[1].error_code) == (NOT_LEADER, 0)
        fault.wait(hits=2)
        assert asker.produce("t", {0: b"a"})[0].error_code == 0
        assert fault.hits == 2
    assert [asker.end_offset("t", partition) for partition in (0, 1)] == [1, 2]


def test_an_error_after_the_append_leaves_the_record_in_the_log(faults: Faults, asker: Any) -> None:
    with faults.add(api="PRODUCE", topic="t", partition=1, error="REQUEST_TIMED_OUT", after_apply=True, count=1):
        answers = asker.produce("t", {0: b"a", 1: b"b"})
    assert answers[0].error_code == 0
    assert (answers[1].error_code, answers[1].base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert [asker.end_offset("t", partition) for partition in (0, 1)] == [1, 1]


def test_an_error_of_a_produce_without_acks_closes_the_connection(faults: Faults, connect: Callable[..., Any]) -> None:
    client = connect()
    faults.add(api="PRODUCE", topic="t", error="NOT_LEADER_OR_FOLLOWER", count=1)
    client.send_produce("t", {0: b"a"}, acks=0)
    assert client.is_closed_by_peer()


def test_a_fetch_of_one_partition_fails_at_once_and_the_other_gets_its_records(faults: Faults, asker: Any) -> None:
    asker.produce("t", {0: b"a", 1: b"b"})
    with faults.add(api="FETCH", topic="t", partition=0, error="KAFKA_STORAGE_ERROR", count=1) as fault:
        answers = asker.fetch("t", 0, 1)
        assert answers[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert answers[1].error_code == 0
        assert answers[1].records
        assert asker.fetch("t", 0)[0].error_code == 0
        assert fault.hits == 1


def test_a_long_poll_answers_an_injected_error_without_waiting(faults: Faults, asker: Any) -> None:
    with faults.add(api="FETCH", topic="t", partition=2, error="NOT_LEADER_OR_FOLLOWER", count=1):
        answers = asker.fetch("t", 2, max_wait_ms=3_600_000)
    assert answers[2].error_code == NOT_LEADER


def test_an_incremental_fetch_meets_the_fault_of_a_partition_it_does_not_name(faults: Faults, asker: Any) -> None:
    first = asker.call(ApiKey.FETCH, 11, fetch_of_all(session_epoch=0))
    assert first.session_id
    with faults.add(api="FETCH", topic="t", partition=1, error="NOT_LEADER_OR_FOLLOWER", count=1):
        following = asker.call(
            ApiKey.FETCH, 11, {**fetch_of_all(session_epoch=1), "session_id": first.session_id, "topics": []}
        )
    (topic,) = following.responses
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(1, NOT_LEADER)]
    with faults.add(api="FETCH", topic="t", partition=1, disconnect=True, count=1) as cut:
        asker.send(ApiKey.FETCH, 11, {**fetch_of_all(session_epoch=2), "session_id": first.session_id, "topics": []})
        assert asker.is_closed_by_peer()
        assert cut.hits == 1


def test_list_offsets_fails_for_the_partition_that_is_named(faults: Faults, asker: Any) -> None:
    wanted = [{"partition_index": index, "timestamp": -1} for index in (0, 1)]
    body = {"replica_id": -1, "topics": [{"name": "t", "partitions": wanted}]}
    with faults.add(api="ListOffsets", topic="t", partition=1, error="LEADER_NOT_AVAILABLE"):
        answers = asker.call(ApiKey.LIST_OFFSETS, 5, body).topics[0].partitions
    assert [(each.error_code, each.offset) for each in answers] == [(0, 0), (ErrorCode.LEADER_NOT_AVAILABLE, -1)]


def test_a_commit_for_one_partition_fails_and_is_not_stored(faults: Faults, asker: Any) -> None:
    find_group(asker, "g")
    partitions = [{"partition_index": index, "committed_offset": 7, "committed_metadata": ""} for index in (0, 1)]
    body = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": "t", "partitions": partitions}],
    }
    with faults.add(api="OFFSET_COMMIT", group="g", topic="t", partition=0, error="UNKNOWN_TOPIC_OR_PARTITION"):
        answers = asker.call(ApiKey.OFFSET_COMMIT, 5, body).topics[0].partitions
    assert [each.error_code for each in answers] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert committed(asker, "g") == {0: (0, -1), 1: (0, 7)}
    with faults.add(api="OFFSET_FETCH", group="g", topic="t", partition=1, error="UNSTABLE_OFFSET_COMMIT"):
        assert committed(asker, "g") == {0: (0, -1), 1: (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)}
    with faults.add(api="OFFSET_COMMIT", group="another", topic="t", error="UNKNOWN_TOPIC_OR_PARTITION"):
        answers = asker.call(ApiKey.OFFSET_COMMIT, 5, body).topics[0].partitions
    assert [each.error_code for each in answers] == [0, 0]


def test_metadata_hides_the_leader_of_one_partition(faults: Faults, asker: Any) -> None:
    with faults.add(api="METADATA", topic="t", partition=2, error="LEADER_NOT_AVAILABLE"):
        (topic,) = asker.call(ApiKey.METADATA, 9, {"topics": [{"name": "t"}]}).topics
        answers = {each.partition_index: each for each in topic.partitions}
        assert (topic.error_code, answers[0].error_code, answers[0].leader_id) == (0, 0, 1)
        assert (answers[2].error_code, answers[2].leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    with faults.add(api="METADATA", topic="t", error="TOPIC_AUTHORIZATION_FAILED"):
        (topic,) = asker.call(ApiKey.METADATA, 9, {"topics": [{"name": "t"}]}).topics
        assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        every = asker.call(ApiKey.METADATA, 9, {"topics": None}).topics
        assert {each.name: each.error_code for each in every}["t"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_delete_records_of_one_partition_fails_and_deletes_nothing(faults: Faults, asker: Any) -> None:
    asker.produce("t", {0: b"a", 1: b"b"})
    partitions = [{"partition_index": index, "offset": 1} for index in (0, 1)]
    with faults.add(api="DELETE_RECORDS", topic="t", partition=0, error="NOT_LEADER_OR_FOLLOWER"):
        body = {"topics": [{"name": "t", "partitions": partitions}], "timeout_ms": 1_000}
        answers = asker.call(ApiKey.DELETE_RECORDS, 1, body).topics[0].partitions
    assert [each.error_code for each in answers] == [NOT_LEADER, 0]
    kept = asker.fetch("t", 0, 1)
    assert (kept[0].log_start_offset, kept[1].log_start_offset) == (0, 1)


# --- errors of groups and of whole requests


def test_a_heartbeat_of_one_group_is_refused(faults: Faults, asker: Any) -> None:
    find_group(asker, "g")
    body = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    with faults.add(api="HEARTBEAT", group="g", error="REBALANCE_IN_PROGRESS"):
        assert asker.call(ApiKey.HEARTBEAT, 3, body).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        other = asker.call(ApiKey.HEARTBEAT, 3, {**body, "group_id": "h"})
        assert other.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [3, 4])
def test_the_coordinator_of_one_group_cannot_be_found(faults: Faults, asker: Any, version: int) -> None:
    find_group(asker, "g")
    with faults.add(api="FIND_COORDINATOR", group="g", error="COORDINATOR_NOT_AVAILABLE", count=1) as fault:
        if version == 3:
            refused = asker.call(ApiKey.FIND_COORDINATOR, 3, {"key": "g", "key_type": 0})
            assert (refused.error_code, refused.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        else:
            answer = asker.call(ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": ["f", "g"], "key_type": 0})
            found = {each.key: (each.error_code, each.node_id) for each in answer.coordinators}
            assert found == {"f": (0, 1), "g": (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)}
        assert fault.hits == 1


def test_committed_offsets_of_one_of_two_groups_are_refused(faults: Faults, asker: Any) -> None:
    find_group(asker, "g")
    body = {"groups": [{"group_id": name, "topics": None} for name in ("g", "h")], "require_stable": False}
    with faults.add(api="OFFSET_FETCH", group="h", error="NOT_COORDINATOR"):
        answers = asker.call(ApiKey.OFFSET_FETCH, 8, body).groups
    assert {each.group_id: each.error_code for each in answers} == {"g": 0, "h": ErrorCode.NOT_COORDINATOR}


def test_a_fault_without_a_topic_refuses_the_whole_request(faults: Faults, asker: Any) -> None:
    with faults.add(api="PRODUCE", error="REQUEST_TIMED_OUT", message="slow today", count=1):
        answers = asker.produce("t", {0: b"a", 1: b"b"})
    assert {each.error_code for each in answers.values()} == {ErrorCode.REQUEST_TIMED_OUT}
    assert {each.error_message for each in answers.values()} == {"slow today"}
    assert asker.end_offset("t") == 0


def test_a_whole_request_can_fail_after_it_was_done(faults: Faults, asker: Any) -> None:
    body = {"topics": [{"name": "made", "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 10_000}
    with faults.add(api="CREATE_TOPICS", error="REQUEST_TIMED_OUT", after_apply=True, count=1):
        assert asker.call(ApiKey.CREATE_TOPICS, 5, body).topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert asker.call(ApiKey.CREATE_TOPICS, 5, body).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_partition_of_a_transaction_is_refused_and_none_is_added(faults: Faults, asker: Any) -> None:
    producer = open_transaction(asker, "x")
    body = {
        "v3_and_below_transactional_id": "x",
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.producer_epoch,
        "v3_and_below_topics": [{"name": "t", "partitions": [0, 1]}],
    }
    selected = {"api": "ADD_PARTITIONS_TO_TXN", "transactional_id": "x", "topic": "t", "partition": 1}
    with faults.add(**selected, error="TOPIC_AUTHORIZATION_FAILED", count=1):
        (topic,) = asker.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, body).results_by_topic_v3_and_below
    answers = {each.partition_index: each.partition_error_code for each in topic.results_by_partition}
    assert answers == {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 1: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    (topic,) = asker.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, body).results_by_topic_v3_and_below
    assert {each.partition_error_code for each in topic.results_by_partition} == {0}


def test_a_commit_in_a_transaction_is_refused_for_one_partition(faults: Faults, asker: Any) -> None:
    find_group(asker, "g")
    producer = open_transaction(asker, "x")
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    enlisted = {"transactional_id": "x", "group_id": "g", **identity}
    assert asker.call(ApiKey.ADD_OFFSETS_TO_TXN, 3, enlisted).error_code == 0
    partitions = [{"partition_index": at, "committed_offset": 5, "committed_metadata": ""} for at in (0, 1)]
    body = {**enlisted, "topics": [{"name": "t", "partitions": partitions}]}
    with faults.add(api="TXN_OFFSET_COMMIT", topic="t", partition=0, error="UNKNOWN_TOPIC_OR_PARTITION", count=1):
        (topic,) = asker.call(ApiKey.TXN_OFFSET_COMMIT, 3, body).topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]


def test_the_end_of_one_transaction_fails_after_it_was_done(faults: Faults, asker: Any) -> None:
    producer = open_transaction(asker, "x")
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    added = {
        "v3_and_below_transactional_id": "x",
        "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
        **{f"v3_and_below_{name}": value for name, value in identity.items()},
    }
    asker.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, added)
    end = {"transactional_id": "x", "committed": True, **identity}
    with (
        faults.add(api="END_TXN", transactional_id="y", error="NOT_COORDINATOR") as of_another,
        faults.add(api="END_TXN", transactional_id="x", error="REQUEST_TIMED_OUT", after_apply=True, count=1),
    ):
        assert asker.call(ApiKey.END_TXN, 3, end).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert of_another.hits == 0
    wait_until(lambda: asker.end_offset("t") == 1, 30, what="the marker in the partition")
    # To commit again is fine, to abort is not: it was done.
    wait_until(lambda: asker.call(ApiKey.END_TXN, 3, end).error_code == 0, 30)
    assert asker.call(ApiKey.END_TXN, 3, {**end, "committed": False}).error_code == ErrorCode.INVALID_TXN_STATE


# --- the connection and time


def test_a_connection_closed_before_the_append_leaves_nothing_and_after_it_a_record(
    faults: Faults, asker: Any, connect: Callable[..., Any]
) -> None:
    for after_apply, end_offset in ((False, 0), (True, 1)):
        client = connect()
        with faults.add(api="PRODUCE", topic="t", disconnect=True, after_apply=after_apply, count=1) as fault:
            with pytest.raises(ConnectionError):
                client.produce("t", {0: b"a"})
            fault.wait()
        assert asker.end_offset("t") == end_offset


def test_a_held_produce_is_appended_when_it_is_released(
    faults: Faults, asker: Any, connect: Callable[..., Any]
) -> None:
    late = connect("late")
    with faults.add(api="PRODUCE", client_id="l*te", hold=True) as hold:
        late.send_produce("t", {0: b"held"})
        hold.wait(timeout_s=30)
        wait_until(lambda: hold.held == 1, 30)  # a hit is counted a moment before it is held
        asker.produce("t", {0: b"another overwrites the receive buffer " * 100})
        assert asker.end_offset("t") == 1
        hold.release()
        assert late.receive().responses[0].partition_responses[0].base_offset == 1
        assert hold.held == 0
        assert late.produce("t", {0: b"nothing is held any more"})[0].base_offset == 2
    records = asker.fetch("t", 0)[0].records
    assert b"held" in bytes(records)


def test_a_held_answer_is_that_of_a_request_that_was_done(
    faults: Faults, asker: Any, connect: Callable[..., Any]
) -> None:
    late = connect("late")
    hold = faults.add(api="PRODUCE", client_id="late", hold=True, after_apply=True, count=1)
    late.send_produce("t", {0: b"done"})
    hold.wait()
    wait_until(lambda: asker.end_offset("t") == 1, 30)
    hold.remove()  # lets go of what it holds
    assert late.receive().responses[0].partition_responses[0].error_code == 0


def test_a_held_request_is_done_although_its_client_has_gone(
    faults: Faults, asker: Any, connect: Callable[..., Any]
) -> None:
    zombie = connect("zombie")
    hold = faults.add(api="PRODUCE", client_id="zombie", hold=True)
    zombie.send_produce("t", {0: b"old"})
    hold.wait()
    zombie.close()
    asker.produce("t", {0: b"new"})
    hold.release()
    wait_until(lambda: asker.end_offset("t") == 2, 30)


def test_a_delayed_request_comes_after_others_and_is_done_all_the_same(
    faults: Faults, asker: Any, connect: Callable[..., Any]
) -> None:
    late = connect("late")
    with faults.add(api="PRODUCE", client_id="late", delay_ms=300) as delay:
        late.send_produce("t", {0: b"second"})
        delay.wait()
        first = asker.produce("t", {0: b"first"})[0].base_offset
        second = late.receive().responses[0].partition_responses[0].base_offset
    assert {first, second} == {0, 1}


# --- damaged records


def test_corrupt_records_fail_their_crc_and_the_log_is_sound(faults: Faults, asker: Any) -> None:
    asker.produce("t", {0: b"a", 1: b"b"})
    with faults.add(api="FETCH", topic="t", partition=0, corrupt=True, count=1) as fault:
        answers = asker.fetch("t", 0, 1)
        assert fault.hits == 1
    assert [is_sound(answers[partition].records) for partition in (0, 1)] == [False, True]
    assert is_sound(asker.fetch("t", 0)[0].records)


def test_which_bytes_are_corrupted_can_be_chosen(faults: Faults, asker: Any) -> None:
    asker.produce("t", {0: b"a"})
    true = bytes(asker.fetch("t", 0)[0].records)
    with faults.add(topic="t", corrupt=Corrupt(position=61, length=2, mask=0x0F)):
        damaged = bytes(asker.fetch("t", 0)[0].records)
    different = {at for at, (a, b) in enumerate(zip(true, damaged, strict=True)) if a != b}
    assert different == {61, 62}


def test_an_empty_fetch_uses_up_no_corruption(faults: Faults, asker: Any) -> None:
    with faults.add(topic="t", corrupt=True, count=1) as fault:
        assert not asker.fetch("t", 0)[0].records
        assert fault.hits == 0
        asker.produce("t", {0: b"a"})
        assert not is_sound(asker.fetch("t", 0)[0].records)
        assert fault.hits == 1


# --- what is picked, and how often


def test_skipped_occasions_pass_before_the_fault_acts(faults: Faults, asker: Any) -> None:
    with faults.add(api="PRODUCE", topic="t", partition=0, error="NOT_LEADER_OR_FOLLOWER", skip=2, count=1):
        codes = [asker.produce("t", {0: b"a"})[0].error_code for _ in range(4)]
    assert codes == [0, 0, NOT_LEADER, 0]


def test_a_predicate_sees_the_decoded_request(faults: Faults, asker: Any) -> None:
    with faults.add(api="PRODUCE", when=lambda request: request.acks == 1, error="NOT_LEADER_OR_FOLLOWER"):
        assert asker.produce("t", {0: b"a"}, acks=-1)[0].error_code == 0
        assert asker.produce("t", {0: b"a"}, acks=1)[0].error_code == NOT_LEADER


def test_a_predicate_that_fails_is_told_to_who_waits_and_harms_no_request(faults: Faults, asker: Any) -> None:
    with faults.add(api="PRODUCE", when=lambda request: request.no_such_field, error="NOT_LEADER_OR_FOLLOWER") as fault:
        assert asker.produce("t", {0: b"a"})[0].error_code == 0
        with pytest.raises(ValueError, match="no_such_field"):
            fault.wait()


def test_a_fault_of_one_client_leaves_the_others_alone(faults: Faults, connect: Callable[..., Any]) -> None:
    billing, audit = connect("billing-1"), connect("audit")
    with faults.add(topic="t", partition=0, client_id="billing-*", error="NOT_LEADER_OR_FOLLOWER"):
        assert billing.produce("t", {0: b"a"})[0].error_code == NOT_LEADER
        assert audit.produce("t", {0: b"a"})[0].error_code == 0
        assert billing.fetch("t", 0)[0].error_code == NOT_LEADER


def test_a_fault_of_another_broker_costs_this_one_nothing(faults: Faults, asker: Any) -> None:
    with faults.add(broker=2, error="NOT_LEADER_OR_FOLLOWER") as fault:
        assert asker.produce("t", {0: b"a"})[0].error_code == 0
        assert fault.hits == 0


def test_follower_fetches_are_left_alone_unless_they_are_meant(faults: Faults, asker: Any) -> None:
    with faults.add(api="FETCH", error="UNKNOWN_SERVER_ERROR", source="brokers") as fault:
        assert asker.fetch("t", 0)[0].error_code == 0
        asker.call(ApiKey.FETCH, 11, {**fetch_of_all(session_epoch=-1), "replica_id": 2})
        assert fault.hits == 1


def test_two_faults_act_on_one_request(faults: Faults, asker: Any) -> None:
    with (
        faults.add(api="PRODUCE", topic="t", partition=0, error="NOT_LEADER_OR_FOLLOWER"),
        faults.add(api="PRODUCE", topic="t", partition=1, error="KAFKA_STORAGE_ERROR"),
        faults.add(api="PRODUCE", delay_ms=1) as delay,
    ):
        answers = asker.produce("t", {0: b"a", 1: b"b", 2: b"c"})
        assert delay.hits == 1
    assert [answers[at].error_code for at in range(3)] == [NOT_LEADER, ErrorCode.KAFKA_STORAGE_ERROR, 0]


def test_waiting_for_a_fault_that_nobody_meets_says_what_was_found(faults: Faults) -> None:
    with (
        faults.add(api="PRODUCE", topic="t", error="NOT_LEADER_OR_FOLLOWER") as fault,
        pytest.raises(TimeoutError, match=r"PRODUCE topic=t: error=NOT_LEADER_OR_FOLLOWER.*0 hits.*wanted 1"),
    ):
        fault.wait(timeout_s=0.01)


def test_faults_that_are_over_are_listed_until_they_are_removed(faults: Faults, asker: Any) -> None:
    fault = faults.add(api="PRODUCE", topic="t", error="NOT_LEADER_OR_FOLLOWER", count=1)
    asker.produce("t", {0: b"a"})
    assert [(each.id, each.hits) for each in faults.list()] == [(fault.id, 1)]
    assert faults.get(fault.id).hits == 1
    faults.clear()
    assert faults.list() == []
    with pytest.raises(ValueError, match=f"found {fault.id}"):
        faults.get(fault.id)


# --- what the tests ask


def fetch_of_all(*, session_epoch: int) -> dict[str, Any]:
    wanted = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1_048_576} for index in range(3)]
    return {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 52_428_800,
        "session_id": 0,
        "session_epoch": session_epoch,
        "topics": [{"topic": "t", "partitions": wanted}],
    }


def find_group(asker: Any, group: str) -> None:
    """Until the coordinator serves it."""

    def is_served() -> bool:
        found = asker.call(ApiKey.FIND_COORDINATOR, 3, {"key": group, "key_type": 0}).error_code == 0
        offsets = asker.call(ApiKey.OFFSET_FETCH, 5, {"group_id": group, "topics": None})
        return found and offsets.error_code == 0

    wait_until(is_served, 30)


def open_transaction(asker: Any, transactional_id: str) -> Any:
    """A producer id, once the coordinator serves."""

    def opened() -> Any:
        found = asker.call(ApiKey.FIND_COORDINATOR, 3, {"key": transactional_id, "key_type": 1})
        body = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
        answer = asker.call(ApiKey.INIT_PRODUCER_ID, 2, body)
        return answer if found.error_code == answer.error_code == 0 else None

    return wait_until(opened, 30)


def committed(asker: Any, group: str) -> dict[int, tuple[int, int]]:
    """Error and offset of partitions 0 and 1."""
    body = {"group_id": group, "topics": [{"name": "t", "partition_indexes": [0, 1]}]}
    (topic,) = asker.call(ApiKey.OFFSET_FETCH, 5, body).topics
    return {each.partition_index: (each.error_code, each.committed_offset) for each in topic.partitions}


def is_sound(records: Any) -> bool:
    data = memoryview(bytes(records))
    assert len(data) > 61
    return check_crc(data, 0, parse_header(data, 0))
