"""Rules of the coordinator: responses and writes, pure.

Each function is given what is known of a transactional id and what somebody asks, and says what follows:

    Refused          answer this error, nothing changes
    Unchanged        answer success, nothing has to be written
    WriteTransaction            write this; when it is in the log it is the truth, and the client is answered
    FenceFirst       write this, which aborts for a newer producer; that one is told to come again meanwhile
    NeedsProducerId  decide again with a fresh producer id: the epochs have run out, or there is none yet

A transition that is being written is not seen here: the shard answers CONCURRENT_TRANSACTIONS before it asks.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker_embedded.common.types import TopicPartition
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

from .states import AT_REST, PREPARED, TransactionState
from .transaction import (
    EPOCH_BUMPED_AT_EVERY_END,
    LAST_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_TIMESTAMP,
    ProducerIdentity,
    Transaction,
)

_S = TransactionState


@fact
class Refused:
    error: ErrorCode


@fact
class Unchanged:
    transaction: Transaction


@fact
class WriteTransaction:
    transaction: Transaction


@fact
class FenceFirst:
    transaction: Transaction


@fact
class NeedsProducerId:
    pass


NEEDS_PRODUCER_ID = NeedsProducerId()

InitDecision = Refused | WriteTransaction | FenceFirst | NeedsProducerId
EnlistDecision = Refused | Unchanged | WriteTransaction


# -- InitProducerId


def init_producer(
    known: Transaction | None,
    *,
    transactional_id: str,
    timeout_ms: int,
    claimed: ProducerIdentity | None,
    now_ms: int,
    fresh_id: int | None,
) -> InitDecision:
    """Initialise a producer, or (with `claimed`, KIP-360) let one recover from an error under a new epoch.

    A starting producer always fences the one before. A recovering one is fenced itself if somebody came between.
    """
    if known is None:
        if fresh_id is None:
            return NEEDS_PRODUCER_ID
        return WriteTransaction(
            transaction=Transaction(
                transactional_id=transactional_id,
                producer_id=fresh_id,
                producer_epoch=0,
                timeout_ms=timeout_ms,
                updated_ms=now_ms,
            )
        )
    if claimed is not None and not _may_recover(known, claimed):
        return Refused(error=ErrorCode.PRODUCER_FENCED)
    if known.state in PREPARED:
        return Refused(error=ErrorCode.CONCURRENT_TRANSACTIONS)
    is_current = claimed is None or claimed == known.identity
    if known.state is _S.ONGOING:
        if not is_current:
            return Refused(error=ErrorCode.PRODUCER_FENCED)
        return FenceFirst(transaction=fence_and_abort(known, now_ms=now_ms, is_recovery=claimed is not None))
    # The answer to its last request got lost, or that request aborted a transaction first.
    is_repeated = claimed is not None and claimed.epoch == known.last_producer_epoch
    if not is_current and not is_repeated:
        return Refused(error=ErrorCode.PRODUCER_FENCED)
    if known.is_epoch_exhausted:
        if fresh_id is None:
            return NEEDS_PRODUCER_ID
        identity, previous_id = ProducerIdentity(fresh_id, 0), known.producer_id
    else:
        identity = ProducerIdentity(known.producer_id, known.producer_epoch + (0 if is_repeated else 1))
        previous_id = known.previous_producer_id
    return WriteTransaction(
        transaction=known.move_to(
            _S.EMPTY,
            now_ms=now_ms,
            timeout_ms=timeout_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            previous_producer_id=previous_id,
            last_producer_epoch=NO_PRODUCER_EPOCH if claimed is None else claimed.epoch,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
        )
    )


def _may_recover(known: Transaction, claimed: ProducerIdentity) -> bool:
    """Return whether the claimed id is the current one, or the one whose epochs were exhausted right before it."""
    if claimed.producer_id == known.producer_id or claimed == known.goes_on_as:
        return True
    return claimed.producer_id == known.previous_producer_id and claimed.epoch >= LAST_EPOCH


def fence_and_abort(ongoing: Transaction, *, now_ms: int, is_recovery: bool = False) -> Transaction:
    """Raise the epoch, so that the producer is refused wherever it writes, and decide to abort.

    Where every end raises the epoch by one, this raises it by two: the producer must not take it for its own abort.
    `is_recovery`: the producer itself wants it (KIP-360); the old epoch is kept, by which it will ask again.
    """
    raised_by = 2 if ongoing.client_version >= EPOCH_BUMPED_AT_EVERY_END else 1
    fenced = ongoing.move_to(
        _S.PREPARE_EPOCH_FENCE,
        now_ms=now_ms,
        producer_epoch=min(ongoing.producer_epoch + raised_by, LAST_EPOCH + 1),
        last_producer_epoch=ongoing.producer_epoch if is_recovery else NO_PRODUCER_EPOCH,
    )
    return fenced.move_to(_S.PREPARE_ABORT, now_ms=now_ms)


# -- AddPartitionsToTxn, AddOffsetsToTxn


def add_partitions(
    known: Transaction | None,
    producer: ProducerIdentity,
    partitions: Iterable[TopicPartition],
    *,
    now_ms: int,
    client_version: int,
) -> EnlistDecision:
    """Return partitions become part of the transaction, which begins with the first."""
    error = check_identity(known, producer)
    if error is not ErrorCode.NONE or known is None:
        return Refused(error=error)
    if known.state in PREPARED:
        return Refused(error=ErrorCode.CONCURRENT_TRANSACTIONS)
    wanted = frozenset(partitions)
    if known.state is _S.ONGOING and wanted <= known.partitions:
        return Unchanged(transaction=known)
    return WriteTransaction(
        transaction=known.move_to(
            _S.ONGOING,
            now_ms=now_ms,
            partitions=known.partitions | wanted,
            start_ms=now_ms if known.state in AT_REST else known.start_ms,
            client_version=client_version,
        )
    )


def verify_partitions(
    known: Transaction | None, producer: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Return per partition whether it is part of the producer's open transaction, so that a leader may append
    (KIP-890).
    """
    error = check_identity(known, producer)
    if error is ErrorCode.NONE and known is not None and known.state in PREPARED:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    if error is not ErrorCode.NONE or known is None:
        return dict.fromkeys(partitions, error)
    open_partitions = known.partitions if known.state is _S.ONGOING else frozenset()
    return {
        partition: ErrorCode.NONE if partition in open_partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }


def check_identity(known: Transaction | None, producer: ProducerIdentity) -> ErrorCode:
    if known is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer == known.goes_on_as:
        return ErrorCode.NONE
    if known.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != producer.epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


# -- time


def is_timed_out(transaction: Transaction, *, now_ms: int) -> bool:
    return transaction.state is _S.ONGOING and transaction.start_ms + transaction.timeout_ms < now_ms


def is_expired(transaction: Transaction, *, now_ms: int, expiration_ms: int) -> bool:
    """Return whether the transactional id expired."""
    return transaction.state in AT_REST and transaction.updated_ms + expiration_ms <= now_ms
