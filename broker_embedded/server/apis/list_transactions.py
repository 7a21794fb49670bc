"""ListTransactions (key 66), versions 0 to 2: the transactional ids of this coordinator.

Filters by state and producer id (0), by how long a transaction is open (1, KIP-994), by a pattern that the whole id has
to match (2, KIP-1152). States that do not exist are named in the response, as Kafka does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.coordinator.group.consumer.topic_pattern import SubscriptionPattern
from broker_embedded.coordinator.transaction.states import TransactionState
from broker_embedded.coordinator.transaction.transaction import Transaction
from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasClock, HasTransactions

    class Needs(HasClock, HasTransactions, Protocol): ...


_LABELS = {state.label for state in TransactionState}


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    now_ms = ctx.services.clock.now_ms()
    states, producer_ids = set(request.state_filters), set(request.producer_id_filters)
    pattern = SubscriptionPattern(request.transactional_id_pattern) if request.transactional_id_pattern else None

    def is_wanted(each: Transaction) -> bool:
        if producer_ids and each.producer_id not in producer_ids:
            return False
        if states and each.state.label not in states:
            return False
        # An id without a transaction has started at -1, long ago: Kafka lists it too.
        is_long = now_ms - each.start_ms > request.duration_filter
        if request.duration_filter >= 0 and not is_long:
            return False
        return pattern is None or pattern.matches(each.transactional_id)

    return {
        "throttle_time_ms": 0,
        "error_code": 0,
        "unknown_state_filters": sorted(states - _LABELS),
        "transaction_states": [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "transaction_state": each.state.label,
            }
            for each in ctx.services.transactions.list_transactions()
            if is_wanted(each)
        ],
    }
