"""A member of a share group that speaks the wire protocol frame by frame, to one broker that leads everything."""

from __future__ import annotations

import time
import uuid
from types import SimpleNamespace
from typing import Any

from wire_client import WireClient

from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message
from ottla_wire.records.batch import iter_batches
from ottla_wire.records.record import RecordData, encode_batch

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
NOTHING: Any = SimpleNamespace(error_code=0, acknowledge_error_code=0, records=None, acquired_records=[])
Ranges = list[tuple[int, int, int]]
"""First offset, last offset, delivery count."""


class ShareMember:
    """One member with a connection of its own. `join` and `fetch` open what is not open yet."""

    def __init__(self, bootstrap_servers: str, group_id: str, *, member_id: str | None = None) -> None:
        self.client = WireClient(bootstrap_servers, timeout_s=40)
        self.group_id = group_id
        self.member_id = str(uuid.uuid4()) if member_id is None else member_id
        self.member_epoch = 0
        self.session_epoch = 0
        self.topic_ids: dict[str, bytes] = {}
        self.assigned: dict[bytes, list[int]] = {}

    def close(self) -> None:
        self.client.close()

    # --- membership

    def heartbeat(self, epoch: int | None = None, topics: list[str] | None = None, **changes: Any) -> Message:
        body = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.member_epoch if epoch is None else epoch,
            "rack_id": None,
            "subscribed_topic_names": topics,
            **changes,
        }
        response = self.client.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, body)
        if response.error_code == ErrorCode.NONE:
            self.member_epoch = response.member_epoch
            if response.assignment is not None:
                self.assigned = {
                    bytes(each.topic_id): list(each.partitions) for each in response.assignment.topic_partitions
                }
        return response

    def join(self, *topics: str, timeout_s: float = 90) -> None:
        """Join and wait for an assignment: on a new Kafka that takes 30 s, until `__share_group_state` is there."""
        coordinator = {"key_type": 0, "coordinator_keys": [self.group_id]}
        deadline = time.monotonic() + timeout_s
        while self.client.call(ApiKey.FIND_COORDINATOR, 4, coordinator).coordinators[0].error_code:
            assert time.monotonic() < deadline, "no coordinator"
        while (response := self.heartbeat(0, list(topics))).error_code in NOT_YET:
            assert time.monotonic() < deadline, f"the coordinator answers {response.error_code}"
        assert response.error_code == ErrorCode.NONE, response.error_message
        while not self.assigned:
            assert time.monotonic() < deadline, "nothing was assigned"
            self.heartbeat()

    # --- records

    def topic_id(self, topic: str) -> bytes:
        known = self.topic_ids.get(topic)
        if known is None:
            wanted = {"topics": [{"topic_id": bytes(16), "name": topic}], "allow_auto_topic_creation": False}
            known = self.topic_ids[topic] = bytes(self.client.call(ApiKey.METADATA, 12, wanted).topics[0].topic_id)
        return known

    def request(self, topic: str, acks: Ranges | None = None, *, partition: int = 0, **changes: Any) -> dict[str, Any]:
        """Return a ShareFetch body. `acks`: first offset, last offset and type."""
        body = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1_000_000,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "topics": [self._topic(topic, partition, acks or [])],
            "forgotten_topics_data": [],
        }
        return {**body, **changes}

    def fetch_response(
        self, topic: str, acks: Ranges | None = None, *, partition: int = 0, version: int = 2, **changes: Any
    ) -> Message:
        body = self.request(topic, acks, partition=partition, **changes)
        if version < 2:
            del body["share_acquire_mode"], body["is_renew_ack"]
        response = self.client.call(ApiKey.SHARE_FETCH, version, body)
        self._advance(body["share_session_epoch"], response)
        return response

    def fetch(self, topic: str, acks: Ranges | None = None, *, partition: int = 0, **changes: Any) -> Any:
        """Return the answer for one partition; an empty one if it is not in the response."""
        response = self.fetch_response(topic, acks, partition=partition, **changes)
        assert response.error_code == ErrorCode.NONE, (response.error_code, response.error_message)
        for each in response.responses:
            for answer in each.partitions:
                if (each.topic_id, answer.partition_index) == (self.topic_id(topic), partition):
                    check_each_batch_comes_once(bytes(answer.records or b""))
                    return answer
        return NOTHING

    def acquire(self, topic: str, *, partition: int = 0, timeout_s: float = 15, **changes: Any) -> Ranges:
        """Fetch until something is acquired; returns (first, last, count) of each range."""
        deadline = time.monotonic() + timeout_s
        while True:
            answer = self.fetch(topic, partition=partition, **{"max_wait_ms": 500, **changes})
            assert answer.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), answer.error_message
            if answer.acquired_records:
                return ranges(answer)
            assert time.monotonic() < deadline, "nothing was acquired"

    def acknowledge_response(
        self, topic: str, acks: Ranges, *, partition: int = 0, version: int = 2, **changes: Any
    ) -> Message:
        body = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch,
            "is_renew_ack": False,
            "topics": [self._topic(topic, partition, acks)],
            **changes,
        }
        if version < 2:
            del body["is_renew_ack"]
        response = self.client.call(ApiKey.SHARE_ACKNOWLEDGE, version, body)
        self._advance(body["share_session_epoch"], response)
        return response

    def acknowledge(self, topic: str, first: int, last: int, kind: int, **changes: Any) -> ErrorCode:
        """Return the error of one range of one type."""
        response = self.acknowledge_response(topic, [(first, last, kind)], **changes)
        assert response.error_code == ErrorCode.NONE, (response.error_code, response.error_message)
        return ErrorCode.of(response.responses[0].partitions[0].error_code)

    def close_session(self, topic: str) -> None:
        body = self.request(topic, share_session_epoch=-1, topics=[])
        assert self.client.call(ApiKey.SHARE_FETCH, 2, body).error_code == ErrorCode.NONE
        self.session_epoch = 0

    def _topic(self, topic: str, partition: int, acks: Ranges) -> dict[str, Any]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": [kind]} for first, last, kind in acks
        ]
        partitions = [{"partition_index": partition, "acknowledgement_batches": batches}]
        return {"topic_id": self.topic_id(topic), "partitions": partitions}

    def _advance(self, epoch: int, response: Message) -> None:
        if response.error_code == ErrorCode.NONE:
            self.session_epoch = epoch + 1


def check_each_batch_comes_once(records: bytes) -> None:
    """A client that reads batch after batch delivers the records of a second copy again."""
    offsets = [header.base_offset for _, header in iter_batches(records)]
    assert offsets == sorted(set(offsets)), offsets


def ranges(answer: Any) -> Ranges:
    return [(each.first_offset, each.last_offset, each.delivery_count) for each in answer.acquired_records]


def set_group(kafka: WireClient, group_id: str, name: str, value: str) -> None:
    resource = {"resource_type": 32, "resource_name": group_id}
    body = {"resources": [{**resource, "configs": [{"name": name, "config_operation": 0, "value": value}]}]}
    response = kafka.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {**body, "validate_only": False}).responses[0]
    assert response.error_code == ErrorCode.NONE, response.error_message


def produce(kafka: WireClient, topic: str, records: int) -> None:
    now_ms = int(time.time() * 1000)  # what is old is deleted soon
    data = [RecordData(offset=each, timestamp_ms=now_ms, key=None, value=b"v", headers=[]) for each in range(records)]
    assert kafka.produce(topic, encode_batch(data)).error_code == ErrorCode.NONE
