"""A transactional producer made of single requests, so that a test decides their order, versions and identity."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from wire_client import WireClient

from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message
from ottla_wire.records.batch import iter_batches
from ottla_wire.records.control import decode_control_type
from ottla_wire.records.record import RecordData, decode_batch, encode_batch

TRANSACTION = 1


class WireProducer:
    """`versions` of each API as a client of transaction.version 1 (the default) or 2 sends them."""

    VERSIONS: ClassVar = {
        1: {"init": 4, "add": 3, "produce": 11, "offsets": 3, "add_offsets": 3, "end": 4},
        2: {"init": 5, "add": 3, "produce": 12, "offsets": 5, "add_offsets": 4, "end": 5},
    }

    def __init__(self, client: WireClient, transactional_id: str, *, version: int = 1, timeout_ms: int = 60_000):
        self.client = client
        self.transactional_id = transactional_id
        self.versions = self.VERSIONS[version]
        self.adds_partitions = version == 1
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        find_coordinator(client, transactional_id)

    @property
    def identity(self) -> dict[str, int]:
        return {"producer_id": self.producer_id, "producer_epoch": self.epoch}

    def ask_init(self, **claimed: int) -> Message:
        body = {"transactional_id": self.transactional_id, "transaction_timeout_ms": self.timeout_ms, **claimed}
        return self.client.call(ApiKey.INIT_PRODUCER_ID, self.versions["init"], body)

    def init(self, **claimed: int) -> WireProducer:
        """Let in, however often it has to ask."""
        answer = self.ask_init(**claimed)
        while answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            answer = self.ask_init(**claimed)
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        self._be(answer.producer_id, answer.producer_epoch)
        return self

    def _be(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    def add(self, topic: str, *partitions: int) -> ErrorCode:
        body = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": topic, "partitions": list(partitions)}],
        }
        answer = self.client.call(ApiKey.ADD_PARTITIONS_TO_TXN, self.versions["add"], body)
        errors = {
            ErrorCode(each.partition_error_code)
            for result in answer.results_by_topic_v3_and_below
            for each in result.results_by_partition
        }
        (error,) = errors
        return error

    def produce(self, topic: str, *values: bytes, partition: int = 0) -> ErrorCode:
        """One batch, as it comes: nothing is added to the transaction by itself."""
        answer = self.ask_produce(topic, *values, partition=partition)
        return ErrorCode(answer.error_code)

    def ask_produce(self, topic: str, *values: bytes, partition: int = 0) -> Message:
        # A marker has the broker's time: a batch of another age would be in another segment, and in another response.
        now_ms = time.time_ns() // 1_000_000
        sequence = self.sequences.get((topic, partition), 0)
        batch = encode_batch(
            [RecordData(offset=n, timestamp_ms=now_ms, key=None, value=value) for n, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        body = {
            "transactional_id": self.transactional_id,
            "acks": -1,
            "timeout_ms": 5_000,
            "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
        }
        answer: Message = self.client.call(ApiKey.PRODUCE, self.versions["produce"], body).responses[0]
        result: Message = answer.partition_responses[0]
        if result.error_code == 0:
            self.sequences[topic, partition] = sequence + len(values)
        return result

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """As a client does: add the partition if that is the client's part, then the batch; both succeed."""
        if self.adds_partitions:
            assert self.add(topic, partition) is ErrorCode.NONE
        assert self.produce(topic, *values, partition=partition) is ErrorCode.NONE

    def add_offsets(self, group: str) -> ErrorCode:
        body = {"transactional_id": self.transactional_id, "group_id": group, **self.identity}
        return ErrorCode(self.client.call(ApiKey.ADD_OFFSETS_TO_TXN, self.versions["add_offsets"], body).error_code)

    def commit_offset(self, group: str, topic: str, offset: int, *, partition: int = 0, **member: Any) -> ErrorCode:
        body = {
            "transactional_id": self.transactional_id,
            "group_id": group,
            **self.identity,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            **member,
            "topics": [{"name": topic, "partitions": [{"partition_index": partition, "committed_offset": offset}]}],
        }
        answer = self.client.call(ApiKey.TXN_OFFSET_COMMIT, self.versions["offsets"], body)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool) -> ErrorCode:
        body = {"transactional_id": self.transactional_id, **self.identity, "committed": commit}
        answer = self.client.call(ApiKey.END_TXN, self.versions["end"], body)
        if answer.error_code == 0 and self.versions["end"] >= 5:
            self._be(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def commit(self) -> None:
        assert self.end(commit=True) is ErrorCode.NONE

    def abort(self) -> None:
        assert self.end(commit=False) is ErrorCode.NONE


def find_coordinator(client: WireClient, key: str, key_type: int = TRANSACTION) -> Message:
    answer = client.call(ApiKey.FIND_COORDINATOR, 3, {"key": key, "key_type": key_type})
    assert answer.error_code == 0, ErrorCode(answer.error_code)
    return answer


def read_committed(client: WireClient, topic: str, *, partition: int = 0) -> list[bytes | None]:
    """The values that a read_committed consumer hands out, by the rule of the protocol."""
    answer = client.fetch(topic, partition=partition, isolation_level=1)
    assert answer.error_code == 0, ErrorCode(answer.error_code)
    aborted = {(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()}
    open_aborts: set[int] = set()
    values: list[bytes | None] = []
    data = bytes(answer.records)
    for position, header in iter_batches(data):
        open_aborts |= {
            producer for producer, first in aborted if producer == header.producer_id and first <= header.base_offset
        }
        if header.is_control:
            open_aborts.discard(header.producer_id)
            aborted = {pair for pair in aborted if pair[0] != header.producer_id or pair[1] > header.base_offset}
        elif not (header.is_transactional and header.producer_id in open_aborts):
            values += [record.value for record in decode_batch(data, position)]
    return values


def markers_in(client: WireClient, topic: str, *, partition: int = 0) -> list[tuple[int, int, str]]:
    """(producer id, epoch, how it ended) of every marker in a partition."""
    data = bytes(client.fetch(topic, partition=partition).records)
    return [
        (header.producer_id, header.producer_epoch, decode_control_type(decode_batch(data, position)[0].key).name)  # type: ignore[union-attr]
        for position, header in iter_batches(data)
        if header.is_control
    ]


def committed_offset(
    client: WireClient, group: str, topic: str, *, partition: int = 0, require_stable: bool = False
) -> Message:
    """OffsetFetch's answer for one partition: `committed_offset` and `error_code`."""
    body = {
        "group_id": group,
        "topics": [{"name": topic, "partition_indexes": [partition]}],
        "require_stable": require_stable,
    }
    answer: Message = client.call(ApiKey.OFFSET_FETCH, 7, body).topics[0].partitions[0]
    return answer
