"""Handlers whose results and offsets are one Kafka transaction: from a run to the work that joins it.

`ExactlyOnceInvoker` stands in the place of a handler's `Invoker`. It hands a run out, keeps what the handler sends, and
gives both to the member's transactions (`ottla.once.committing`). A worker does not wait for the commit: it takes the
next run, of another partition, meanwhile.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias, TypedDict

from ottla.app.delivery.invoker import Invoker, Yield
from ottla.app.handler.binding import Binding
from ottla.app.handler.handler_context import Context
from ottla.app.once.once_invoker import OnceInvoker
from ottla.app.once.resource_invoker import ResourceInvoker
from ottla.app.once.result_settings import ResultSettings
from ottla.clock import Clock, SystemClock
from ottla.config.worker_names import name_of_worker
from ottla.consumer.model.effects import PassInTransaction
from ottla.consumer.model.failed_writes import OnWritten, Write
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.errors import ConfigError, LifecycleError
from ottla.failures.exceptions import ExceptionTable
from ottla.once.exactly_once import ExactlyOnce
from ottla.once.outputs import OutputRecord, Outputs, of_records
from ottla.once.parts import PartOfRun
from ottla.once.transaction_parts import DeadLetterPart, HandledRun, OffsetOnly, TransactionPart, contiguous
from ottla.producer.serializing import Serializer
from ottla.quantities import milliseconds_of
from ottla.telemetry import Hooks
from ottla_wire.facts import fact

Submit = Callable[[TransactionPart], None]

AnyInvoker: TypeAlias = "Invoker | OnceInvoker | ExactlyOnceInvoker | ResourceInvoker"


class ExactlyOnceSettings:
    """One handler's. `submit` is set by the member that runs it."""

    def __init__(self, declared: ExactlyOnce, *, name: str) -> None:
        if not isinstance(declared, ExactlyOnce):
            raise ConfigError(f"{name}: exactly_once: found {declared!r}, wanted ExactlyOnce(...)")
        self.declared = declared
        self.name = name
        try:
            self.serializer = Serializer(key=declared.key, value=declared.value)
        except TypeError as error:
            raise ConfigError(f"{name}: exactly_once: {error}") from error
        self.submit: Submit = self._not_running

    def _not_running(self, work: TransactionPart) -> None:
        raise LifecycleError(f"{self.name}: its transactions work only while its app runs, and the app is not running")


class ProducerArguments(TypedDict):
    """The arguments of a member's transactional producer."""

    bootstrap_servers: Any
    settings: Mapping[str, Any]
    hooks: Hooks | None


