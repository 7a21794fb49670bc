"""Delivers a run to its handler: decode, call, turn what comes back into a `RunResult`. The hot path of consuming.

Costs per record: the decoder, one call in a context of its own, two comparisons and one assignment. Everything else is
per run. A failing record pays for its own evidence. The synchronous and the asynchronous loop differ in their awaits
only. What a handler raised is read in `raised`, what it returned in `returned`, a batch's answer in `batch`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace
from inspect import isawaitable
from time import monotonic
from types import CoroutineType
from typing import Any, Final

from ottla.app.batch import Batch, malformed_part
from ottla.app.binding import Binding
from ottla.app.context import Context
from ottla.app.handler_spans import HandlerSpans
from ottla.app.own_context import call_in_own_context, values_in
from ottla.app.pending import Confirming, ConfirmingOnLoop, confirm, confirm_async, tell_when_done
from ottla.app.progress import Progress
from ottla.app.raised import failure_of_raised
from ottla.app.returned import failure_in, is_open, promises_in, read_returned
from ottla.clock import Clock, SystemClock
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.lanes import Ordering
from ottla.errors import RegistryUnavailable
from ottla.failures.exceptions import ExceptionTable, Failure
from ottla.failures.expiry import NEVER, Expiry
from ottla.failures.outcomes import Ack, Skip
from ottla.records import Malformed, TopicPartition
from ottla.serdes import Bytes, Serde, SerdeContext
from ottla.serdes.base import type_name

_YIELD_EVERY_S: Final = 0.004
"""An event loop that is kept longer than a few milliseconds stops answering its heartbeats and its neighbours."""

Yield = Callable[[], Awaitable[None]]


class Invoker:
    """One handler with its serdes and its exception table. Thread-safe: it keeps nothing between runs."""

    __slots__ = (
        "_bytes_only",
        "_clock",
        "_contexts",
        "_exceptions",
        "_expiry",
        "_group",
        "_is_batch",
        "_keeps_key_order",
        "_key",
        "_ordering",
        "_origins",
        "_spans",
        "_state",
        "_value",
        "binding",
        "name",
    )

    def __init__(
        self,
        *,
        name: str,
        group: str,
        binding: Binding,
        value: Serde[Any],
        key: Serde[Any],
        exceptions: ExceptionTable,
        ordering: Ordering,
        is_batch: bool,
        state: dict[str, Any],
        is_at_most_once: bool = False,
        origins: Mapping[str, str] | None = None,
        expiry: Expiry = NEVER,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.binding = binding
        self._group = group
        self._value = value
        self._key = key
        self._exceptions = exceptions
        self._expiry = expiry
        self._clock = clock or SystemClock()
        self._ordering = ordering
        self._is_batch = is_batch
        self._keeps_key_order = ordering is not Ordering.UNORDERED and not is_at_most_once
        self._state = state
        self._origins = dict(origins or {})
        self._contexts: dict[str, tuple[SerdeContext, SerdeContext]] = {}
        self._spans = HandlerSpans(group=group, handler=name, is_batch=is_batch)
        self._bytes_only = type(value) is Bytes and type(key) is Bytes

    # Decoding

    def would_block(self, run: Run) -> bool:
        """Whether decoding waits for the network (a schema id that was never seen)."""
        if self._bytes_only:
            return False
        value_context, key_context = self._serde_contexts(run.topic_partition.topic)
        return self._value.would_block([record.raw_value for record in run.records], value_context) or (
            self._key.would_block([record.raw_key for record in run.records], key_context)
        )

    def decode(self, run: Run) -> tuple[bool, RunResult | None]:
        """Decode the run in place. Returns whether anything is malformed, and a result when decoding must wait.

        Always from the raw bytes: a handler that changed its value before it failed gets a fresh one at the retry.
        """
        records = run.records
        if self._bytes_only:
            for record in () if run.is_first else records:
                record.value = record.raw_value
                record.key = record.raw_key
            return False, None
        value_context, key_context = self._serde_contexts(run.topic_partition.topic)
        try:
            values = self._value.deserialize_many([record.raw_value for record in records], value_context)
            keys = self._key.deserialize_many([record.raw_key for record in records], key_context)
        except RegistryUnavailable as error:
            return False, self._outage(run, error)
        has_malformed = False
        if Malformed in set(map(type, values)):
            values, has_malformed = _named(values, self._value), True
        if Malformed in set(map(type, keys)):
            keys, has_malformed = _named(keys, self._key), True
        for record, value, key in zip(records, values, keys, strict=True):
            record.value = value
            record.key = key
        return has_malformed, None

    # The loops

    def deliver(self, run: Run) -> RunResult | Confirming:
        """Deliver with a synchronous handler. What the handler sent on may still be under way."""
        has_malformed, result = self.decode(run)
        if result is not None:
            return result
        if self._is_batch:
            return self._deliver_batch(run, has_malformed)
        context = self._context(run)
        deadlines = self._expiry.deadlines(run.records)
        if deadlines is not None:
            return self._rest(run, -1, context, Progress(run, self._ordering), deadlines)
        is_checked = has_malformed and not self.binding.wants_malformed
        index, skipped, found = self._deliver_plainly(run, context, is_checked)
        if isinstance(found, Failure):
            return self._with_failures(run, index, found, context, skipped)
        if found is not None:
            return self._with_pending(run, index, found, context, skipped)
        if index == len(run.records):
            return RunResult(skipped=skipped)
        return RunResult(done=run.records[:index], untouched=run.records[index:], skipped=skipped)

    def _deliver_plainly(
        self, run: Run, context: Context, is_checked: bool
    ) -> tuple[int, int, Failure | Sequence[Any] | None]:
        """Deliver until a record needs an account of its own. Returns how many are done before it, how many of these
        were skipped, and why it ended there: a failure, or what the handler sent and did not wait for."""
        index = skipped = 0
        stretches = self._spans.stretches(self.binding.call, run.records)
        try:
            for call, records in stretches:
                for record in records:
                    if run.is_cancelled:
                        return index, skipped, None
                    if is_checked and (malformed := malformed_part(record)) is not None:
                        return index, skipped, Failure.of_malformed(malformed)
                    try:
                        outcome = copy_context().run(call, record, context)
                    except BaseException as error:
                        return index, skipped, self._failure_of(error)
                    if outcome is not None and type(outcome) is not Ack:
                        if type(outcome) is not Skip:
                            found = read_returned(outcome)
                            if found is not None:
                                return index, skipped, found
                        else:
                            skipped += 1
                    index += 1
                    run.done = index
            return index, skipped, None
        finally:
            stretches.close()

    async def deliver_async(self, run: Run, yield_now: Yield) -> RunResult | ConfirmingOnLoop:
        """Deliver with an asynchronous handler; `yield_now` lets the loop breathe. As `deliver`."""
        has_malformed, result = self.decode(run)
        if result is not None:
            return result
        if self._is_batch:
            return await self._deliver_batch_async(run, has_malformed)
        progress = Progress(run, self._ordering)
        progress.breathe_at_s = monotonic() + _YIELD_EVERY_S
        progress.deadlines = self._expiry.deadlines(run.records)
        feed = iter(run.records)
        is_checked = has_malformed and not self.binding.wants_malformed
        while await call_in_own_context(self._deliver_some, feed, progress, is_checked, yield_now):
            pass
        if not progress.pending:
            return progress.result()

        async def finish() -> RunResult:
            for record, promises in progress.pending:
                progress.confirmed(record, await confirm_async(promises, self._exceptions))
            return progress.result()

        return ConfirmingOnLoop(finish)

    async def _deliver_some(
        self, feed: Iterator[AnyRecord], progress: Progress, is_checked: bool, yield_now: Yield
    ) -> bool:
        """Deliver records until a handler leaves the context changed. Returns whether there may be more.

        So the next record begins in a fresh context, and those before it cost a comparison instead of a context each.
        """
        clean = copy_context()
        outside = values_in(clean)
        context = self._context(progress.run)
        call = self._spans.around_async(self.binding.call)
        breathe_at_s = progress.breathe_at_s
        deadlines = progress.deadlines
        for record in feed:
            if not progress.takes(record):
                continue
            if deadlines is not None and self._has_expired(record, deadlines, context):
                progress.has_expired(record, self._expiry.outcome)
                continue
            if is_checked and (malformed := malformed_part(record)) is not None:
                progress.failed(record, Failure.of_malformed(malformed))
                continue
            try:
                outcome = call(record, context)
                if type(outcome) is CoroutineType or (outcome is not None and isawaitable(outcome)):
                    outcome = await outcome
            except BaseException as error:
                progress.failed(record, self._failure_of(error))
            else:
                progress.returned(record, outcome)
            if monotonic() > breathe_at_s:
                await yield_now()
                breathe_at_s = progress.breathe_at_s = monotonic() + _YIELD_EVERY_S
            try:
                if copy_context() != clean:
                    return True
                for read, value in outside:  # as `all(...)` it would take twice as long
                    if read(None) is not value:
                        return True
            except Exception:  # the `==` of a value raised, as that of numpy's arrays does: so there is another one
                return True
        return False

    def _with_pending(
        self, run: Run, index: int, promises: Sequence[Any], context: Context, skipped: int
    ) -> RunResult | Confirming:
        """The rest of a run in which the handler of the record at `index` returned what it sent."""
        progress = Progress(run, self._ordering, done=run.records[:index])
        progress.skipped = skipped
        progress.reaches_next()
        progress.pending.append((run.records[index], promises))
        return self._rest(run, index, context, progress)

    def _with_failures(
        self, run: Run, index: int, failure: Failure, context: Context, skipped: int
    ) -> RunResult | Confirming:
        """The rest of a run in which the record at `index` failed."""
        progress = Progress(run, self._ordering, done=run.records[:index])
        progress.skipped = skipped
        progress.reaches_next()
        progress.failed(run.records[index], failure)
        return self._rest(run, index, context, progress)

    def _rest(
        self,
        run: Run,
        index: int,
        context: Context,
        progress: Progress,
        deadlines: Mapping[int, int] | None = None,
    ) -> RunResult | Confirming:
        """Deliver what is behind the record at `index`, with an account of each record."""
        call = self._spans.around(self.binding.call)
        for record in run.records[index + 1 :]:
            if not progress.takes(record):
                continue
            if deadlines is not None and self._has_expired(record, deadlines, context):
                progress.has_expired(record, self._expiry.outcome)
                continue
            malformed = malformed_part(record)
            if malformed is not None and not self.binding.wants_malformed:
                progress.failed(record, Failure.of_malformed(malformed))
                continue
            try:
                outcome = copy_context().run(call, record, context)
            except BaseException as error:
                progress.failed(record, self._failure_of(error))
                continue
            progress.returned(record, outcome)
        if not progress.pending:
            return progress.result()

        def finish() -> RunResult:
            for record, promises in progress.pending:
                progress.confirmed(record, confirm(promises, self._exceptions))
            return progress.result()

        return _confirming([promise for _, promises in progress.pending for promise in promises], finish)

    def _deliver_batch(self, run: Run, has_malformed: bool) -> RunResult | Confirming:
        context = self._context(run)
        batch = self._batch(run, has_malformed, context)
        result = batch.needs_no_handler
        if result is not None:
            return result
        try:
            call = self._spans.around(self.binding.call)
            returned = copy_context().run(call, batch.records, context)
        except BaseException as error:
            return batch.raised(self._failure_of(error))
        found = batch.read(returned)
        promises = [promise for one in found for promise in promises_in(one)]

        def finish() -> RunResult:
            answers = [confirm(one, self._exceptions) if is_open(one) else failure_in(one) for one in found]
            return batch.result(returned, answers)

        if not promises:
            return finish()
        run.reached = len(run.records)
        return _confirming(promises, finish)

    async def _deliver_batch_async(self, run: Run, has_malformed: bool) -> RunResult | ConfirmingOnLoop:
        context = self._context(run)
        batch = self._batch(run, has_malformed, context)
        result = batch.needs_no_handler
        if result is not None:
            return result
        try:
            call = self._spans.around_async(self.binding.call)
            returned = await call_in_own_context(call, batch.records, context)
        except BaseException as error:
            return batch.raised(self._failure_of(error))
        found = batch.read(returned)

        async def finish() -> RunResult:
            answers = [await confirm_async(one, self._exceptions) if is_open(one) else failure_in(one) for one in found]
            return batch.result(returned, answers)

        if not any(map(is_open, found)):
            return await finish()
        run.reached = len(run.records)
        return ConfirmingOnLoop(finish)

    # Small parts

    def _failure_of(self, error: BaseException) -> Failure:
        return failure_of_raised(error, self._exceptions)

    def _batch(self, run: Run, has_malformed: bool, context: Context) -> Batch:
        is_checked = has_malformed and not self.binding.wants_malformed
        expired: set[int] = set()
        deadlines = self._expiry.deadlines(run.records)
        if deadlines is not None:
            now_ms = self._clock.now_ms()
            expired = {offset for offset, expires_ms in deadlines.items() if expires_ms <= now_ms}
            context.expires_ms = min((ms for ms in deadlines.values() if ms > now_ms), default=None)
        return Batch(
            run,
            is_checked=is_checked,
            keeps_key_order=self._keeps_key_order,
            expired=expired,
            on_expired=self._expiry.outcome,
        )

    def _has_expired(self, record: AnyRecord, deadlines: Mapping[int, int], context: Context) -> bool:
        """Whether it is too late to deliver the record. If not, the context knows until when it is not."""
        expires_ms = context.expires_ms = deadlines.get(record.offset)
        return expires_ms is not None and expires_ms <= self._clock.now_ms()

    def _context(self, run: Run) -> Context:
        return Context(
            group=self._group,
            handler=self.name,
            topic_partition=self._origin_of(run.topic_partition),
            attempt=run.attempt,
            state=self._state,
            clock=self._clock,
            run=run,
        )

    def _origin_of(self, topic_partition: TopicPartition) -> TopicPartition:
        origin = self._origins.get(topic_partition.topic)
        return topic_partition if origin is None else TopicPartition(origin, topic_partition.partition)

    def _serde_contexts(self, topic: str) -> tuple[SerdeContext, SerdeContext]:
        contexts = self._contexts.get(topic)
        if contexts is None:
            origin = self._origins.get(topic, topic)  # a retry topic's records have the schemas of their own topic
            contexts = self._contexts[topic] = (SerdeContext(origin, "value"), SerdeContext(origin, "key"))
        return contexts

    def _outage(self, run: Run, error: RegistryUnavailable) -> RunResult:
        failure = self._exceptions.failure_of(error)
        if self._ordering is Ordering.PARTITION and not self._is_batch:
            return RunResult(done=(), failures=[(run.records[0], failure)], untouched=run.records[1:])
        return RunResult(done=(), failures=[(record, failure) for record in run.records])


def _named(decoded: list[Any], serde: Serde[Any]) -> list[Any]:
    """With the serde's name in what it could not decode."""
    name = type_name(serde)
    return [replace(each, serde=name) if type(each) is Malformed else each for each in decoded]


def _confirming(promises: list[Any], finish: Callable[[], RunResult]) -> RunResult | Confirming:
    """Without a worker, where the promises call back; else this worker waits."""
    return Confirming(promises, finish) if tell_when_done(promises) else finish()
