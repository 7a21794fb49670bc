"""Transactions over librdkafka: the calls, their retries, and the context manager that commits or aborts (P9)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, runtime_checkable

from confluent_kafka import KafkaException, TopicPartition

from ottla.errors import BrokerUnavailable, ConfigError, FencedError, LifecycleError, OttlaError
from ottla.producer import TransactionEvent, TransactionFailures, TransactionState, TransactionStates
from ottla.records import Record
from ottla.sync.produce.produce_errors import ErrorTranslator
from ottla.telemetry import log_event

if TYPE_CHECKING:
    from ottla.sync.produce.producer import Producer


@runtime_checkable
class ReadsInTransactions(Protocol):
    """Ottla's own consumer, as a transaction sees it."""

    def join_transaction(self, records: Any, owner: object) -> tuple[Mapping[Any, int], Any]: ...

    def transaction_ended(self, owner: object, *, is_committed: bool) -> None: ...


class TransactionRunner:
    """Carries out what the table of states allows. One per transactional producer."""

    def __init__(
        self, producer: Producer[Any, Any], client: Any, states: TransactionStates, errors: ErrorTranslator
    ) -> None:
        self.states = states
        self.failures = TransactionFailures()
        producer.reports.tracker.also_tell = self.failures.add
        self._producer = producer
        self._client = client
        self._errors = errors
        self._readers: list[ReadsInTransactions] = []
        """Ottla's own consumers whose records are in the transaction."""

    def initialize(self, timeout_s: float) -> None:
        """Fence earlier producers with the same transactional.id, and have what they left open aborted. Once."""
        if self.states.state is TransactionState.NOT_INITIALIZED:
            self._call(self._client.init_transactions, "init_transactions", timeout_s)
            self.states.on(TransactionEvent.INITIALIZED)

    def begin(self, timeout_s: float) -> None:
        """Open a transaction, after settling the one before it where its outcome is open.

        Raises what came of that one when it was not committed after all, or `BrokerUnavailable` while nobody says.
        """
        self.initialize(timeout_s)
        self.settle_left_open(timeout_s)
        self.states.on(TransactionEvent.BEGIN)
        self.failures.begin()
        try:
            self._call(lambda _: self._client.begin_transaction(), "begin_transaction", timeout_s)
        except BaseException:
            self.abort_if_open(timeout_s)
            raise

    def settle_left_open(self, timeout_s: float) -> None:
        """Ask again for the commit or the abort that had no answer."""
        again = self.states.left_open
        if again is TransactionEvent.COMMIT:
            self.commit(timeout_s)
        elif again is TransactionEvent.ABORT:
            self.abort(timeout_s)

    def send_offsets(self, offsets: Any, group: Any, timeout_s: float) -> None:
        """Commit a group's offsets with the transaction. An offset is that of the next record to read."""
        self.states.check_can_send()
        try:
            if isinstance(group, ReadsInTransactions):
                if group not in self._readers:
                    self._readers.append(group)
                offsets, metadata = group.join_transaction(offsets, self)
            else:
                metadata = _group_metadata(group)
            positions = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
            if not positions:
                return
            self._call(
                lambda left_s: self._client.send_offsets_to_transaction(positions, metadata, left_s),
                "send_offsets_to_transaction",
                timeout_s,
            )
        except BaseException as error:
            self.failures.call_raised(error)
            raise

    def commit(self, timeout_s: float) -> None:
        """Commit, or abort and raise: DeliveryError when a record was not delivered, whoever has heard of it.

        After `BrokerUnavailable` the outcome is open, and it may be called again.
        """
        if self.states.is_in(TransactionState.MUST_ABORT):
            self._abort_because(self.failures.error() or self.states.refusal("commit"), timeout_s)
        is_first = self.states.is_in(TransactionState.OPEN)
        if is_first:
            self._producer.settle(timeout_s)
        self.states.on(TransactionEvent.COMMIT)  # from here on no other thread sends into it
        if is_first:
            # librdkafka knows of records that it gave up, not of those that were refused, or wait for their partition
            error = self.failures.error(*self._producer.still_out())
            if error is not None:
                self.states.on(TransactionEvent.FAILED)
                self._abort_because(error, timeout_s)
        try:
            self._call(self._client.commit_transaction, "commit_transaction", timeout_s)
        except OttlaError as error:
            if self.states.is_in(TransactionState.MUST_ABORT):
                self._abort_because(self.failures.error() or error, timeout_s)
            raise
        self.states.on(TransactionEvent.COMMITTED)
        self.failures.end()
        self._tell_readers(is_committed=True)

    def abort(self, timeout_s: float) -> None:
        """Abort: no read_committed consumer will see what was sent."""
        if self.failures.fenced is not None:
            self._was_fenced()
            raise self.failures.fenced
        self.states.on(TransactionEvent.ABORT)
        self._tell_readers(is_committed=False)  # it never will be
        self._producer.give_up_held()
        self._call(self._client.abort_transaction, "abort_transaction", timeout_s)
        self._producer.settle(timeout_s)  # a report that comes late must not count for the next transaction
        self.states.on(TransactionEvent.ABORTED)
        self.failures.end()
        self._producer.reports.tracker.take_failures()  # what was not delivered was not to be seen either

    def _tell_readers(self, *, is_committed: bool) -> None:
        readers, self._readers = self._readers, []
        for reader in readers:
            reader.transaction_ended(self, is_committed=is_committed)

    def abort_if_open(self, timeout_s: float) -> None:
        """Leave nothing open where nobody will abort it: the caller is raised something else already."""
        if self.states.is_in(TransactionState.OPEN, TransactionState.MUST_ABORT):
            self._quietly(self.abort, timeout_s)

    def end(self, timeout_s: float = 10.0) -> None:
        """On close: leave nothing open for the transaction timeout to find. An open one would hold up consumers."""
        self.abort_if_open(timeout_s)
        if self.states.left_open is not None:
            self._quietly(self.settle_left_open, timeout_s)

    def _quietly(self, settle: Callable[[float], None], timeout_s: float) -> None:
        try:
            settle(timeout_s)
        except OttlaError as error:  # the coordinator aborts it after transaction.timeout.ms
            fields = {"transactional_id": self.states.transactional_id, "error": str(error)}
            log_event("transaction_left_open", "warning", fields)

    def _abort_because(self, error: OttlaError, timeout_s: float) -> NoReturn:
        try:
            self.abort(timeout_s)
        except FencedError:
            raise
        except OttlaError as also:
            error.add_note(f"the abort is not settled, the next transaction begins with it: {also}")
        raise error

    def _was_fenced(self) -> None:
        """The end of this producer, of which its caller hears by FencedError: nothing of the transaction counts."""
        self.states.on(TransactionEvent.WAS_FENCED)
        self.failures.end()
        self._producer.reports.tracker.take_failures()

    def _call(self, function: Callable[[float], Any], name: str, timeout_s: float) -> None:
        """Call the client, again while the coordinator says later, and move the state by what comes of it."""
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = max(0.05, deadline - time.monotonic())
            try:
                function(left_s)
                return
            except KafkaException as error:
                problem = error.args[0]
                explained = self._errors.of_call(problem, what=f"transaction {self.states.transactional_id}, {name}")
                if isinstance(explained, FencedError):
                    self._was_fenced()
                elif problem.fatal():
                    self.states.on(TransactionEvent.BROKE)
                elif problem.txn_requires_abort():
                    self.states.on(TransactionEvent.FAILED)
                elif problem.retriable() and time.monotonic() < deadline:
                    time.sleep(min(0.05, max(0.0, deadline - time.monotonic())))
                    continue
                elif isinstance(explained, BrokerUnavailable) or problem.retriable():
                    if self.states.state is not TransactionState.OPEN:
                        self.states.on(TransactionEvent.TIMED_OUT)
                elif self.states.state is not TransactionState.READY:
                    self.states.on(TransactionEvent.FAILED)
                raise explained from error


