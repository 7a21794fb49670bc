"""Transactions over aiokafka: the calls, and the context manager that commits or aborts (P9)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from ottla.aio.produce_errors import ErrorTranslator
from ottla.aio.reports import Reports
from ottla.errors import BrokerUnavailable, ConfigError, FencedError, LifecycleError, OttlaError
from ottla.producer import TransactionEvent, TransactionState, TransactionStates, delivery_error
from ottla.telemetry import log_event

if TYPE_CHECKING:
    from ottla.aio.producer import AsyncProducer


class TransactionRunner:
    """Carries out what the table of states allows. One per transactional producer."""

    def __init__(
        self,
        producer: AsyncProducer,
        states: TransactionStates,
        errors: ErrorTranslator,
        reports: Reports,
    ) -> None:
        self.states = states
        self._producer = producer
        self._errors = errors
        self._reports = reports
        states.on(TransactionEvent.INITIALIZED)  # aiokafka's start has fenced earlier producers with this id

    async def begin(self, timeout_s: float) -> None:
        self.states.on(TransactionEvent.BEGIN)
        await self._call(self._producer.client.begin_transaction(), "begin_transaction", timeout_s)

    async def send_offsets(self, offsets: Mapping[Any, int], group: Any, timeout_s: float) -> None:
        """Commit a group's offsets with the transaction. An offset is that of the next record to read."""
        self.states.check_can_send()
        if not isinstance(group, str) or not group:
            raise ConfigError(f"send_offsets: found {group!r}, wanted the group.id of who read the records")
        positions = {TopicPartition(topic, partition): offset for (topic, partition), offset in offsets.items()}
        await self._call(
            self._producer.client.send_offsets_to_transaction(positions, group),
            "send_offsets_to_transaction",
            timeout_s,
        )

    async def commit(self, timeout_s: float) -> None:
        """Commit, or abort and raise: DeliveryError when a record was not delivered.

        After `BrokerUnavailable` the outcome is open, and it may be called again.
        """
        is_again = self.states.state is TransactionState.COMMITTING
        if not is_again:
            await self._producer.settle_all(timeout_s)
            failures, total = self._reports.tracker.take_failures()
            undelivered = delivery_error(failures, total, [])
            if undelivered is not None or len(self._producer):
                await self.abort(timeout_s)
                raise undelivered or self._errors.unavailable("records of the transaction are not acknowledged")
        self.states.on(TransactionEvent.COMMIT)
        client = self._producer.client
        # aiokafka goes on with a commit that nobody waits for any more; calling it twice is an error there
        call = (
            asyncio.shield(client._txn_manager.wait_for_transaction_end()) if is_again else client.commit_transaction()
        )
        try:
            await self._call(call, "commit_transaction", timeout_s)
        except OttlaError:
            if self.states.state is TransactionState.MUST_ABORT:
                await self.abort(timeout_s)
            raise
        self.states.on(TransactionEvent.COMMITTED)

    async def abort(self, timeout_s: float) -> None:
        """Abort: no read_committed consumer will see what was sent.

        Where aiokafka cannot (it knows no second try), a new client does: starting with the same transactional.id
        makes the coordinator abort what was open.
        """
        self.states.on(TransactionEvent.ABORT)
        if not await self._producer.settle_all(min(timeout_s, 10.0)):
            self._producer.give_up_all()  # nothing of it may slip into the next transaction
        try:
            await self._call(self._producer.client.abort_transaction(), "abort_transaction", timeout_s, moves=False)
        except FencedError:
            self.states.on(TransactionEvent.WAS_FENCED)
            raise
        except OttlaError as error:
            log_event("transaction_aborted_by_a_new_client", "warning", {"error": str(error)})
            await self._producer.renew_client(timeout_s, even_if_unwanted=True)
        else:
            await self._producer.renew_client(timeout_s)
        self.states.on(TransactionEvent.ABORTED)
        self._reports.tracker.take_failures()  # what was not delivered was not to be seen either

    async def abort_if_open(self, timeout_s: float = 10.0) -> None:
        """On close: leave nothing open for the transaction timeout to find. An open one would hold up consumers."""
        if self.states.state in (TransactionState.OPEN, TransactionState.MUST_ABORT, TransactionState.ABORTING):
            try:
                await self.abort(timeout_s)
            except OttlaError:
                pass  # the coordinator aborts it after transaction.timeout.ms

    async def _call(self, call: Awaitable[Any], name: str, timeout_s: float, *, moves: bool = True) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await call
        except (KafkaError, OSError, TimeoutError, ValueError, AssertionError) as error:
            explained = self._errors.of_call(error, what=f"transaction {self.states.transactional_id}, {name}")
            if moves:
                self._move(explained)
            raise explained from error

    def _move(self, error: OttlaError) -> None:
        if isinstance(error, FencedError):
            self.states.on(TransactionEvent.WAS_FENCED)
        elif isinstance(error, BrokerUnavailable):
            if self.states.state is not TransactionState.OPEN:
                self.states.on(TransactionEvent.TIMED_OUT)
        elif self.states.state is not TransactionState.READY:
            self.states.on(TransactionEvent.FAILED)


class Transaction:
    """One transaction: the block of `async with producer.transaction()`."""

    def __init__(self, runner: TransactionRunner, *, timeout_s: float) -> None:
        self._runner = runner
        self._timeout_s = timeout_s

    async def send_offsets(self, offsets: Mapping[Any, int], group_id: str) -> None:
        """Commit consumed offsets with the transaction: `{(topic, partition): offset of the next record}`."""
        await self._runner.send_offsets(offsets, group_id, self._timeout_s)

    async def commit(self) -> None:
        """Commit now. The block does it by itself; after its `BrokerUnavailable` this asks for the outcome again."""
        await self._runner.commit(self._timeout_s)

    async def abort(self) -> None:
        """Abort now. The block does it by itself when it ends with an exception."""
        await self._runner.abort(self._timeout_s)

    async def __aenter__(self) -> Transaction:
        await self._runner.begin(self._timeout_s)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._runner.states.state is TransactionState.READY:  # committed or aborted by hand
            return
        if error is None:
            await self._runner.commit(self._timeout_s)
            return
        try:
            await self._runner.abort(self._timeout_s)
        except FencedError:
            raise  # matters more than what ended the block, which stays its context
        except LifecycleError as also:
            error.add_note(f"the transaction was not aborted: {also}")
        except OttlaError as also:
            error.add_note(f"the abort is not settled; transaction.timeout.ms will: {also}")
