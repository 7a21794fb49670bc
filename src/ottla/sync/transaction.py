"""Transactions over librdkafka: the calls, their retries, and the context manager that commits or aborts (P9)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, TopicPartition

from ottla.errors import BrokerUnavailable, ConfigError, FencedError, LifecycleError, OttlaError
from ottla.producer import TransactionEvent, TransactionState, TransactionStates, delivery_error
from ottla.sync.produce_errors import ErrorTranslator

if TYPE_CHECKING:
    from ottla.sync.producer import Producer


class TransactionRunner:
    """Carries out what the table of states allows. One per transactional producer."""

    def __init__(self, producer: Producer, client: Any, states: TransactionStates, errors: ErrorTranslator) -> None:
        self.states = states
        self._producer = producer
        self._client = client
        self._errors = errors

    def initialize(self, timeout_s: float) -> None:
        """Fence earlier producers with the same transactional.id, and have what they left open aborted. Once."""
        if self.states.state is TransactionState.NOT_INITIALIZED:
            self._call(self._client.init_transactions, "init_transactions", timeout_s)
            self.states.on(TransactionEvent.INITIALIZED)

    def begin(self, timeout_s: float) -> None:
        """Open a transaction."""
        self.initialize(timeout_s)
        self.states.on(TransactionEvent.BEGIN)
        self._call(lambda _: self._client.begin_transaction(), "begin_transaction", timeout_s)

    def send_offsets(self, offsets: Mapping[Any, int], group: Any, timeout_s: float) -> None:
        """Commit a group's offsets with the transaction. An offset is that of the next record to read."""
        self.states.check_can_send()
        positions = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        metadata = _group_metadata(group)
        self._call(
            lambda left_s: self._client.send_offsets_to_transaction(positions, metadata, left_s),
            "send_offsets_to_transaction",
            timeout_s,
        )

    def commit(self, timeout_s: float) -> None:
        """Commit, or abort and raise: DeliveryError when a record was not delivered.

        After `BrokerUnavailable` the outcome is open, and it may be called again.
        """
        if self.states.state is TransactionState.OPEN:
            # librdkafka knows of records that it gave up, not of those it refused at once
            self._producer.settle(timeout_s)
            failures, total = self._producer.reports.tracker.take_failures()
            undelivered = delivery_error(failures, total, [])
            if undelivered is not None:
                self.abort(timeout_s)
                raise undelivered
        self.states.on(TransactionEvent.COMMIT)
        try:
            self._call(self._client.commit_transaction, "commit_transaction", timeout_s)
        except OttlaError as error:
            if self.states.state is not TransactionState.MUST_ABORT:
                raise
            failures, total = self._producer.reports.tracker.take_failures()
            self.abort(timeout_s)
            raise delivery_error(failures, total, []) or error from error
        self.states.on(TransactionEvent.COMMITTED)

    def abort(self, timeout_s: float) -> None:
        """Abort: no read_committed consumer will see what was sent."""
        self.states.on(TransactionEvent.ABORT)
        self._call(self._client.abort_transaction, "abort_transaction", timeout_s)
        self.states.on(TransactionEvent.ABORTED)
        self._producer.reports.tracker.take_failures()  # what was not delivered was not to be seen either

    def abort_if_open(self, timeout_s: float = 10.0) -> None:
        """On close: leave nothing open for the transaction timeout to find. An open one would hold up consumers."""
        if self.states.state in (TransactionState.OPEN, TransactionState.MUST_ABORT, TransactionState.ABORTING):
            try:
                self.abort(timeout_s)
            except OttlaError:
                pass  # the coordinator aborts it after transaction.timeout.ms

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
                    self.states.on(TransactionEvent.WAS_FENCED)
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

    def send_offsets(self, offsets: Mapping[Any, int], consumer: Any) -> None:
        """Commit consumed offsets with the transaction: `{(topic, partition): offset of the next record}`.

        `consumer` is who read them: a confluent-kafka consumer, or its group metadata. Its group must not commit them
        by itself.
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
            self._runner.commit(self._timeout_s)
            return
        try:
            self._runner.abort(self._timeout_s)
        except FencedError:
            raise  # matters more than what ended the block, which stays its context
        except LifecycleError as also:
            error.add_note(f"the transaction was not aborted: {also}")
        except OttlaError as also:
            error.add_note(f"the abort is not settled; transaction.timeout.ms will: {also}")


def _group_metadata(group: Any) -> Any:
    ask = getattr(group, "consumer_group_metadata", None)
    metadata = group if ask is None else ask()
    if isinstance(metadata, str) or metadata is None:
        raise ConfigError(
            f"send_offsets: found {group!r}, wanted the consumer that read the records (its member and generation "
            "are checked, so that a consumer that lost the partition cannot commit)"
        )
    return metadata
