"""The coordinator's state of one transactional id. Immutable: a step returns the next one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from broker_embedded.common.types import TopicPartition
from ottla_wire.facts import fact

from .states import VALID_PREVIOUS, TransactionState

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1

LAST_EPOCH = 2**15 - 2
"""The last epoch that a producer is given. One more is kept for the marker that ends its transaction."""

EPOCH_BUMPED_AT_EVERY_END = 2
"""The transaction.version (KIP-890) from which each end of a transaction raises the epoch."""


class ProducerIdentity(NamedTuple):
    """A request's producer id and epoch."""

    producer_id: int
    epoch: int


@fact
class Transaction:
    transactional_id: str
    producer_id: int
    timeout_ms: int
    updated_ms: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before the last bump that the producer asked for itself (KIP-360): it may ask again. Not stored."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The id whose epochs ran out before this one."""
    next_producer_id: int = NO_PRODUCER_ID
    """The id that follows when the prepared end is complete, because this one's epochs have run out."""
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    client_version: int = 0
    """The transaction.version that the client spoke last."""

    def move_to(self, state: TransactionState, *, now_ms: int, **changes: Any) -> Transaction:
        """Return the next step; a step that the table does not have is a bug."""
        if self.state not in VALID_PREVIOUS[state]:
            raise AssertionError(f"{self.transactional_id!r}: {self.state.label} cannot become {state.label}")
        return replace(self, state=state, updated_ms=now_ms, **changes)

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def goes_on_as(self) -> ProducerIdentity:
        """Return the producer id and epoch after the end. A new id is known once the end is decided."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdentity(self.next_producer_id, 0)
        return self.identity

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_EPOCH

    @property
    def is_committing(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
