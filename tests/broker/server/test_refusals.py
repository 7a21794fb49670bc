"""What the broker refuses, with the code, the message and the single records at fault that a producer gets to see."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.common.clock import ManualClock
from broker_embedded.common.errors import BrokerError
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records.record import RecordData, encode_batch

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(clock=ManualClock(NOW_MS)) as running:
        yield running


def batch(*records: tuple[bytes | None, int], **options: Any) -> bytearray:
    """A batch of (key, timestamp in ms) pairs."""
    made = [RecordData(i, timestamp_ms, key, b"value", ()) for i, (key, timestamp_ms) in enumerate(records)]
    return bytearray(encode_batch(made, **options))


def damaged(position: int, value: int) -> bytearray:
    data = batch((b"k", NOW_MS))
    data[position] = value
    return data


@dataclass(frozen=True)
class Refusal:
    """A topic's settings, what is sent, and what the answer must be."""

    name: str
    records: bytes | bytearray
    code: ErrorCode
    says: str
    config: dict[str, object] = field(default_factory=dict)
    record_errors: Sequence[int] = ()

    def __str__(self) -> str:
        return self.name


REFUSALS = [
    Refusal("a changed byte", damaged(-1, 0x55), ErrorCode.CORRUPT_MESSAGE, "has CRC 0x"),
    Refusal("message format 0", damaged(16, 0), ErrorCode.INVALID_RECORD, "retired with Kafka 4"),
    Refusal("message format 1", damaged(16, 1), ErrorCode.INVALID_RECORD, "retired with Kafka 4"),
    Refusal("an unknown message format", damaged(16, 3), ErrorCode.CORRUPT_MESSAGE, "magic 3"),
    Refusal("half a batch", batch((b"k", NOW_MS))[:-3], ErrorCode.INVALID_RECORD, "no whole record batch"),
    Refusal("two batches", batch((b"k", NOW_MS)) * 2, ErrorCode.INVALID_RECORD, "more than one record batch"),
    Refusal("an offset", damaged(7, 5), ErrorCode.INVALID_RECORD, "starts at offset 0"),
    Refusal(
        "control records", batch((b"k", NOW_MS), is_control=True), ErrorCode.INVALID_RECORD, "may not write control"
    ),
    Refusal(
        "no sequence",
        batch((b"k", NOW_MS), producer_id=7, producer_epoch=0, base_sequence=-1),
        ErrorCode.INVALID_RECORD,
        "sequence -1 of producer 7",
    ),
    Refusal(
        "more bytes than the topic takes",
        batch((b"k" * 2000, NOW_MS)),
        ErrorCode.MESSAGE_TOO_LARGE,
        "max.message.bytes allows 1000",
        config={"max.message.bytes": 1000},
    ),
    Refusal(
        "more bytes than a segment",
        batch((b"k" * 2000, NOW_MS)),
        ErrorCode.RECORD_LIST_TOO_LARGE,
        "segment.bytes = 1000",
        config={"segment.bytes": 1000},
    ),
    Refusal(
        "timestamps in the future",
        batch((b"k", NOW_MS), (b"k", NOW_MS + HOUR_MS + 1), (b"k", NOW_MS + HOUR_MS)),
        ErrorCode.INVALID_TIMESTAMP,
        "record 1: timestamp",
        record_errors=[1],
    ),
    Refusal(
        "timestamps in the past",
        batch((b"k", NOW_MS - 1001), (b"k", NOW_MS), (b"k", NOW_MS - 2000)),
        ErrorCode.INVALID_TIMESTAMP,
        "2 refused, record 0: timestamp",
        config={"message.timestamp.before.max.ms": 1000},
        record_errors=[0, 2],
    ),
    Refusal(
        "LogAppendTime by the producer",
        batch((b"k", NOW_MS), timestamp_type=1),
        ErrorCode.INVALID_TIMESTAMP,
        "may not set the timestamp type",
        record_errors=[0],
    ),
    Refusal(
        "records without keys in a compacted topic",
        batch((b"k", NOW_MS), (None, NOW_MS), (b"k", NOW_MS), (None, NOW_MS)),
        ErrorCode.INVALID_RECORD,
        "record 1: a record without a key",
        config={"cleanup.policy": "compact"},
        record_errors=[1, 3],
    ),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_a_batch_is_refused_with_kafkas_code_and_the_records_at_fault(
    cluster: EmbeddedCluster, client: Any, refusal: Refusal
) -> None:
    cluster.create_topic("t", config=refusal.config)
    answer = client.produce("t", bytes(refusal.records))
    assert answer.error_code == refusal.code
    assert answer.base_offset == -1
    assert "t-0" in answer.error_message
    assert refusal.says in answer.error_message
    assert [each.batch_index for each in answer.record_errors] == list(refusal.record_errors)
    assert all(each.batch_index_error_message for each in answer.record_errors)
    assert client.fetch("t").high_watermark == 0, "nothing was appended"
    good = client.produce("t", bytes(batch((b"k", NOW_MS))))
    assert (good.error_code, good.base_offset) == (0, 0), "and the topic still takes what is right"


def test_records_of_a_topic_that_is_only_compacted_are_not_deleted_on_request(
    cluster: EmbeddedCluster, client: Any
) -> None:
    cluster.create_topic("t", config={"cleanup.policy": "compact"})
    client.produce("t", bytes(batch((b"k", NOW_MS))))
    body = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}], "timeout_ms": 1000}
    (answer,) = client.call(ApiKey.DELETE_RECORDS, 2, body).topics[0].partitions
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.POLICY_VIOLATION, -1)


