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
from functools import partial
from typing import Any, TypeAlias, TypedDict

from ottla.app.delivery.confirmed_on_loop import ConfirmedOnLoop
from ottla.app.delivery.invoker import Invoker
from ottla.app.delivery.run_decoder import Yield
from ottla.app.handler.binding import Binding
from ottla.app.handler.handler_context import Context
from ottla.app.once.once_invoker import OnceInvoker
from ottla.app.once.resource_invoker import ResourceInvoker
from ottla.app.once.result_settings import ResultSettings
from ottla.clock import Clock, SystemClock
from ottla.config.worker_names import name_of_worker
from ottla.consumer.model.failed_writes import OnWritten, Write
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.errors import ConfigError, LifecycleError
from ottla.failures.exceptions import ExceptionTable, Failure
from ottla.once.exactly_once import ExactlyOnce
from ottla.once.outputs import OutputRecord, Outputs, of_records
from ottla.once.parts import PartOfRun
from ottla.once.transaction_parts import DeadLetterPart, HandledRun, TransactionPart, contiguous
from ottla.producer.serializing import Serializer
from ottla.quantities import milliseconds_of
from ottla.stepping import Steps, run_async
from ottla.stepping import run as make_calls
from ottla.telemetry import Hooks
from ottla_wire.facts import fact

Submit = Callable[[TransactionPart], None]
Hand = Callable[[Run], Any]
"""Passes a part of a run to the handler; on an event loop it is awaited."""

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
        return make_calls(self._delivering(run, self._invoker.deliver, may_wait=True))

    async def deliver_async(self, run: Run, yield_now: Yield) -> RunResult | ConfirmedOnLoop:
        """Deliver with an asynchronous handler."""

        def hand(part: Run) -> Any:
            return self._invoker.deliver_async(part, yield_now)

        joined = await run_async(self._delivering(run, hand, may_wait=False))
        return joined if isinstance(joined, RunResult) else ConfirmedOnLoop(joined)

    def _delivering(self, run: Run, hand: Hand, *, may_wait: bool) -> Steps[RunResult | InTransaction]:
        """`may_wait`: what the handler sends is encoded at once, also where that asks a registry."""
        outputs = self._outputs(may_wait=may_wait)
        result = yield from self._handing(run, run.records, outputs, hand)
        if self._goes_singly(run, result):
            outputs = self._outputs(may_wait=may_wait)
            result = yield from self._singly(run, outputs, hand)
        if outputs.unprepared:
            result = yield partial(self._encoded_later, run, result, outputs)
        return self._joined(run, result, outputs)

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

    def _handing(self, run: Run, records: Sequence[AnyRecord], outputs: Outputs, hand: Hand) -> Steps[RunResult]:
        part = PartOfRun(run, list(records), transaction=None)
        part.outputs = outputs
        part.is_first = run.is_first and records is run.records
        result = yield partial(hand, part)
        result = result if isinstance(result, RunResult) else (yield result.wait)
        run.reached = max(run.reached, part.reached)
        return result

    # A batch with a record that failed: what each record sent must be known

    def _goes_singly(self, run: Run, result: RunResult) -> bool:
        is_mixed = bool(result.failures) and not result.is_batch_failure
        return self._is_batch and is_mixed and len(run.records) > 1 and not result.failures[0][1].is_outage

    def _singly(self, run: Run, outputs: Outputs, hand: Hand) -> Steps[RunResult]:
        """Deliver a batch again record by record, up to the first failure."""
        done: list[AnyRecord] = []
        failures: Sequence[tuple[AnyRecord, Failure]] = ()
        for record in run.records:
            if run.is_cancelled:
                break
            result = yield from self._handing(run, [record], outputs, hand)
            if result.failures or result.untouched:
                failures = result.failures
                break
            done.append(record)
            outputs.sent.for_record(record.offset)
        rest = run.records[len(done) :]
        return RunResult(done=done, failures=failures, untouched=rest[len(failures) :]) if rest else RunResult()

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
