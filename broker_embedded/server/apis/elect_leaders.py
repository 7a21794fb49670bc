"""ElectLeaders (key 43), versions 0-2: the preferred leader, or any replica that is alive (unclean, from version 1).

An unclean election is held only for partitions without a leader, regardless of unclean.leader.election.enable: the
request asks for it. With all partitions asked for, those that need no election are left out of the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import map_result
from broker_embedded.common.types import TopicPartition
from broker_embedded.controller.partition_change import Election
from broker_embedded.controller.partition_requests import Elected
from broker_embedded.server.handling.replies import error_fields
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController

_ELECTIONS = {0: Election.PREFERRED, 1: Election.UNCLEAN}


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    if version >= 1:
        return {"error_code": int(error.code), "replica_election_results": []}
    asked = [TopicPartition(topic.topic, each) for topic in request.topic_partitions or () for each in topic.partitions]
    return _answer([(topic_partition, error) for topic_partition in asked])


def handle(ctx: RequestContext[HasController], request: Message) -> Response:
    election = _ELECTIONS.get(request.election_type)
    if election is None:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"election type: found {request.election_type}, wanted 0 (preferred) or 1"
        )
    asked = None
    if request.topic_partitions is not None:
        asked = [TopicPartition(topic.topic, each) for topic in request.topic_partitions for each in topic.partitions]
    return map_result(ctx.services.controller.partitions.elect_leaders(asked, election), _answer)


def _answer(outcomes: Elected) -> Body:
    topics: dict[str, list[Body]] = {}
    for (topic, partition), error in outcomes:
        topics.setdefault(topic, []).append(
            {
                "partition_id": partition,
                **error_fields(error),
            }
        )
    return {
        "error_code": 0,
        "replica_election_results": [
            {"topic": topic, "partition_result": partitions} for topic, partitions in topics.items()
        ],
    }