@fact
class TransactionOptions:
    """The transactions of one member of a group."""

    handlers: Sequence[ExactlyOnceSettings]
    topics: frozenset[str]
    """Whose offsets are committed in transactions."""
    group: str
    bootstrap_servers: Any
    producer_settings: Mapping[str, Any] = field(default_factory=dict)
    hooks: Hooks | None = None

    @property
    def instance(self) -> str | None:
        return self.handlers[0].declared.instance

    def new_producer(self, part: str) -> ProducerArguments:
        """Return the arguments of this member's producers. Without a name each has a transactional id of its own."""
        declared = self.handlers[0].declared
        instance = uuid.uuid4().hex if declared.instance is None else name_of_worker(declared.instance)
        timeout_ms = milliseconds_of(declared.transaction_timeout_s)
        settings = {
            "request.timeout.ms": min(30_000, timeout_ms // 2),  # a request that is lost is sent again within it
            **self.producer_settings,
            "transactional.id": f"{self.group}.{instance}.{part}",
            "transaction.timeout.ms": timeout_ms,
        }
        return {"bootstrap_servers": self.bootstrap_servers, "settings": settings, "hooks": self.hooks}

    @classmethod
    def of(
        cls,
        handlers: Sequence[ExactlyOnceSettings],
        *,
        topics: frozenset[str],
        group: str,
        bootstrap_servers: Any,
        producer_settings: Mapping[str, Any],
        hooks: Hooks | None,
        isolation_level: str,
    ) -> TransactionOptions:
        """Return the checked settings. Raises `ConfigError`."""
        if isolation_level != "read_committed":
            raise ConfigError(
                f"{group}: isolation.level: found {isolation_level} with exactly_once=, wanted read_committed: records "
                "of aborted transactions must not be handled"
            )
        shared = {(one.declared.instance, one.declared.transaction_timeout_s) for one in handlers}
        if len(shared) > 1:
            names = ", ".join(one.name for one in handlers)
            raise ConfigError(
                f"{group}: {names}: the handlers of a group share their transactions: give them the same instance and "
                "transaction_timeout_s"
            )
        return cls(
            handlers=handlers,
            topics=topics,
            group=group,
            bootstrap_servers=bootstrap_servers,
            producer_settings=producer_settings,
            hooks=hooks,
        )


class TransactionalSink:
    """Writes a member's dead letters. Handlers with transactions write theirs in one, together with the offset."""

    def __init__(self, others: Any, options: TransactionOptions, submit: Submit) -> None:
        self._others = others
        self._topics = options.topics
        self._submit = submit

    def write(self, failed_write: Write, on_written: OnWritten, /) -> None:
        if failed_write.topic_partition.topic in self._topics:
            self._submit(DeadLetterPart(failed_write, on_written))
        else:
            self._others.write(failed_write, on_written)


def passes(effect: PassInTransaction) -> list[TransactionPart]:
    return [OffsetOnly(name, epoch, offset) for name, (epoch, offset) in effect.offsets.items()]


class InTransaction:
    """A handled run whose transaction is to be committed, or whose rows are to be written."""

    def __init__(
        self,
        settings: ExactlyOnceSettings | ResultSettings,
        make: Callable[[Callable[[RunResult], None]], TransactionPart],
    ) -> None:
        self._settings = settings
        self._make = make

    def when_confirmed(self, then: Callable[[RunResult], None]) -> None:
        """Call `then` with the result once it is committed, in the thread that commits."""
        self._settings.submit(self._make(then))

    def wait(self) -> RunResult:
        """Return the result, where a submitted work is answered at once: in tests without a broker."""
        found: list[RunResult] = []
        self.when_confirmed(found.append)
        return found[0]


class InTransactionOnLoop:
    """`InTransaction` for an event loop."""

    def __init__(self, waiting: InTransaction) -> None:
        self._waiting = waiting

    async def wait(self) -> RunResult:
        loop = asyncio.get_running_loop()
        committed: asyncio.Future[RunResult] = loop.create_future()

        def settle(result: RunResult) -> None:
            if not committed.done():
                committed.set_result(result)

        def then(result: RunResult) -> None:
            try:
                loop.call_soon_threadsafe(settle, result)
            except RuntimeError:
                return  # the loop is closed: the app ended without this run

        self._waiting.when_confirmed(then)
        return await committed


class ExactlyOnceInvoker:
    """Delivers runs as an `Invoker` does. See the module."""

    def __init__(
        self,
        invoker: Invoker,
        settings: ExactlyOnceSettings,
        *,
        is_batch: bool,
        exceptions: ExceptionTable,
        clock: Clock | None,
    ) -> None:
        self._invoker = invoker
        self._settings = settings
        self._is_batch = is_batch
        self._exceptions = exceptions
        self._clock = clock or SystemClock()
        self.binding = invoker.binding
        self.name = invoker.name
        self.decoder = invoker.decoder

    def deliver(self, run: Run) -> RunResult | InTransaction:
        """Deliver with a synchronous handler."""
        outputs = self._outputs(may_wait=True)
        result = self._hand(run, run.records, outputs)
        if self._goes_singly(run, result):
            outputs = self._outputs(may_wait=True)
            result = self._singly(run, outputs)
        return self._joined(run, result, outputs)

    async def deliver_async(self, run: Run, yield_now: Yield) -> RunResult | InTransactionOnLoop:
        """Deliver with an asynchronous handler."""
        outputs = self._outputs(may_wait=False)
        result = await self._hand_async(run, run.records, outputs, yield_now)
        if self._goes_singly(run, result):
            outputs = self._outputs(may_wait=False)
            result = await self._singly_async(run, outputs, yield_now)
        if outputs.unprepared:
            result = await self._encoded_later(run, result, outputs)
        joined = self._joined(run, result, outputs)
        return joined if isinstance(joined, RunResult) else InTransactionOnLoop(joined)

    def _joined(self, run: Run, result: RunResult, outputs: Outputs) -> RunResult | InTransaction:
        sent = outputs.end()
        kept: Sequence[OutputRecord] = sent
        result = contiguous(run.records, result)
        done = run.records if result.done is None else result.done
        if not done:
            return result
        if result.done is not None:
            if None in sent.offsets:  # of a whole batch, which is not done
                return RunResult(done=(), failures=result.failures, untouched=[*done, *result.untouched])
            kept = of_records(sent, {record.offset for record in done})
        exceptions = self._exceptions
        return InTransaction(
            self._settings, lambda then: HandledRun(run, result, kept, exceptions=exceptions, then=then)
        )

    # Handing out

    def _outputs(self, *, may_wait: bool) -> Outputs:
        return Outputs(self._settings.serializer, now_ms=self._clock.now_ms(), may_wait=may_wait)

    def _hand(self, run: Run, records: Sequence[AnyRecord], outputs: Outputs) -> RunResult:
        part = self._part(run, records, outputs)
        result = self._invoker.deliver(part)
        result = result if isinstance(result, RunResult) else result.wait()
        run.reached = max(run.reached, part.reached)
        return result

    async def _hand_async(
        self, run: Run, records: Sequence[AnyRecord], outputs: Outputs, yield_now: Yield
    ) -> RunResult:
        part = self._part(run, records, outputs)
        result = await self._invoker.deliver_async(part, yield_now)
        result = result if isinstance(result, RunResult) else await result.wait()
        run.reached = max(run.reached, part.reached)
        return result

    def _part(self, run: Run, records: Sequence[AnyRecord], outputs: Outputs) -> PartOfRun:
        part = PartOfRun(run, list(records), transaction=None)
        part.outputs = outputs
        part.is_first = run.is_first and records is run.records
        return part

    # A batch with a record that failed: what each record sent must be known

    def _goes_singly(self, run: Run, result: RunResult) -> bool:
        is_mixed = bool(result.failures) and not result.is_batch_failure
        return self._is_batch and is_mixed and len(run.records) > 1 and not result.failures[0][1].is_outage

    def _singly(self, run: Run, outputs: Outputs) -> RunResult:
        progress = _Singly(run)
        for record in progress.records():
            progress.add(record, self._hand(run, [record], outputs), outputs)
        return progress.result()

    async def _singly_async(self, run: Run, outputs: Outputs, yield_now: Yield) -> RunResult:
        progress = _Singly(run)
        for record in progress.records():
            progress.add(record, await self._hand_async(run, [record], outputs, yield_now), outputs)
        return progress.result()

    async def _encoded_later(self, run: Run, result: RunResult, outputs: Outputs) -> RunResult:
        """Encode what waited for a registry. What cannot be fails the record whose handler sent it."""
        try:
            await asyncio.to_thread(outputs.prepare)
            number = 0
            for number in range(len(outputs.sent)):
                outputs.encode(number)
        except Exception as error:
            failure = self._exceptions.failure_of(error)
            offset = outputs.sent.offsets[number] if outputs.sent else None
            if offset is None:
                return RunResult(done=(), failures=[(one, failure) for one in run.records], is_batch_failure=True)
            done = run.records if result.done is None else result.done
            return RunResult(
                done=[one for one in done if one.offset < offset],
                failures=[(one, failure) for one in run.records if one.offset == offset],
                untouched=[one for one in run.records if one.offset > offset],
            )
        return result


class _Singly:
    """A batch that is done again record by record, up to the first failure."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._done: list[AnyRecord] = []
        self._result = RunResult(done=())
        self._is_over = False

    def records(self) -> Any:
        for record in self._run.records:
            if self._is_over or self._run.is_cancelled:
                return
            yield record

    def add(self, record: AnyRecord, result: RunResult, outputs: Outputs) -> None:
        if result.failures or result.untouched:
            self._result, self._is_over = result, True
            return
        self._done.append(record)
        outputs.sent.for_record(record.offset)

    def result(self) -> RunResult:
        count = len(self._done)
        rest = self._run.records[count:]
        failures = self._result.failures
        if not rest:
            return RunResult()
        return RunResult(done=self._done, failures=failures, untouched=rest[len(failures) :])


def with_outputs(binding: Binding, *, is_batch: bool) -> Binding:
    """Return the binding, whose handler sends for the record that it is called with."""
    call = binding.call

    def single(subject: Any, context: Context) -> Any:
        context.out = context.outputs.of(subject.offset)
        return call(subject, context)

    def batch(subject: Any, context: Context) -> Any:
        context.out = context.outputs.of(None)
        return call(subject, context)

    return Binding(
        call=batch if is_batch else single, is_async=binding.is_async, wants_malformed=binding.wants_malformed
    )
