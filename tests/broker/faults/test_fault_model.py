"""What a fault may be, and how requests are looked into, without a broker."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from message_samples import fixed_body

from broker_embedded.cluster.faults import Corrupt, Faults, RequestSource
from broker_embedded.cluster.faults.from_json import add_from_json
from broker_embedded.cluster.faults.subject import Subject
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.faults import NO_FAULTS
from ottla_wire.protocol import ApiKey, ErrorCode, codec, schemas
from ottla_wire.protocol.message import Message

TOPIC_ID = b"\x07" * 16


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"api": "PRODUCE"}, "action: found nothing, wanted one of error, disconnect, delay_ms, hold, corrupt"),
        ({"hold": True, "delay_ms": 5}, "action: found delay_ms and hold"),
        ({"error": "NOT_LEADER"}, "did you mean NOT_LEADER_OR_FOLLOWER"),
        ({"error": 9_999}, "error: found 9999, which is no error code"),
        ({"error": "NONE"}, "NONE, which is no error"),
        ({"api": "PRODUCT", "hold": True}, "api: found 'PRODUCT'.*did you mean PRODUCE"),
        ({"api": 999, "hold": True}, "api: found 999"),
        ({"partition": 3, "hold": True}, "partition: found 3 without a topic"),
        ({"topic": "t", "partition": -1, "hold": True}, "partition: found -1"),
        ({"hold": True, "count": 0}, "count: found 0"),
        ({"hold": True, "skip": -1}, "skip: found -1"),
        ({"delay_ms": -1}, "delay_ms: found -1"),
        ({"api": "PRODUCE", "corrupt": True}, "corrupt: found PRODUCE, wanted FETCH"),
        ({"hold": True, "message": "no"}, "message: found 'no' with hold"),
        ({"hold": True, "source": "me"}, "source: found 'me', wanted one of clients, brokers, any"),
    ],
)
def test_a_fault_that_cannot_be_is_refused_with_what_was_found(
    faults: Faults, wanted: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        faults.add(**wanted)
    assert faults.list() == []


@pytest.mark.parametrize("spelled", ["LIST_OFFSETS", "ListOffsets", "list-offsets", 2, ApiKey.LIST_OFFSETS])
def test_an_api_may_be_spelled_as_people_do(faults: Faults, spelled: Any) -> None:
    faults.add(api=spelled, hold=True)
    assert "LIST_OFFSETS" in repr(faults.list()[0])


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"hold": True, "topics": "t"}, "found topics, wanted some of after_apply, api, broker"),
        ({"hold": True, "count": "3"}, "count: found '3', wanted a number"),
        ({"hold": True, "topic": 3}, "topic: found 3, wanted text"),
        ({"error": True}, "error: found True"),
        ({"corrupt": {"offset": 1}}, "corrupt: found {'offset': 1}"),
        ({"hold": True, "when": "x"}, "found when"),
    ],
)
def test_a_fault_in_json_is_refused_with_what_was_found(faults: Faults, wanted: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        add_from_json(faults, wanted)


def test_a_fault_in_json_is_shown_as_it_was_given(faults: Faults) -> None:
    given = {"api": "FETCH", "topic": "t", "partition": 1, "corrupt": {"position": 3, "length": 2, "mask": 1}}
    add_from_json(faults, given)
    (shown,) = [each.to_json() for each in faults.list()]
    assert given.items() <= shown.items()
    assert (shown["hits"], shown["armed"]) == (0, True)


def test_a_broker_looks_for_faults_only_while_there_are_some_for_it(faults: Faults) -> None:
    first, second = faults.on_broker(1), faults.on_broker(2)
    assert (first.is_armed, second.is_armed) == (False, False)
    with faults.add(broker=2, hold=True):
        assert (first.is_armed, second.is_armed) == (False, True)
        with faults.add(hold=True):
            assert (first.is_armed, second.is_armed) == (True, True)
            assert faults.on_broker(3).is_armed
    assert (first.is_armed, second.is_armed) == (False, False)
    assert not NO_FAULTS.is_armed


def test_a_fault_is_over_when_its_count_is_used_up(faults: Faults) -> None:
    view = faults.on_broker(1)
    fault = faults.add(api="PRODUCE", topic="t", error="NOT_LEADER_OR_FOLLOWER", count=1)
    with pytest.raises(BrokerError) as refused:
        view.check_partition(ApiKey.PRODUCE, None, produce_request(), "t", 0)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fault.hits == 1
    assert not view.is_armed
    view.check_partition(ApiKey.PRODUCE, None, produce_request(), "t", 0)


def test_who_waits_on_another_thread_is_told_of_each_hit(faults: Faults) -> None:
    view = faults.on_broker(1)
    fault = faults.add(api="PRODUCE", topic="t", error="NOT_LEADER_OR_FOLLOWER")
    seen: list[int] = []
    waiting = threading.Thread(target=lambda: seen.append(fault.wait(hits=2, timeout_s=30).hits))
    waiting.start()
    for _ in range(2):
        with pytest.raises(BrokerError):
            view.check_partition(ApiKey.PRODUCE, None, produce_request(), "t", 0)
    waiting.join(30)
    assert seen == [2]


def test_corruption_reaches_only_bytes_that_are_there() -> None:
    assert Corrupt(position=2, length=5).apply(b"\x00\x00\x00") == b"\x00\x00\xff"
    assert Corrupt(position=-9).apply(b"\x00") == b"\xff"
    assert Corrupt().apply(b"") == b""
    assert Corrupt(position=7).apply(b"abc") == b"abc"
    with pytest.raises(ValueError, match="mask 0"):
        Corrupt(mask=0)


NAMES_PARTITIONS = {
    "PRODUCE",
    "FETCH",
    "LIST_OFFSETS",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "DELETE_RECORDS",
    "OFFSET_FOR_LEADER_EPOCH",
    "ADD_PARTITIONS_TO_TXN",
    "WRITE_TXN_MARKERS",
    "TXN_OFFSET_COMMIT",
    "ALTER_REPLICA_LOG_DIRS",
    "DESCRIBE_LOG_DIRS",
    "ELECT_LEADERS",
    "ALTER_PARTITION_REASSIGNMENTS",
    "LIST_PARTITION_REASSIGNMENTS",
    "OFFSET_DELETE",
    "ALTER_PARTITION",
    "DESCRIBE_PRODUCERS",
    "SHARE_FETCH",
}
NAMES_TOPICS = {"METADATA", "CREATE_TOPICS", "CREATE_PARTITIONS", "DELETE_TOPICS", "DESCRIBE_TOPIC_PARTITIONS"}
NAMES_GROUPS = {
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "JOIN_GROUP",
    "SYNC_GROUP",
    "HEARTBEAT",
    "LEAVE_GROUP",
    "DESCRIBE_GROUPS",
    "DELETE_GROUPS",
    "ADD_OFFSETS_TO_TXN",
    "TXN_OFFSET_COMMIT",
    "OFFSET_DELETE",
    "CONSUMER_GROUP_HEARTBEAT",
    "CONSUMER_GROUP_DESCRIBE",
}
NAMES_TRANSACTIONS = {
    "INIT_PRODUCER_ID",
    "ADD_PARTITIONS_TO_TXN",
    "ADD_OFFSETS_TO_TXN",
    "END_TXN",
    "TXN_OFFSET_COMMIT",
    "DESCRIBE_TRANSACTIONS",
}


@pytest.mark.parametrize("name", sorted(NAMES_PARTITIONS))
def test_every_version_of_a_request_names_its_partitions(name: str) -> None:
    for subject in subjects_of(name):
        assert subject.targets, subject.request
        assert all(isinstance(topic, str) and isinstance(number, int) for topic, number in subject.targets)


@pytest.mark.parametrize("name", sorted(NAMES_TOPICS))
def test_every_version_of_a_request_names_its_topics(name: str) -> None:
    for subject in subjects_of(name):
        assert subject.targets, subject.request
        topic, _ = subject.targets[0]
        assert subject.mentions_partition(topic, None)
        assert subject.mentions_partition(topic, 12)


@pytest.mark.parametrize("name", sorted(NAMES_GROUPS))
def test_every_version_of_a_request_names_its_groups(name: str) -> None:
    assert all(subject.groups for subject in subjects_of(name))


@pytest.mark.parametrize("name", sorted(NAMES_TRANSACTIONS))
def test_every_version_of_a_request_names_its_transactional_ids(name: str) -> None:
    assert all(subject.transactional_ids for subject in subjects_of(name))


def test_other_requests_name_nothing_by_accident() -> None:
    for name in ("API_VERSIONS", "BROKER_HEARTBEAT", "BROKER_REGISTRATION", "DESCRIBE_CLUSTER", "UPDATE_FEATURES"):
        for subject in subjects_of(name):
            assert (subject.targets, subject.groups, subject.transactional_ids) == ((), frozenset(), frozenset())


def subjects_of(name: str) -> list[Subject]:
    """Every version of a request with all its fields filled."""
    api = schemas.api(ApiKey[name])
    found = []
    for version in api.versions:
        encoded = codec.encode_request(api.api_key, version, fixed_body(api.request, version))
        request = codec.decode_request(api.api_key, version, memoryview(encoded), 0)
        found.append(Subject(api=api.api_key, broker=1, client_id=None, request=request, topic_names=AnyTopic()))
    return found


class AnyTopic(dict[bytes, str]):
    def get(self, key: Any, default: Any = None) -> Any:
        return "by-id"


def produce_request() -> Message:
    return subjects_of("PRODUCE")[0].request


def test_the_source_of_a_request_is_who_it_is_about() -> None:
    assert subjects_of("BROKER_HEARTBEAT")[0].is_from_broker
    assert not subjects_of("PRODUCE")[0].is_from_broker
    assert RequestSource("any") is RequestSource.ANY
