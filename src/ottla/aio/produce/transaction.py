"""Transactions over aiokafka: the calls, and the context manager that commits or aborts (P9)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, runtime_checkable

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from ottla.aio.client.transactional_groups import commit_in_transaction
from ottla.aio.produce.produce_errors import ErrorTranslator
from ottla.aio.produce.reports import Reports
from ottla.aio.produce.transaction_client import end_transaction, why_ended
from ottla.errors import BrokerUnavailable, ConfigError, FencedError, LifecycleError, OttlaError
from ottla.producer import TransactionEvent, TransactionFailures, TransactionState, TransactionStates
from ottla.records import Record
from ottla.telemetry import log_event

if TYPE_CHECKING:
    from ottla.aio.consume.consumer import AsyncConsumer
    from ottla.aio.produce.producer import AsyncProducer


@runtime_checkable
class ReadsInTransactions(Protocol):
    """Ottla's own consumer, as a transaction sees it."""

    async def join_transaction(self, records: Any, owner: object) -> tuple[Mapping[Any, int], Any]: ...

    def transaction_ended(self, owner: object, *, is_committed: bool) -> None: ...


class TransactionRunner:
    """Carries out what the table of states allows. One per transactional producer."""

    def __init__(
        self,
        producer: AsyncProducer[Any, Any],
        states: TransactionStates,
        errors: ErrorTranslator,
        reports: Reports,
    ) -> None:
        self.states = states
        self.failures = TransactionFailures()
        reports.tracker.also_tell = self.failures.add
        self._producer = producer
        self._errors = errors
        self._reports = reports
        self._readers: list[ReadsInTransactions] = []
        """Ottla's own consumers whose records are in the transaction."""
        states.on(TransactionEvent.INITIALIZED)  # aiokafka's start has fenced earlier producers with this id

    async def begin(self, timeout_s: float) -> None:
        """Open a transaction, after settling the one before it where its outcome is open.

        Raises what came of that one when it was not committed after all, or `BrokerUnavailable` while nobody says.
        """
        await self.settle_left_open(timeout_s)
        self.states.on(TransactionEvent.BEGIN)
        self.failures.begin()
        try:
            await self._call(self._producer.client.begin_transaction(), "begin_transaction", timeout_s)
        except BaseException:
            await self.abort_if_open(timeout_s)
            raise

    async def settle_left_open(self, timeout_s: float) -> None:
        """Ask again for the commit or the abort that had no answer."""
        again = self.states.left_open
        if again is TransactionEvent.COMMIT:
            await self.commit(timeout_s)
        elif again is TransactionEvent.ABORT:
            await self.abort(timeout_s)

    async def send_offsets(self, offsets: Any, group: Any, timeout_s: float) -> None:
        """Commit a group's offsets with the transaction. An offset is that of the next record to read."""
        self.states.check_can_send()
        try:
            client = self._producer.client
            if isinstance(group, ReadsInTransactions):
                if group not in self._readers:
                    self._readers.append(group)
                positions, member = await group.join_transaction(offsets, self)
                if not positions:
                    return
                call = commit_in_transaction(client, positions, member)
            else:
                if not isinstance(group, str) or not group:
                    raise ConfigError(
                        f"send_offsets: found {group!r}, wanted the AsyncConsumer that read the records, or a group.id"
                    )
                by_client = {TopicPartition(*name): offset for name, offset in offsets.items()}
                call = client.send_offsets_to_transaction(by_client, group)
            await self._call(call, "send_offsets_to_transaction", timeout_s)
        except BaseException as error:
            self.failures.call_raised(error)
            raise

    async def commit(self, timeout_s: float) -> None:
        """Commit, or abort and raise: DeliveryError when a record was not delivered, whoever has heard of it.

        After `BrokerUnavailable` the outcome is open, and it may be called again.
        """
        if self.states.is_in(TransactionState.MUST_ABORT):
            await self._abort_because(self.failures.error() or self.states.refusal("commit"), timeout_s)
        is_first = self.states.is_in(TransactionState.OPEN)
        if is_first:
            await self._producer.settle_all(timeout_s)
        self.states.on(TransactionEvent.COMMIT)
        if is_first:
            error = self.failures.error(*self._producer.still_out())
            if error is not None:
                self.states.on(TransactionEvent.FAILED)
                await self._abort_because(error, timeout_s)
        client = self._producer.client
        # aiokafka goes on with a commit that nobody waits for any more; calling it twice is an error there
        call = (
            client.commit_transaction() if is_first else asyncio.shield(client._txn_manager.wait_for_transaction_end())
        )
        try:
            await self._call(call, "commit_transaction", timeout_s)
        except OttlaError as error:
            if self.states.is_in(TransactionState.MUST_ABORT):
                await self._abort_because(error, timeout_s)
            raise
        self.states.on(TransactionEvent.COMMITTED)
        self.failures.end()
        self._tell_readers(is_committed=True)

    async def abort(self, timeout_s: float) -> None:
        """Abort: no read_committed consumer will see what was sent.

        Where aiokafka cannot (it knows no second try), a new client does: starting with the same transactional.id
        makes the coordinator abort what was open. It would fence a newer producer as well, so a producer that was
        fenced itself ends here.
        """
        fenced = self.failures.fenced
        if fenced is not None:
            self._was_fenced()
            raise fenced
        self.states.on(TransactionEvent.ABORT)
        self._tell_readers(is_committed=False)  # it never will be
        if not await self._producer.settle_all(min(timeout_s, 10.0)):
            self._producer.give_up_all()  # nothing of it may slip into the next transaction
        try:
            await self._call(self._producer.client.abort_transaction(), "abort_transaction", timeout_s, moves=False)
        except FencedError:
            self._was_fenced()
            raise
        except OttlaError as error:
            await self._check_not_fenced(timeout_s)
            log_event("transaction_aborted_by_a_new_client", "warning", {"error": str(error)})
            await self._producer.renew_client(timeout_s, even_if_unwanted=True)
        else:
            await self._producer.renew_client(timeout_s)
        self.states.on(TransactionEvent.ABORTED)
        self.failures.end()
        self._reports.tracker.take_failures()  # what was not delivered was not to be seen either

    def _tell_readers(self, *, is_committed: bool) -> None:
        readers, self._readers = self._readers, []
        for reader in readers:
            reader.transaction_ended(self, is_committed=is_committed)

    async def abort_if_open(self, timeout_s: float) -> None:
        """Leave nothing open where nobody will abort it: the caller is raised something else already."""
        if self.states.is_in(TransactionState.OPEN, TransactionState.MUST_ABORT):
            await self._quietly(self.abort(timeout_s))

    async def end(self, timeout_s: float = 10.0) -> None:
        """On close: leave nothing open for the transaction timeout to find. An open one would hold up consumers."""
        await self.abort_if_open(timeout_s)
        if self.states.left_open is not None:
            await self._quietly(self.settle_left_open(timeout_s))

    async def _quietly(self, settling: Awaitable[None]) -> None:
        try:
            await settling
        except OttlaError as error:  # the coordinator aborts it after transaction.timeout.ms
            fields = {"transactional_id": self.states.transactional_id, "error": str(error)}
            log_event("transaction_left_open", "warning", fields)

    async def _abort_because(self, error: OttlaError, timeout_s: float) -> NoReturn:
        try:
            await self.abort(timeout_s)
        except FencedError:
            raise
        except OttlaError as also:
            error.add_note(f"the abort is not settled, the next transaction begins with it: {also}")
        raise error

    async def _check_not_fenced(self, timeout_s: float) -> None:
        """Ask the coordinator whether this is still the newest producer of its transactional.id."""
        what = f"transaction {self.states.transactional_id}, abort_transaction"
        try:
            async with asyncio.timeout(timeout_s):
                await end_transaction(self._producer.client)
        except (KafkaError, OSError, TimeoutError) as error:
            explained = self._errors.of_call(error, what=what)
            if isinstance(explained, FencedError):
                self._was_fenced()
            raise explained from error

    def _was_fenced(self) -> None:
        """The end of this producer, of which its caller hears by FencedError: nothing of the transaction counts."""
        self.states.on(TransactionEvent.WAS_FENCED)
        self.failures.end()
        self._reports.tracker.take_failures()

    async def _call(self, call: Awaitable[Any], name: str, timeout_s: float, *, moves: bool = True) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await call
        except (KafkaError, OSError, TimeoutError, ValueError, AssertionError) as error:
            # Once aiokafka's sender has ended, its calls fail for reasons of their own.
            problem = why_ended(self._producer.client) or error
            explained = self._errors.of_call(problem, what=f"transaction {self.states.transactional_id}, {name}")
            if moves:
                self._move(explained)
            raise explained from error

    def _move(self, error: OttlaError) -> None:
        if isinstance(error, FencedError):
            self._was_fenced()
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

    async def send_offsets(
        self, offsets: Mapping[Any, int] | Iterable[Record[Any]], consumer: AsyncConsumer[Any] | str
    ) -> None:
        """Commit consumed offsets with the transaction.

        With Ottla's `AsyncConsumer(..., commit=InTransactions())`: `send_offsets(records, consumer)`, all records that
        were taken from it and are in no transaction yet, in any order. They are done when the transaction is committed;
        when it is aborted, they are given out again. With another client: `send_offsets({(topic, partition): offset of
        the next record}, "group.id")`, which the coordinator cannot check: nobody else may have the partitions.

        Raises `RetriableError` when a partition was given to another member since.
        """
        await self._runner.send_offsets(offsets, consumer, self._timeout_s)

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
            try:
                await self._runner.commit(self._timeout_s)
            except BaseException:
                await self._runner.abort_if_open(self._timeout_s)  # interrupted before the commit was asked for
                raise
            return
        try:
            await self._runner.abort(self._timeout_s)
        except FencedError:
            raise  # matters more than what ended the block, which stays its context
        except LifecycleError as also:
            error.add_note(f"the transaction was not aborted: {also}")
        except OttlaError as also:
            error.add_note(f"the abort is not settled, the next transaction begins with it: {also}")
