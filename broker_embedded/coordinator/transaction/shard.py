"""All transactional ids of one partition of `__transaction_state`.

A step is decided (`decisions`), written, and becomes the truth when the log has it; meanwhile other requests
for the same transactional id get CONCURRENT_TRANSACTIONS. So memory is never ahead of the log, and what a new
coordinator replays is what the clients of the old one were answered. The leader of the partition finishes a decided
transaction: markers go to every leader, then the end is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.errors import BrokerError
from ottla_wire.protocol import ErrorCode

from ..runtime.errors import client_error
from ..runtime.recurring import Recurring
from ..runtime.reply import Reply
from ..runtime.shard import CoordinatorRecord, ShardContext
from . import decisions, endings, records
from .decisions import FenceFirst, NeedsProducerId, Refused, Unchanged, WriteTransaction
from .markers import Ending, MarkerOutcome, Markers
from .requests import AddPartitions, EndTransaction, Identified, InitProducer, PartitionsChecked
from .states import PREPARED, TransactionState
from .transaction import Transaction

log = logging.getLogger(__name__)

COMPLETION_RETRY_MS = 100
"""Between two attempts to write that a transaction is complete, while its partition takes no records."""

OnProducerId = Callable[[int | BrokerError], None]


class TransactionShard:
    """Implements `runtime.shard.Shard`."""

    def __init__(
        self,
        partition: int,
        context: ShardContext,
        *,
        config: Callable[[], BrokerConfig],
        markers: Markers,
        new_producer_id: Callable[[OnProducerId], None],
    ) -> None:
        self.partition = partition
        self._context = context
        self._config = config
        self._markers = markers
        self._new_producer_id = new_producer_id
        self._transactions: dict[str, Transaction] = {}
        self._being_written: set[str] = set()
        self._recurring = (
            Recurring(
                context,
                lambda: config().transaction_abort_timed_out_transaction_cleanup_interval_ms,
                self.abort_timed_out,
            ),
            Recurring(
                context,
                lambda: config().transaction_remove_expired_transaction_cleanup_interval_ms,
                self.forget_expired,
            ),
        )

    # -- Shard

    def replay(self, record: CoordinatorRecord, *, timestamp_ms: int, producer_id: int) -> None:
        decoded = records.decode(record)
        if decoded is None:
            log.warning("__transaction_state-%d: a record of an unknown kind is ignored", self.partition)
            return
        transactional_id, transaction = decoded
        if transaction is None:
            self._transactions.pop(transactional_id, None)
        else:
            self._transactions[transactional_id] = transaction

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Do nothing: this topic has no transactions itself."""

    def on_loaded(self) -> None:
        prepared = [each.transactional_id for each in self._transactions.values() if each.state in PREPARED]
        if prepared:
            # What was replayed may not be on every replica yet: a decision that could still get lost tells nobody.
            self._context.when_replicated(lambda: self._finish_all(prepared))
        for work in self._recurring:
            work.start()

    def unload(self, error: ErrorCode) -> None:
        for work in self._recurring:
            work.stop()
        self._markers.forget(self.partition)

    # -- reading

    def get(self, transactional_id: str) -> Transaction | None:
        return self._transactions.get(transactional_id)

    def transactions(self) -> list[Transaction]:
        return list(self._transactions.values())

    # -- requests

    def init_producer(self, request: InitProducer, reply: Reply[Identified], *, fresh_id: int | None = None) -> None:
        transactional_id = request.transactional_id
        if transactional_id in self._being_written:
            reply.settle(Identified(error=ErrorCode.CONCURRENT_TRANSACTIONS))
            return
        decision = decisions.init_producer(
            self._transactions.get(transactional_id),
            transactional_id=transactional_id,
            timeout_ms=request.timeout_ms,
            claimed=request.claimed,
            now_ms=self._context.now_ms(),
            fresh_id=fresh_id,
        )
        match decision:
            case Refused():
                reply.settle(Identified(error=decision.error))
            case NeedsProducerId():
                self._with_producer_id(reply, lambda new: self.init_producer(request, reply, fresh_id=new))
            case WriteTransaction():
                self._write_and_identify(decision.transaction, reply)
            case FenceFirst():
                self._write(decision.transaction, lambda error: reply.settle(_come_again(error)))

    def add_partitions(self, request: AddPartitions, reply: Reply[PartitionsChecked]) -> None:
        if request.transactional_id in self._being_written:
            reply.settle(PartitionsChecked(error=ErrorCode.CONCURRENT_TRANSACTIONS))
            return
        decision = decisions.add_partitions(
            self._transactions.get(request.transactional_id),
            request.producer,
            request.partitions,
            now_ms=self._context.now_ms(),
            client_version=request.client_version,
        )
        match decision:
            case Refused():
                reply.settle(PartitionsChecked(error=decision.error))
            case Unchanged():
                reply.settle(PartitionsChecked())
            case WriteTransaction():
                self._write(decision.transaction, lambda error: reply.settle(PartitionsChecked(error=error)))

    def verify_partitions(self, request: AddPartitions) -> PartitionsChecked:
        """Check partitions without a change. A transaction that is being written is judged by its previous state."""
        known = self._transactions.get(request.transactional_id)
        return PartitionsChecked(partitions=decisions.verify_partitions(known, request.producer, request.partitions))

    def end_transaction(
        self, request: EndTransaction, reply: Reply[Identified], *, fresh_id: int | None = None
    ) -> None:
        transactional_id = request.transactional_id
        if transactional_id in self._being_written:
            reply.settle(Identified(error=ErrorCode.CONCURRENT_TRANSACTIONS))
            return
        decision = endings.end_transaction(
            self._transactions.get(transactional_id),
            request.producer,
            commit=request.commit,
            now_ms=self._context.now_ms(),
            client_version=request.client_version,
            fresh_id=fresh_id,
        )
        match decision:
            case Refused():
                reply.settle(Identified(error=decision.error))
            case Unchanged():
                reply.settle(_identified(ErrorCode.NONE, decision.transaction))
            case NeedsProducerId():
                self._with_producer_id(reply, lambda new: self.end_transaction(request, reply, fresh_id=new))
            case WriteTransaction():
                self._write_and_identify(decision.transaction, reply)

    def _write_and_identify(self, wanted: Transaction, reply: Reply[Identified]) -> None:
        self._write(wanted, lambda error: reply.settle(_identified(error, wanted)))

    def _with_producer_id(self, reply: Reply[Identified], then: Callable[[int], None]) -> None:
        """Request a producer id, then decide again: the state may have changed meanwhile."""

        def got(answer: int | BrokerError) -> None:
            if isinstance(answer, BrokerError):
                reply.settle(Identified(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            else:
                then(answer)

        self._new_producer_id(got)

    # -- time

    def abort_timed_out(self) -> None:
        """Fence producers whose transactions exceed their timeout, and abort the transactions."""
        now_ms = self._context.now_ms()
        for transaction in self.transactions():
            if transaction.transactional_id in self._being_written:
                continue
            if decisions.is_timed_out(transaction, now_ms=now_ms):
                log.info(
                    "transaction of %r is aborted: open for more than %d ms",
                    transaction.transactional_id,
                    transaction.timeout_ms,
                )
                self._write(decisions.fence_and_abort(transaction, now_ms=now_ms), _report_unwritten)

    def forget_expired(self) -> None:
        now_ms, expiration_ms = self._context.now_ms(), self._config().transactional_id_expiration_ms
        expired = [
            each.move_to(TransactionState.DEAD, now_ms=now_ms).transactional_id
            for each in self.transactions()
            if each.transactional_id not in self._being_written
            and decisions.is_expired(each, now_ms=now_ms, expiration_ms=expiration_ms)
        ]
        if not expired:
            return
        self._being_written.update(expired)

        def done(error: ErrorCode) -> None:
            self._being_written.difference_update(expired)
            if error is ErrorCode.NONE:
                for transactional_id in expired:
                    self._transactions.pop(transactional_id, None)

        self._context.append([records.tombstone(each) for each in expired], done)

    # -- writing and finishing

    def _write(self, wanted: Transaction, on_done: Callable[[ErrorCode], None]) -> None:
        """Append a step, make it the truth, finish it if it was a decision, and then answer."""
        transactional_id = wanted.transactional_id
        self._being_written.add(transactional_id)

        def done(error: ErrorCode) -> None:
            self._being_written.discard(transactional_id)
            if error is ErrorCode.NONE:
                self._transactions[transactional_id] = wanted
                if wanted.state in PREPARED:
                    # Before the answer: with every leader at hand the client finds its transaction complete.
                    self._finish(wanted)
            on_done(client_error(error))

        self._context.append([records.encode(wanted)], done)

    def _finish_all(self, transactional_ids: list[str]) -> None:
        for transactional_id in transactional_ids:
            transaction = self._transactions.get(transactional_id)
            if transaction is not None and transaction.state in PREPARED:
                self._finish(transaction)

    def _finish(self, prepared: Transaction) -> None:
        if not prepared.partitions:
            self._complete(prepared)
            return

        def on_outcome(outcome: MarkerOutcome) -> None:
            if outcome is MarkerOutcome.FENCED:
                log.warning("%r is finished by a newer coordinator", prepared.transactional_id)
            else:
                self._complete(prepared)

        self._markers.send(
            Ending(
                state_partition=self.partition,
                transactional_id=prepared.transactional_id,
                producer=prepared.identity,
                committed=prepared.is_committing,
                partitions=prepared.partitions,
                coordinator_epoch=self._context.leader_epoch(),
                client_version=prepared.client_version,
            ),
            on_outcome,
        )

    def _complete(self, prepared: Transaction) -> None:
        if self._transactions.get(prepared.transactional_id) is not prepared:
            return
        completed = endings.complete(prepared, now_ms=self._context.now_ms())

        def written(error: ErrorCode) -> None:
            if error in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                return
            log.info("the end of %r is not written yet: %s", prepared.transactional_id, error.name)
            retry_at_ms = self._context.monotonic_ms() + COMPLETION_RETRY_MS
            self._context.call_at(retry_at_ms, lambda: self._complete(prepared))

        self._write(completed, written)


def _identified(error: ErrorCode, transaction: Transaction) -> Identified:
    if error is not ErrorCode.NONE:
        return Identified(error=error)
    return Identified(identity=transaction.goes_on_as)


def _come_again(error: ErrorCode) -> Identified:
    """Refuse with CONCURRENT_TRANSACTIONS while the producer's earlier transaction is being aborted."""
    return Identified(error=ErrorCode.CONCURRENT_TRANSACTIONS if error is ErrorCode.NONE else error)


def _report_unwritten(error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        log.info("a timed out transaction could not be aborted yet: %s", error.name)