def test_an_older_epoch_of_a_producer_is_fenced(cluster: EmbeddedCluster, client: Any) -> None:
    cluster.create_topic("t")

    def produce(epoch: int, sequence: int) -> int:
        made = batch((b"k", NOW_MS), producer_id=9, producer_epoch=epoch, base_sequence=sequence)
        return int(client.produce("t", bytes(made)).error_code)

    assert produce(1, 0) == 0
    assert produce(0, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert produce(1, 1) == 0


def test_what_a_producer_wrote_before_a_restart_is_known_after_it(
    tmp_path: Any, make_wire_client: Callable[[str], Any]
) -> None:
    """By the snapshot after a clean stop; a kill is shown in the storage tests."""
    made = [bytes(batch((b"k", NOW_MS), producer_id=9, producer_epoch=0, base_sequence=number)) for number in range(8)]
    with EmbeddedCluster(clock=ManualClock(NOW_MS), data_dir=tmp_path) as first:
        first.create_topic("t")
        client = make_wire_client(first.bootstrap_servers)
        assert [client.produce("t", each).base_offset for each in made] == list(range(8))
    with EmbeddedCluster(clock=ManualClock(NOW_MS), data_dir=tmp_path) as second:
        client = make_wire_client(second.bootstrap_servers)
        again = [client.produce("t", each) for each in made]
        known = [(each.error_code, each.base_offset) for each in again[-1:]]
        assert known == [(0, 7)], "the last batch, at least, is answered with its first offset"
        assert again[0].error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert client.fetch("t").high_watermark == 8, "nothing was appended twice"
        following = bytes(batch((b"k", NOW_MS), producer_id=9, producer_epoch=0, base_sequence=8))
        assert client.produce("t", following).base_offset == 8


ANY_ACL = {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 3, "permission_type": 3}


@pytest.mark.representative("30-3-body0")
@pytest.mark.parametrize(
    ("api", "version", "body"),
    [
        (ApiKey.CREATE_ACLS, 3, {"creations": []}),
        (ApiKey.DELETE_ACLS, 3, {"filters": []}),
        (
            ApiKey.DESCRIBE_ACLS,
            3,
            {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 3, "permission_type": 3},
        ),
    ],
)
def test_no_refused_request_is_kept(cluster: EmbeddedCluster, api: ApiKey, version: int, body: dict[str, Any]) -> None:
    client = WireClient(cluster.bootstrap_servers)
    for _ in range(100):
        client.call(api, version, body)
    client.close()
    gc.collect()
    kept = [each for each in gc.get_objects() if isinstance(each, BrokerError)]
    assert not [error for error in kept if error.__traceback__ is not None]