class Transaction:
    """One transaction: the block of `with producer.transaction()`."""

    def __init__(self, runner: TransactionRunner, *, timeout_s: float) -> None:
        self._runner = runner
        self._timeout_s = timeout_s

    def send_offsets(self, offsets: Mapping[Any, int] | Iterable[Record[Any]], consumer: Any) -> None:
        """Commit consumed offsets with the transaction.

        With Ottla's `Consumer(..., commit=InTransactions())`: `send_offsets(records, consumer)`, all records that were
        taken from it and are in no transaction yet, in any order. They are done when the transaction is committed; when
        it is aborted, they are given out again. With a confluent-kafka consumer, or its group metadata:
        `send_offsets({(topic, partition): offset of the next record}, consumer)`; its group must not commit by itself.

        Raises `RetriableError` when a partition was given to another member since.
        """
        self._runner.send_offsets(offsets, consumer, self._timeout_s)

    def commit(self) -> None:
        """Commit now. The block does it by itself; after its `BrokerUnavailable` this asks for the outcome again."""
        self._runner.commit(self._timeout_s)

    def abort(self) -> None:
        """Abort now. The block does it by itself when it ends with an exception."""
        self._runner.abort(self._timeout_s)

    def __enter__(self) -> Transaction:
        self._runner.begin(self._timeout_s)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._runner.states.state is TransactionState.READY:  # committed or aborted by hand
            return
        if error is None:
            try:
                self._runner.commit(self._timeout_s)
            except BaseException:
                self._runner.abort_if_open(self._timeout_s)  # interrupted before the commit was asked for
                raise
            return
        try:
            self._runner.abort(self._timeout_s)
        except FencedError:
            raise  # matters more than what ended the block, which stays its context
        except LifecycleError as also:
            error.add_note(f"the transaction was not aborted: {also}")
        except OttlaError as also:
            error.add_note(f"the abort is not settled, the next transaction begins with it: {also}")


def _group_metadata(group: Any) -> Any:
    ask = getattr(group, "consumer_group_metadata", None)
    metadata = group if ask is None else ask()
    if isinstance(metadata, str) or metadata is None:
        raise ConfigError(
            f"send_offsets: found {group!r}, wanted the consumer that read the records (its member and generation "
            "are checked, so that a consumer that lost the partition cannot commit)"
        )
    return metadata
