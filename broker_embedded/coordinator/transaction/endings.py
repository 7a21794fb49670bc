"""Ends of transactions: EndTxn, repeated or not, and completion after all markers. Pure."""

from __future__ import annotations

from broker_embedded.common.types import TopicPartition
from ottla_wire.protocol import ErrorCode

from .decisions import NEEDS_PRODUCER_ID, NeedsProducerId, Refused, Unchanged, WriteTransaction, check_identity
from .states import PREPARED, TransactionState
from .transaction import EPOCH_BUMPED_AT_EVERY_END, LAST_EPOCH, NO_PRODUCER_ID, ProducerIdentity, Transaction

_S = TransactionState

EndDecision = Refused | Unchanged | WriteTransaction | NeedsProducerId


def end_transaction(
    known: Transaction | None,
    producer: ProducerIdentity,
    *,
    commit: bool,
    now_ms: int,
    client_version: int,
    fresh_id: int | None,
) -> EndDecision:
    """Return the producer commits or aborts. A repeated request is answered as the first was."""
    if known is None:
        return Refused(error=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if client_version >= EPOCH_BUMPED_AT_EVERY_END:
        return _end_with_bump(known, producer, commit=commit, now_ms=now_ms, fresh_id=fresh_id)
    error = check_identity(known, producer)
    if error is not ErrorCode.NONE:
        return Refused(error=error)
    if known.state is _S.ONGOING:
        state = _S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT
        # The marker follows this request's rules, not those of the requests before it: where the epoch has not risen,
        # a partition refuses a marker that claims it has, and the transaction would stay open there.
        return WriteTransaction(transaction=known.move_to(state, now_ms=now_ms, client_version=client_version))
    return _repeated_end(known, commit=commit)


def _end_with_bump(
    known: Transaction, producer: ProducerIdentity, *, commit: bool, now_ms: int, fresh_id: int | None
) -> EndDecision:
    """Increment the epoch with every end (KIP-890), so that a late batch or marker of one transaction cannot enter the
    next.

    The epoch therefore also tells a repeated request (it names the epoch before the bump) from the next one.
    """
    is_current = producer == known.goes_on_as
    is_same_id = is_current or known.producer_id == producer.producer_id
    was_last_epoch = known.previous_producer_id == producer.producer_id and producer.epoch == LAST_EPOCH
    is_rotated = was_last_epoch and known.producer_epoch == 0
    if not is_same_id and not is_rotated:
        return Refused(error=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_fence_at_the_last_epoch = known.producer_epoch > LAST_EPOCH and known.next_producer_id == NO_PRODUCER_ID
    is_bumped = is_same_id and known.producer_epoch == producer.epoch + 1 and not is_fence_at_the_last_epoch
    has_ended = known.state not in (_S.EMPTY, _S.ONGOING) and known.client_version >= EPOCH_BUMPED_AT_EVERY_END
    is_repeated = has_ended and (is_rotated or is_bumped)
    if not is_current and not is_repeated:
        return Refused(error=ErrorCode.PRODUCER_FENCED)
    if known.state in PREPARED and not is_repeated:
        # Already the next transaction, of a producer that was quick. Kafka answers PRODUCER_FENCED, and loses it.
        return Refused(error=ErrorCode.CONCURRENT_TRANSACTIONS)
    if known.state is not _S.ONGOING:
        if is_repeated:
            return _repeated_end(known, commit=commit)
        if commit:
            return Refused(error=ErrorCode.INVALID_TXN_STATE)
    next_id = NO_PRODUCER_ID
    if known.is_epoch_exhausted:
        if fresh_id is None:
            return NEEDS_PRODUCER_ID
        next_id = fresh_id
    return WriteTransaction(
        transaction=known.move_to(
            _S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT,
            now_ms=now_ms,
            producer_epoch=known.producer_epoch + 1,
            last_producer_epoch=known.producer_epoch,
            next_producer_id=next_id,
            start_ms=known.start_ms if known.state is _S.ONGOING else now_ms,
            client_version=EPOCH_BUMPED_AT_EVERY_END,
        )
    )


def _repeated_end(known: Transaction, *, commit: bool) -> EndDecision:
    if known.state is _S.EMPTY or known.is_committing is not commit:
        return Refused(error=ErrorCode.INVALID_TXN_STATE)
    if known.state in PREPARED:
        return Refused(error=ErrorCode.CONCURRENT_TRANSACTIONS)
    return Unchanged(transaction=known)


def complete(prepared: Transaction, *, now_ms: int) -> Transaction:
    """Complete the transaction after all markers were written."""
    state = _S.COMPLETE_COMMIT if prepared.state is _S.PREPARE_COMMIT else _S.COMPLETE_ABORT
    changes: dict[str, object] = {"partitions": frozenset[TopicPartition]()}
    if prepared.next_producer_id != NO_PRODUCER_ID:
        changes.update(
            producer_id=prepared.next_producer_id,
            producer_epoch=0,
            previous_producer_id=prepared.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )
    return prepared.move_to(state, now_ms=now_ms, **changes)
