"""The level at which a fault acts: on the request as a whole, inside the handler, or on entries of the response.

Errors of single partitions and groups are raised where real ones are, so that the rest of the request gets real
results. For an API that changes something, its handler asks before the change; for one that only reads, the response is
computed, and the selected entries get the error instead.
"""

from __future__ import annotations

from enum import Enum

from broker_embedded.cluster.faults.actions import Action, Corrupt, Fail, Phase
from broker_embedded.cluster.faults.selector import Selector
from ottla_wire.protocol import ApiKey


class FaultLevel(Enum):
    """Component that applies a fault."""

    REQUEST = "request"
    """The injection around the handler, to the request or its answer as a whole."""
    HANDLER = "handler"
    """The handler, for each partition: it calls `check_partition`."""
    ANSWER = "answer"
    """The injection, on entries of the handler's answer."""


ASKED_BY_HANDLER = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.OFFSET_COMMIT,
        ApiKey.DELETE_RECORDS,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.ADD_PARTITIONS_TO_TXN,
    }
)
"""Their handlers call `check_partition` for each partition, before it is applied."""

READS = frozenset(
    {
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    }
)
"""They change nothing, so an error in the response is the only effect."""

READS_OF_GROUPS = frozenset(
    {ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE}
)
"""Questions about several groups in one request."""


def level_of(selector: Selector, action: Action, api: ApiKey) -> FaultLevel:
    """Return where the fault acts on a request of this API."""
    if isinstance(action, Corrupt):
        return FaultLevel.ANSWER
    if not isinstance(action, Fail):
        return FaultLevel.REQUEST
    if selector.names_partitions:
        if api in READS or (action.phase is Phase.AFTER_APPLY and api in ASKED_BY_HANDLER):
            return FaultLevel.ANSWER
        return FaultLevel.HANDLER if api in ASKED_BY_HANDLER else FaultLevel.REQUEST
    return FaultLevel.ANSWER if selector.names_groups and api in READS_OF_GROUPS else FaultLevel.REQUEST
