"""ShareFetch, ShareAcknowledge and ShareGroupHeartbeat: from what the member decided to fields, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ottla.errors import BrokerUnavailable
from ottla.queues.core.acknowledgements import Place, SentAcknowledgements
from ottla.queues.core.effects import ShareAnswer, SharePartitionAnswer
from ottla.queues.core.membership import HeartbeatAnswer, HeartbeatRequest
from ottla.queues.core.share_session import ShareRequest
from ottla_wire.protocol import ApiKey, ErrorCode

_RECORD_LIMIT: Final = 1
"""`share.acquire.mode`: never more records than asked for (KIP-1206)."""

ReadRecords = Callable[[Place, Any, "list[tuple[int, int, int]]"], "tuple[dict[int, Any], str | None]"]
"""Reads the leased records of a partition out of its bytes. Returns them by offset, and why some cannot be read."""


def heartbeat_body(group: str, request: HeartbeatRequest, *, rack: str | None) -> dict[str, Any]:
    """Return the fields of a ShareGroupHeartbeat."""
    return {
        "group_id": group,
        "member_id": request.member_id,
        "member_epoch": request.member_epoch,
        "rack_id": rack if request.topics is not None else None,
        "subscribed_topic_names": None if request.topics is None else list(request.topics),
    }


def heartbeat_answer(response: Any) -> HeartbeatAnswer:
    """Return what a coordinator answered."""
    assigned = None
    if response.assignment is not None:
        assigned = [
            Place(bytes(topic.topic_id), number)
            for topic in response.assignment.topic_partitions
            for number in topic.partitions
        ]
    return HeartbeatAnswer(
        error=ErrorCode.of(response.error_code),
        message=response.error_message or "",
        member_epoch=response.member_epoch,
        interval_ms=response.heartbeat_interval_ms,
        assigned=assigned,
    )


def share_body(request: ShareRequest, *, group: str, member_id: str, max_bytes: int) -> tuple[ApiKey, dict[str, Any]]:
    """Return the API and the fields of a request."""
    body: dict[str, Any] = {
        "group_id": group,
        "member_id": member_id,
        "share_session_epoch": request.epoch,
        "is_renew_ack": request.renews,
        "topics": _topics(request.added, request.acknowledgements),
    }
    if not request.is_fetch:
        return ApiKey.SHARE_ACKNOWLEDGE, body
    forgotten = _by_topic(request.forgotten)
    body |= {
        "max_wait_ms": request.wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "max_records": request.max_records,
        "batch_size": request.max_records,
        "share_acquire_mode": _RECORD_LIMIT,
        "forgotten_topics_data": [
            {"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in forgotten.items()
        ],
    }
    return ApiKey.SHARE_FETCH, body


def share_answer(response: Any, read_records: ReadRecords) -> ShareAnswer:
    """Return what a broker answered. Raises `BrokerUnavailable` for ranges of offsets that cannot be."""
    return ShareAnswer(
        error=ErrorCode.of(response.error_code),
        lock_ms=max(0, getattr(response, "acquisition_lock_timeout_ms", 0)),
        partitions=[
            _partition_answer(Place(bytes(topic.topic_id), part.partition_index), part, read_records)
            for topic in response.responses
            for part in topic.partitions
        ],
    )


def _partition_answer(place: Place, part: Any, read_records: ReadRecords) -> SharePartitionAnswer:
    code = ErrorCode.of(part.error_code)
    if not hasattr(part, "acquired_records"):
        return SharePartitionAnswer(place=place, acknowledge_error=code)
    acquired = [(each.first_offset, each.last_offset, each.delivery_count) for each in part.acquired_records]
    for first, last, _ in acquired:
        if not 0 <= first <= last:
            raise BrokerUnavailable(
                f"a broker leased offsets {first} to {last} of partition {place.partition}: no such range can be"
            )
    records: dict[int, Any] = {}
    corrupt = None
    if acquired:
        records, corrupt = read_records(place, part.records, acquired)
    return SharePartitionAnswer(
        place=place,
        error=code,
        acknowledge_error=ErrorCode.of(part.acknowledge_error_code),
        acquired=acquired,
        records=records,
        corrupt=corrupt,
    )


def _topics(added: Iterable[Place], sent: Mapping[Place, SentAcknowledgements]) -> list[dict[str, Any]]:
    topics = _by_topic({*added, *sent})
    return [
        {
            "topic_id": topic_id,
            "partitions": [
                {"partition_index": number, "acknowledgement_batches": _batches(sent.get(Place(topic_id, number)))}
                for number in numbers
            ],
        }
        for topic_id, numbers in topics.items()
    ]


def _batches(sent: SentAcknowledgements | None) -> list[dict[str, Any]]:
    return [
        {"first_offset": each.first, "last_offset": each.last, "acknowledge_types": [int(each.kind)]}
        for each in (() if sent is None else sent.ranges)
    ]


def _by_topic(places: Iterable[Place]) -> dict[bytes, list[int]]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(places):
        topics.setdefault(topic_id, []).append(number)
    return topics
