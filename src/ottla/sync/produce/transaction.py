"""Transactions over librdkafka: the calls, their retries, and the context manager that commits or aborts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from confluent_kafka import KafkaException, TopicPartition

from ottla.errors import ConfigError, FencedError
from ottla.producer import TransactionEvent, TransactionStates
from ottla.producer.transaction_steps import TransactionCalls, TransactionInProgress
from ottla.records import Record
from ottla.stepping import run
from ottla.sync.produce.produce_errors import ErrorTranslator

if TYPE_CHECKING:
    from ottla.sync.produce.producer import Producer

_PURGE_EVERY_S: Final = 0.5
"""Each call of the client's abort gives up what waits to be sent. What was on its way and is to be tried again waits
behind that, and is given up by the next call."""


class TransactionRunner(TransactionCalls):
    """Makes the calls of a transactional producer, in the order that `TransactionSteps` says."""

    def __init__(
        self, producer: Producer[Any, Any], client: Any, states: TransactionStates, errors: ErrorTranslator
    ) -> None:
        super().__init__(_Calls(self, producer, client), states, errors)
        producer._reports.tracker.on_failure = self.failures.add

    def initialize(self, timeout_s: float) -> None:
        """Fence earlier producers with the same transactional.id, and have what they left open aborted. Once."""
        run(self.steps.initialize(timeout_s))

    run = staticmethod(run)

    def call(self, function: Callable[[float], Any], name: str, timeout_s: float) -> None:
        """Call the client, retry while the coordinator says so, and set the state by the result."""
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = max(0.05, deadline - time.monotonic())
            try:
                function(left_s)
                return
            except KafkaException as error:
                problem = error.args[0]
                explained = self._errors.of_call(problem, what=self.what(name))
                is_fenced = isinstance(explained, FencedError)
                if problem.fatal() and not is_fenced:
                    self.states.on(TransactionEvent.BROKE)
                elif problem.txn_requires_abort() and not is_fenced:
                    self.states.on(TransactionEvent.FAILED)
                elif problem.retriable() and not is_fenced and time.monotonic() < deadline:
                    time.sleep(min(0.05, max(0.0, deadline - time.monotonic())))
                    continue
                elif problem.retriable() and not is_fenced:
                    self.steps.timed_out()
                else:
                    self.refused_with(explained)
                raise explained from error


class _Calls:
    """librdkafka's calls of a transaction."""

    def __init__(self, runner: TransactionRunner, producer: Producer[Any, Any], client: Any) -> None:
        self._call = runner.call
        self._producer = producer
        self._client = client
        self._runner = runner
        self.still_out = producer._still_out

    def initialize(self, timeout_s: float) -> None:
        self._call(self._client.init_transactions, "init_transactions", timeout_s)

    def begin(self, timeout_s: float) -> None:
        self._call(lambda _: self._client.begin_transaction(), "begin_transaction", timeout_s)

    def send_offsets(self, offsets: Any, group: Any, timeout_s: float) -> None:
        metadata = _group_metadata(group)
        if offsets:
            self.send_joined(offsets, metadata, timeout_s)

    def send_joined(self, positions: Mapping[Any, int], member: Any, timeout_s: float) -> None:
        wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
        self._call(
            lambda left_s: self._client.send_offsets_to_transaction(wanted, member, left_s),
            "send_offsets_to_transaction",
            timeout_s,
        )

    def commit(self, timeout_s: float, *, is_first: bool) -> None:
        self._call(self._client.commit_transaction, "commit_transaction", timeout_s)  # may be asked twice

    def abort(self, timeout_s: float) -> None:
        self._producer._buffer.give_up_held()  # what waits for its topic's partitions: librdkafka does not know of it
        self._call(
            lambda left_s: self._client.abort_transaction(min(left_s, _PURGE_EVERY_S)), "abort_transaction", timeout_s
        )
        self._producer._settle(timeout_s)  # a report that comes late must not count for the next transaction

    def settle(self, timeout_s: float) -> None:
        """Wait until each record is settled. Behind a refused record, one that librdkafka retries is neither sent nor
        failed."""
        self._producer._settle(timeout_s, should_abort=self._cannot_commit)
        self._cannot_commit()

    def _cannot_commit(self) -> bool:
        """Return whether the transaction cannot be committed. Raises the client's error, if that is all that is
        known."""
        failures = self._runner.failures
        if failures.has_reason:
            return True
        if failures.has_any or self._producer._reports.has_unreported:
            try:
                self._client.begin_transaction()  # refused while one is open: with the reason, if that must be aborted
            except KafkaException as error:
                problem = error
                if problem.args[0].txn_requires_abort():
                    self._call(lambda _: _raise(problem), "commit_transaction", 0)
        return False

    def forget_failures(self) -> None:
        self._producer._reports.tracker.take_failures()


class Transaction(TransactionInProgress):
    """One transaction: the block of `with producer.transaction()`."""

    def send_offsets(self, offsets: Mapping[Any, int] | Iterable[Record[Any]], consumer: Any) -> None:
        """Commit consumed offsets with the transaction.

        With Ottla's `Consumer(..., commit=InTransactions())`: `send_offsets(records, consumer)`, all records that were
        taken from it and are in no transaction yet, in any order. They are done when the transaction is committed; when
        it is aborted, they are given out again. With a confluent-kafka consumer, or its group metadata:
        `send_offsets({(topic, partition): offset of the next record}, consumer)`; its group must not commit by itself.

        Raises `RetriableError` when a partition was given to another member since.
        """
        run(self._steps.send_offsets(offsets, consumer, self._timeout_s))

    def commit(self) -> None:
        """Commit now. The block does it by itself; after its `BrokerUnavailable` this asks for the outcome again."""
        run(self._steps.commit(self._timeout_s))

    def abort(self) -> None:
        """Abort now. The block does it by itself when it ends with an exception."""
        run(self._steps.abort(self._timeout_s))

    def __enter__(self) -> Transaction:
        run(self.beginning())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run(self._steps.leave(error, self._timeout_s))


def _group_metadata(group: Any) -> Any:
    ask = getattr(group, "consumer_group_metadata", None)
    metadata = group if ask is None else ask()
    if isinstance(metadata, str) or metadata is None:
        raise ConfigError(
            f"send_offsets: found {group!r}, wanted the consumer that read the records (its member and generation "
            "are checked, so that a consumer that lost the partition cannot commit)"
        )
    return metadata


def _raise(error: BaseException) -> NoReturn:
    raise error
