"""Transactions over aiokafka: the calls, and the context manager that commits or aborts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from ottla.aio.aiokafka_internals import transactions_of
from ottla.aio.client.transactional_groups import commit_in_transaction
from ottla.aio.produce.produce_errors import ErrorTranslator
from ottla.aio.produce.reports import Reports
from ottla.aio.produce.transaction_client import end_transaction, why_ended
from ottla.errors import ConfigError, FencedError, OttlaError
from ottla.producer import TransactionEvent, TransactionStates
from ottla.producer.transaction_steps import TransactionCalls, TransactionInProgress
from ottla.records import Record
from ottla.stepping import run_async
from ottla.telemetry import log_event

if TYPE_CHECKING:
    from ottla.aio.consume.consumer import AsyncConsumer
    from ottla.aio.produce.producer import AsyncProducer


_SETTLE_S = 10.0


class TransactionRunner(TransactionCalls):
    """Makes the calls of a transactional producer, in the order that `TransactionSteps` says."""

    def __init__(
        self,
        producer: AsyncProducer[Any, Any],
        states: TransactionStates,
        errors: ErrorTranslator,
        reports: Reports,
    ) -> None:
        super().__init__(_Calls(self, producer, reports), states, errors)
        reports.tracker.on_failure = self.failures.add
        self._producer = producer
        states.on(TransactionEvent.INITIALIZED)  # aiokafka's start has fenced earlier producers with this id

    run = staticmethod(run_async)

    async def call(self, call: Awaitable[Any], name: str, timeout_s: float, *, moves: bool = True) -> None:
        """Await the client's call, and set the state by its result."""
        try:
            async with asyncio.timeout(timeout_s):
                await call
        except (KafkaError, OSError, TimeoutError, ValueError, AssertionError) as error:
            # Once aiokafka's sender has ended, its calls fail for reasons of their own.
            problem = why_ended(self._producer._client) or error
            explained = self.explained(problem, name)
            if moves:
                self.refused_with(explained)
            raise explained from error

    def explained(self, problem: BaseException, name: str) -> OttlaError:
        """Return the error to raise for what the client reported."""
        return self._errors.of_call(problem, what=self.what(name))


class _Calls:
    """aiokafka's calls of a transaction."""

    def __init__(self, runner: TransactionRunner, producer: AsyncProducer[Any, Any], reports: Reports) -> None:
        self._runner = runner
        self._producer = producer
        self._reports = reports
        self.settle = producer._settle_all
        self.still_out = producer._still_out

    async def initialize(self, timeout_s: float) -> None:
        """Do nothing: starting the client has done it."""

    async def begin(self, timeout_s: float) -> None:
        await self._runner.call(self._producer._client.begin_transaction(), "begin_transaction", timeout_s)

    async def send_offsets(self, offsets: Any, group: Any, timeout_s: float) -> None:
        if not isinstance(group, str) or not group:
            raise ConfigError(
                f"send_offsets: found {group!r}, wanted the AsyncConsumer that read the records, or a group.id"
            )
        by_client = {TopicPartition(*name): offset for name, offset in offsets.items()}
        call = self._producer._client.send_offsets_to_transaction(by_client, group)
        await self._runner.call(call, "send_offsets_to_transaction", timeout_s)

    async def send_joined(self, positions: Mapping[Any, int], member: Any, timeout_s: float) -> None:
        call = commit_in_transaction(self._producer._client, positions, member)
        await self._runner.call(call, "send_offsets_to_transaction", timeout_s)

    async def commit(self, timeout_s: float, *, is_first: bool) -> None:
        client = self._producer._client
        # aiokafka continues a commit whose caller was cancelled; calling it twice is an error there
        call = (
            client.commit_transaction()
            if is_first
            else asyncio.shield(transactions_of(client).wait_for_transaction_end())
        )
        await self._runner.call(call, "commit_transaction", timeout_s)

    async def abort(self, timeout_s: float) -> None:
        """Abort. aiokafka cannot abort a second time, so a new client with the same transactional.id is started, which
        makes the coordinator abort the open transaction. That would fence a newer producer too, so the coordinator is
        first asked for one."""
        if not await self._producer._settle_all(min(timeout_s, _SETTLE_S)):
            # nothing of it may slip into the next transaction
            self._producer._buffer.give_up(self._producer._errors.timed_out, now_ms=None)
        try:
            call = self._producer._client.abort_transaction()
            await self._runner.call(call, "abort_transaction", timeout_s, moves=False)
        except FencedError:
            self._runner.steps.was_fenced()
            raise
        except OttlaError as error:
            await self._check_not_fenced(timeout_s)
            log_event("transaction_aborted_by_a_new_client", "warning", {"error": str(error)})
            await self._producer._renew_client(timeout_s, even_if_unwanted=True)
        else:
            await self._producer._renew_client(timeout_s)

    def forget_failures(self) -> None:
        self._reports.tracker.take_failures()

    async def _check_not_fenced(self, timeout_s: float) -> None:
        """Ask the coordinator whether this is still the newest producer of its transactional.id."""
        try:
            async with asyncio.timeout(timeout_s):
                await end_transaction(self._producer._client)
        except (KafkaError, OSError, TimeoutError) as error:
            explained = self._runner.explained(error, "abort_transaction")
            if isinstance(explained, FencedError):
                self._runner.steps.was_fenced()
            raise explained from error


class Transaction(TransactionInProgress):
    """One transaction: the block of `async with producer.transaction()`."""

    async def send_offsets(
        self, offsets: Mapping[Any, int] | Iterable[Record[Any]], consumer: AsyncConsumer[Any] | str
    ) -> None:
        """Commit consumed offsets with the transaction.

        With Ottla's `AsyncConsumer(..., commit=InTransactions())`: `send_offsets(records, consumer)`, all records that
        were taken from it and are in no transaction yet, in any order. They are done when the transaction is committed;
        when it is aborted, they are given out again. With another client: `send_offsets({(topic, partition): offset of
        the next record}, "group.id")`, which the coordinator cannot check: no other member may own the partitions.

        Raises `RetriableError` when a partition was given to another member since.
        """
        await run_async(self._steps.send_offsets(offsets, consumer, self._timeout_s))

    async def commit(self) -> None:
        """Commit now. The block does it by itself; after its `BrokerUnavailable` this asks for the outcome again."""
        await run_async(self._steps.commit(self._timeout_s))

    async def abort(self) -> None:
        """Abort now. The block does it by itself when it ends with an exception."""
        await run_async(self._steps.abort(self._timeout_s))

    async def __aenter__(self) -> Transaction:
        await run_async(self.beginning())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await run_async(self._steps.leave(error, self._timeout_s))
