"""Produce (key 0), versions 3-13; ApiVersions lists it from 0 (KAFKA-18659).

An older librdkafka that does not see version 0 silently sends uncompressed batches.

Each partition is appended and answered on its own; one partition's error leaves the others alone. acks=0 gets no
response, and an error then closes the connection, as Kafka does, so that the client looks up the metadata again.
acks=all waits for the in-sync replicas. From version 10 a partition that moved names its new leader (KIP-951).
The first batch of a transaction at a partition is confirmed by the transaction coordinator; from version 12 on the
partition becomes part of the transaction that way (KIP-890, `server.handling.transaction_guard`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import Promise
from broker_embedded.common.types import INTERNAL_TOPICS, TopicPartition
from broker_embedded.replication.partition import Partition
from broker_embedded.server.handling.endpoints import current_leader, leader_endpoints
from broker_embedded.server.handling.transaction_guard import NO_REFUSALS, Refusals, guarded
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasFaults, HasLoop, HasMetadata, HasReplicas, HasTransactions

    class Needs(HasLoop, HasMetadata, HasReplicas, HasTransactions, HasFaults, Protocol): ...


Waiting = dict[TopicPartition, tuple[Partition, int]]


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    """Return the response to a request that is refused as a whole: every partition has the error."""
    return {
        "responses": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partition_responses": [_refused(each.index, error) for each in topic.partition_data],
            }
            for topic in request.topic_data
        ]
    }


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    acks = request.acks
    if acks not in (-1, 0, 1):
        raise BrokerError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks: found {acks}, wanted -1, 0 or 1")
    if request.transactional_id is not None:
        return guarded(ctx, request, lambda refusals: _append(ctx, request, refusals))
    return _append(ctx, request, NO_REFUSALS)


def _append(ctx: RequestContext[Needs], request: Message, refusals: Refusals) -> Response:
    acks = request.acks
    replicas = ctx.services.replicas
    faults = ctx.services.faults
    uses_ids = ctx.api_version >= 13
    names = ctx.services.metadata.image.topic_names
    waiting: Waiting = {}
    answers: dict[TopicPartition, Body] = {}
    failed = False
    responses: list[Body] = []
    for topic in request.topic_data:
        name = names.get(topic.topic_id) if uses_ids else topic.name
        partition_responses: list[Body] = []
        for data in topic.partition_data:
            index = data.index
            try:
                if name is None:
                    raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
                topic_partition = TopicPartition(name, index)
                if name in INTERNAL_TOPICS:
                    raise BrokerError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal: clients cannot write to it"
                    )
                if data.records is None:
                    raise BrokerError(ErrorCode.INVALID_RECORD, f"{topic_partition}: no records")
                if faults.is_armed:
                    faults.check_partition(ApiKey.PRODUCE, ctx.client_id, request, name, index)
                if refusals and topic_partition in refusals:
                    raise refusals[topic_partition]
                partition, info = replicas.append_to_leader(topic_partition, data.records, acks=acks)
            except BrokerError as error:
                failed = True
                answer = _refused(index, error)
                if name is not None and error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    answer.update(current_leader(ctx.services.metadata.image, TopicPartition(name, index)))
            else:
                answer = {
                    "index": index,
                    "error_code": 0,
                    "base_offset": info.base_offset,
                    "log_append_time_ms": info.log_append_time_ms,
                    "log_start_offset": info.log_start_offset,
                    "record_errors": (),
                    "error_message": None,
                }
                if acks == -1 and partition.log.high_watermark <= info.last_offset:
                    waiting[topic_partition] = (partition, info.last_offset + 1)
                    answers[topic_partition] = answer
            partition_responses.append(answer)
        key = {"topic_id": topic.topic_id} if uses_ids else {"name": name}
        responses.append({**key, "partition_responses": partition_responses})
    if acks == 0:
        if failed:
            ctx.connection.close()
        return None
    body: Body = {"responses": responses, "throttle_time_ms": 0}
    if failed and ctx.api_version >= 10:
        partitions = (each for topic in responses for each in topic["partition_responses"])
        body["node_endpoints"] = leader_endpoints(ctx.services.metadata.image, partitions)
    return _wait(ctx, request, body, waiting, answers) if waiting else body


def _wait(
    ctx: RequestContext[Needs], request: Message, body: Body, waiting: Waiting, answers: dict[TopicPartition, Body]
) -> Promise[Body]:
    """Answer when the in-sync replicas have everything. Records that time out stay in the log."""
    promise: Promise[Body] = Promise()
    replicas = ctx.services.replicas
    wanted = dict(waiting)

    def done(timed_out: bool) -> None:
        for topic_partition, (partition, end_offset) in wanted.items():
            code = replicas.acknowledgement(partition, end_offset, timed_out=timed_out)
            if code:
                answers[topic_partition].update(error_code=int(code), base_offset=-1)
        if not promise.done():
            promise.set_result(body)

    operation = replicas.wait_for_replication(waiting, timeout_ms=max(request.timeout_ms, 0), on_done=done)
    promise.add_done_callback(lambda _: replicas.produces.cancel(operation))
    return promise


def _refused(index: int, error: BrokerError) -> Body:
    return {
        "index": index,
        "error_code": int(error.code),
        "base_offset": -1,
        "log_append_time_ms": -1,
        "log_start_offset": -1,
        "record_errors": [
            {"batch_index": each.batch_index, "batch_index_error_message": each.message} for each in error.record_errors
        ],
        "error_message": error.message or None,
    }
