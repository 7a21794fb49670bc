"""AlterPartition (key 56), versions 2-3: a leader asks for another ISR.

Refused unless the leader knows exactly what is committed, and for replicas that are fenced, shutting down or, from
version 3 on, in another incarnation than the leader has fetched from (INELIGIBLE_REPLICA). NEW_LEADER_ELECTED says that
the change was made, and that it ended a reassignment which takes the leader away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import map_result
from broker_embedded.controller.isr_changes import UNKNOWN_EPOCH, IsrChange, IsrResult
from broker_embedded.metadata.records import LeaderRecoveryState
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController


def handle(ctx: RequestContext[HasController], request: Message) -> Response:
    wanted = [
        _change(topic.topic_id, partition, ctx.api_version)
        for topic in request.topics
        for partition in topic.partitions
    ]

    def answer(results: list[IsrResult]) -> Body:
        following = iter(results)
        return {
            "error_code": 0,
            "topics": [
                {
                    "topic_id": topic.topic_id,
                    "partitions": [_result(each.partition_index, next(following)) for each in topic.partitions],
                }
                for topic in request.topics
            ],
        }

    changed = ctx.services.controller.partitions.change_isr(request.broker_id, request.broker_epoch, wanted)
    return map_result(changed, answer)


def _change(topic_id: bytes, partition: Message, version: int) -> IsrChange:
    if version >= 3:
        isr = [(each.broker_id, each.broker_epoch) for each in partition.new_isr_with_epochs]
    else:
        isr = [(node, UNKNOWN_EPOCH) for node in partition.new_isr]
    try:
        recovery = LeaderRecoveryState(partition.leader_recovery_state)
    except ValueError:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"leader recovery state: found {partition.leader_recovery_state}, wanted 0 or 1"
        ) from None
    return IsrChange(
        topic_id=topic_id,
        partition=partition.partition_index,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=isr,
        recovery=recovery,
    )


def _result(partition: int, result: IsrResult) -> Body:
    body: Body = {"partition_index": partition, "error_code": int(result.error)}
    state = result.state
    if state is not None:
        body.update(
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            leader_recovery_state=int(state.leader_recovery_state),
            partition_epoch=state.partition_epoch,
        )
    return body
