"""Delivers a run to its handler: decode, call, turn what comes back into a `RunResult`. The hot path of consuming.

Costs per record: the decoder, one call in a context of its own, two comparisons and one assignment. Everything else is
per run. A failing record pays for its own evidence. The synchronous and the asynchronous loop differ in their awaits
only. `failure_of_exception` reads what a handler raised, `handler_result` what it returned, `handler_batch` the answer
for a batch.
"""

from __future__ import annotations

from asyncio import CancelledError, get_running_loop
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace
from inspect import isawaitable
from time import monotonic
from types import CoroutineType
from typing import Any, Final, TypeAlias

from ottla.app.delivery.current_task import is_being_cancelled, running_task
from ottla.app.delivery.handler_batch import Batch, malformed_part
from ottla.app.delivery.handler_result import Returned, failure_in, promises_in, read_returned
from ottla.app.delivery.handler_spans import HandlerSpans
from ottla.app.delivery.isolate_contextvars import call_isolated, values_in
from ottla.app.delivery.pending_sends import (
    AwaitingAcks,
    AwaitingAcksOnLoop,
    Pending,
    confirm,
    confirm_async,
    confirming,
    pending_of,
    promises_of,
    settled,
    unsettled,
)
from ottla.app.delivery.run_progress import RunProgress
from ottla.app.handler.binding import Binding, Call
from ottla.app.handler.handler_context import Context
from ottla.clock import Clock, SystemClock
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.lanes import Ordering
from ottla.errors import RegistryUnavailable
from ottla.failures.exceptions import ExceptionTable, Failure
from ottla.failures.expiry import NEVER, Expiry
from ottla.failures.outcomes import Ack, Skip
from ottla.producer.record_sends import HandlerSends, RecordSends, Sent, end_sends, handled, has_senders
from ottla.records import Malformed, TopicPartition
from ottla.serdes import Bytes, Serde, SerdeContext
from ottla.serdes.base import type_name

_YIELD_EVERY_S: Final = 0.004
"""An event loop that is kept longer than a few milliseconds stops answering its heartbeats and its neighbours."""

_PART_RECORDS: Final = 100
"""How many values are decoded ahead of a handler that takes only values. The garbage collector runs after 700
allocations and moves survivors to an older generation; 2,000 values decoded together survive it. That cost a tenth of
the CPU of a record."""

Yield = Callable[[], Awaitable[None]]

Stretches: TypeAlias = "Generator[tuple[Call, Iterable[Any], bool], None, None]"
"""Tuples of a callable, its subjects (records or values), and whether a subject may be malformed."""


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
        "_keys_are_bytes",
        "_of_value",
        "_ordering",
        "_origins",
        "_sends",
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
        # Under at-most-once its records are committed before it begins: nothing waits for what it sends.
        self._sends = None if is_at_most_once else HandlerSends(group, name)
        self._keeps_key_order = ordering is not Ordering.UNORDERED and not is_at_most_once
        self._state = state
        self._origins = dict(origins or {})
        self._contexts: dict[str, tuple[SerdeContext, SerdeContext]] = {}
        self._spans = HandlerSpans(group=group, handler=name, is_batch=is_batch)
        self._keys_are_bytes = type(key) is Bytes
        self._bytes_only = self._keys_are_bytes and type(value) is Bytes
        # Keys are decoded, too, as a malformed one is a failure of its record.
        self._of_value = binding.of_value if self._keys_are_bytes and not self._bytes_only else None

    # Decoding

    def would_block(self, run: Run) -> bool:
        """Return whether decoding waits for the network (a schema id that was never seen)."""
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
            has_malformed = decode_values(records, self._value, value_context)
            has_malformed |= self._decode_keys(run, key_context)
        except RegistryUnavailable as error:
            return False, self._outage(run, error)
        return has_malformed, None

    def _decode_keys(self, run: Run, context: SerdeContext) -> bool:
        """Decode the keys of a run in place. Returns whether one is malformed."""
        if self._keys_are_bytes:  # as they came; a handler may have changed them before it failed
            for record in () if run.is_first else run.records:
                record.key = record.raw_key
            return False
        keys = self._key.deserialize_many([record.raw_key for record in run.records], context)
        has_malformed = Malformed in set(map(type, keys))
        found = with_serde_name(keys, self._key) if has_malformed else keys
        for record, key in zip(run.records, found, strict=True):
            record.key = key
        return has_malformed

    # The loops

    def deliver(self, run: Run) -> RunResult | AwaitingAcks:
        """Deliver with a synchronous handler. What the handler sent on may still be under way."""
        if self._of_value is not None and self._spans.are_off:
            stretches = self._values(run, self._of_value)
        else:
            has_malformed, result = self.decode(run)
            if result is not None:
                return result
            if self._is_batch:
                return self._deliver_batch(run, has_malformed)
            stretches = self._records(run, has_malformed and not self.binding.wants_malformed)
        before = handled.set(None)
        try:
            return self._deliver_run(run, stretches, self._sends)
        finally:
            handled.reset(before)

    def _records(self, run: Run, is_checked: bool) -> Stretches:
        """Return the records of a run, which are decoded."""
        for call, records in self._spans.stretches(self.binding.call, run.records):
            yield call, records, is_checked

    def _values(self, run: Run, of_value: Call) -> Stretches:
        """Return the values of a run, each part decoded when the one before it is handled. Raises
        `RegistryUnavailable`."""
        context, _ = self._serde_contexts(run.topic_partition.topic)
        records, serde = run.records, self._value
        for begin in range(0, len(records), _PART_RECORDS):
            part = records[begin : begin + _PART_RECORDS]
            values = serde.deserialize_records(part, context)
            if Malformed in set(map(type, values)):
                keep_values(part, values, serde)
                yield self.binding.call, part, not self.binding.wants_malformed
            else:
                yield of_value, values, False

    def _deliver_run(self, run: Run, stretches: Stretches, sends_of: HandlerSends | None) -> RunResult | AwaitingAcks:
        context = self._context(run)
        deadlines = self._expiry.deadlines(run.records)
        if deadlines is not None:
            return self._rest(context, RunProgress(run, self._ordering), sends_of, deadlines)
        if sends_of is not None and has_senders():
            return self._deliver_sending(run, context, stretches, sends_of)
        sends = None if sends_of is None else sends_of.begin()  # the handler may make the first producer
        index, skipped, found = self._deliver_plainly(run, context, stretches, () if sends is None else sends)
        taken = () if sends is None else sends.end()
        if isinstance(found, Failure):
            return self._rest(context, self._failed_at(run, index, found, taken, skipped), sends_of)
        if isinstance(found, RegistryUnavailable):
            progress = RunProgress(run, self._ordering, run.records[:index], (), skipped)
            return self._rest(context, progress, sends_of, outage=self._exceptions.failure_of(found))
        if found is not None:
            sent = unsettled(taken, found)
            pending = [(run.records[index], found, sent)] if found or sent else []
            done = run.records[:index] if pending else run.records[: index + 1]
            return self._rest(context, RunProgress(run, self._ordering, done, pending, skipped), sends_of)
        if index == len(run.records):
            return RunResult(skipped=skipped)
        return self._rest(context, RunProgress(run, self._ordering, run.records[:index], (), skipped), sends_of)

    def _deliver_plainly(
        self, run: Run, context: Context, stretches: Stretches, sends: Sequence[Sent]
    ) -> tuple[int, int, Failure | Sequence[Any] | RegistryUnavailable | None]:
        """Deliver until a record needs an account of its own. Returns how many are done before it, how many of these
        were skipped, and why it ended there: a failure, what the handler returned and did not wait for, or the error
        of a registry that does not answer. What the handler returned is empty if only `sends` is not. The reason is
        None if the run ended or was cancelled."""
        index = skipped = 0
        try:
            for call, subjects, is_checked in stretches:
                for subject in subjects:
                    if run.is_cancelled:
                        return index, skipped, None
                    if is_checked and (malformed := malformed_part(subject)) is not None:
                        return index, skipped, Failure.of_malformed(malformed)
                    try:
                        outcome = copy_context().run(call, subject, context)
                    except BaseException as error:
                        return index, skipped, self._failure_of(error)
                    if outcome is not None and type(outcome) is not Ack:
                        if type(outcome) is not Skip:
                            found = read_returned(outcome)
                            if found is not None:
                                return index, skipped, found
                        else:
                            skipped += 1
                    if sends:
                        return index, skipped, ()
                    index += 1
                    run.done = index
            return index, skipped, None
        except RegistryUnavailable as error:
            return index, skipped, error
        finally:
            stretches.close()

    def _deliver_sending(
        self, run: Run, context: Context, stretches: Stretches, sends_of: HandlerSends
    ) -> RunResult | AwaitingAcks:
        """Deliver as `_deliver_plainly` does, where there are producers: what a handler sends belongs to its record."""
        # As terse as that. What the run waits for is one list: `ends` has, of each record from the first one that waits
        # on, where its part of the list ends, and `answers` what its handler returned.
        index = skipped = 0
        failure: Failure | None = None
        outage: Failure | None = None
        is_exact = sends_of.is_exact(len(run.records))
        sends = sends_of.begin()
        promises: list[Any] = [] if is_exact else sends
        ends: list[int] = []
        answers: list[Any] = []
        try:
            for call, subjects, is_checked in stretches:
                for subject in subjects:
                    if run.is_cancelled:
                        break
                    if is_checked and (malformed := malformed_part(subject)) is not None:
                        failure = Failure.of_malformed(malformed)
                        break
                    if is_exact:
                        sends = sends_of.begin()
                    if ends:
                        run.reached = index + 1
                    answer: Any = None
                    try:
                        outcome = copy_context().run(call, subject, context)
                    except BaseException as error:
                        failure = self._failure_of(error)
                        break
                    finally:
                        if is_exact:
                            promises += sends.end()
                        elif sends_of.has_heirs:
                            is_exact, promises = True, sends.end()
                    if outcome is not None and type(outcome) is not Ack:
                        if promises and outcome is promises[-1]:
                            answer = outcome
                        elif type(outcome) is Skip:
                            skipped += 1
                        else:
                            answer = read_returned(outcome)
                            if isinstance(answer, Failure):
                                failure = answer
                                break
                            promises += answer or ()
                    if ends:
                        ends.append(len(promises))
                        answers.append(answer)
                    elif promises:
                        count = len(promises)
                        if answer is not None or unsettled(promises[:count]):
                            ends.append(count)
                            answers.append(answer)
                        else:
                            del promises[:count]
                            run.done = index + 1
                    else:
                        run.done = index + 1
                    index += 1
                else:
                    continue
                break
        except RegistryUnavailable as error:
            outage = self._exceptions.failure_of(error)
        finally:
            left = sends.end()
            promises = left if promises is sends else promises + left
            stretches.close()
        seen = run.records[:index]
        count = ends[-1] if ends else 0
        left = promises[count:]
        if failure is None:
            sends_of.sent_late_in(left)
        if index < len(run.records):  # failed, cancelled, or not decoded
            pending = pending_of(seen, promises, ends, answers)
            if failure is None:
                progress = RunProgress(run, self._ordering, _without(seen, pending), pending, skipped)
            else:
                progress = self._failed_at(run, index, failure, left, skipped, pending)
            return self._rest(context, progress, sends_of, outage=outage)
        if not ends:
            return RunResult(skipped=skipped)
        run.reached = index
        del promises[count:]

        def finish(are_acknowledged: bool) -> RunResult:
            if are_acknowledged:
                return RunResult(skipped=skipped)
            pending = pending_of(seen, promises, ends, answers)
            done = _without(seen, pending)
            return self._confirmed(RunProgress(run, self._ordering, done, pending, skipped))

        return confirming(promises, finish)

    async def deliver_async(self, run: Run, yield_now: Yield) -> RunResult | AwaitingAcksOnLoop:
        """Deliver with an asynchronous handler; `yield_now` lets the loop breathe. As `deliver`."""
        has_malformed, result = self.decode(run)
        if result is not None:
            return result
        if self._is_batch:
            return await self._deliver_batch_async(run, has_malformed)
        progress = RunProgress(run, self._ordering)
        progress.breathe_at_s = monotonic() + _YIELD_EVERY_S
        progress.deadlines = self._expiry.deadlines(run.records)
        feed = iter(run.records)
        is_checked = has_malformed and not self.binding.wants_malformed
        sends_of = self._sends
        while await call_isolated(self._deliver_some, feed, progress, is_checked, yield_now, sends_of):
            pass
        if not progress.pending:
            return progress.result()

        async def finish() -> RunResult:
            await settled(promises_of(progress.pending))
            for record, returned, sent in progress.pending:
                progress.confirmed(record, await confirm_async(returned, sent, self._exceptions))
            return progress.result()

        return AwaitingAcksOnLoop(finish)

    async def _deliver_some(
        self,
        feed: Iterator[AnyRecord],
        progress: RunProgress,
        is_checked: bool,
        yield_now: Yield,
        sends_of: HandlerSends | None,
    ) -> bool:
        """Deliver records until a handler leaves the context changed. Returns whether there may be more.

        So the next record begins in a fresh context, and those before it cost a comparison instead of a context each.
        """
        clean = copy_context()
        outside = values_in(clean, without=handled)
        context = self._context(progress.run)
        call = self._spans.around_async(self.binding.call)
        breathe_at_s = progress.breathe_at_s
        deadlines = progress.deadlines
        loop = get_running_loop()
        is_exact = sends_of is not None and has_senders() and sends_of.is_exact(len(progress.run.records))
        sends: RecordSends | None = None
        try:
            for record in feed:
                if not progress.takes(record):
                    continue
                if deadlines is not None and self._has_expired(record, deadlines, context):
                    progress.has_expired(record, self._expiry.outcome)
                    continue
                if is_checked and (malformed := malformed_part(record)) is not None:
                    progress.failed(record, Failure.of_malformed(malformed))
                    continue
                if sends_of is not None and (is_exact or sends is None):
                    sends = sends_of.begin(loop, running_task)
                    clean = copy_context()
                try:
                    outcome = call(record, context)
                    if type(outcome) is CoroutineType or (outcome is not None and isawaitable(outcome)):
                        outcome = await outcome
                except BaseException as error:
                    if is_exact:
                        end_sends(sends)
                    progress.failed(record, self._failure_of(error), sends.take() if sends else ())
                else:
                    if is_exact:
                        end_sends(sends)
                    progress.returned(record, outcome, sends.take() if sends else ())
                if monotonic() > breathe_at_s:
                    await yield_now()
                    breathe_at_s = progress.breathe_at_s = monotonic() + _YIELD_EVERY_S
                is_exact = is_exact or (sends_of is not None and sends_of.has_heirs)
                try:
                    if copy_context() != clean:
                        return True
                    for read, value in outside:  # as `all(...)` it would take twice as long
                        if read(None) is not value:
                            return True
                except Exception:  # the `==` of a value raised, as that of numpy's arrays does: there is another one
                    return True
            return False
        finally:
            if sends is not None and sends_of is not None:
                sends_of.sent_late_in(sends.end())

    def _failed_at(
        self,
        run: Run,
        index: int,
        failure: Failure,
        sends: Sequence[Sent],
        skipped: int,
        pending: Sequence[Pending] = (),
    ) -> RunProgress:
        """Return the account of a run in which the record at `index` failed, after having sent `sends`."""
        progress = RunProgress(run, self._ordering, _without(run.records[:index], pending), pending, skipped)
        progress.reaches_next()
        progress.failed(run.records[index], failure, sends)
        return progress

    def _rest(
        self,
        context: Context,
        progress: RunProgress,
        sends_of: HandlerSends | None = None,
        deadlines: Mapping[int, int] | None = None,
        *,
        outage: Failure | None = None,
    ) -> RunResult | AwaitingAcks:
        """Deliver what is left of a run, with an account of each record. `outage` is why it cannot be decoded now: the
        registry is not asked again, as each request may block until its timeout."""
        call = self._spans.around(self.binding.call)
        run = progress.run
        sends: RecordSends | None = None
        left = run.records[run.reached :]
        if outage is None and self._of_value is not None and progress.may_take:
            outage = self._decode_left(run, left)
        for record in left:
            if not progress.takes(record):
                continue
            if deadlines is not None and self._has_expired(record, deadlines, context):
                progress.has_expired(record, self._expiry.outcome)
                continue
            if outage is not None:
                progress.failed(record, outage)
                continue
            malformed = malformed_part(record)
            if malformed is not None and not self.binding.wants_malformed:
                progress.failed(record, Failure.of_malformed(malformed))
                continue
            if sends_of is not None:
                sends = sends_of.begin()
            try:
                outcome = copy_context().run(call, record, context)
            except BaseException as error:
                end_sends(sends)
                progress.failed(record, self._failure_of(error), sends or ())
                continue
            end_sends(sends)
            progress.returned(record, outcome, sends or ())
        if not progress.pending:
            return progress.result()
        return confirming(promises_of(progress.pending), lambda _: self._confirmed(progress))

    def _decode_left(self, run: Run, records: Sequence[AnyRecord]) -> Failure | None:
        """Decode the last records of a run that is decoded in parts. Returns why that is not possible now."""
        context, _ = self._serde_contexts(run.topic_partition.topic)
        try:
            decode_values(records, self._value, context)
        except RegistryUnavailable as error:
            return self._exceptions.failure_of(error)
        return None

    def _confirmed(self, progress: RunProgress) -> RunResult:
        """Return the result of a run once the sends of its pending records are settled."""
        for record, returned, sent in progress.pending:
            progress.confirmed(record, confirm(returned, sent, self._exceptions))
        return progress.result()

    def _deliver_batch(self, run: Run, has_malformed: bool) -> RunResult | AwaitingAcks:
        context = self._context(run)
        batch = self._batch(run, has_malformed, context)
        result = batch.needs_no_handler
        if result is not None:
            return result
        own = copy_context()
        sends = own.run(self._begin_batch)
        returned = None
        try:
            returned = own.run(self._spans.around(self.binding.call), batch.records, context)
        except BaseException as error:
            found: Sequence[Returned] = [self._failure_of(error)]
        else:
            found = batch.read(returned)
        finally:
            end_sends(sends)
        sent = batch.waits_for(found, sends or ())

        def finish(_: bool) -> RunResult:
            answers = [confirm(promises_in(one), (), self._exceptions) or failure_in(one) for one in found]
            return batch.result(returned, answers, confirm((), sent, self._exceptions))

        promises = [promise for one in found for promise in promises_in(one)] + sent
        if not promises:
            return finish(True)
        run.reached = len(run.records)
        return confirming(promises, finish)

    async def _deliver_batch_async(self, run: Run, has_malformed: bool) -> RunResult | AwaitingAcksOnLoop:
        context = self._context(run)
        batch = self._batch(run, has_malformed, context)
        result = batch.needs_no_handler
        if result is not None:
            return result
        sends: RecordSends | None = None

        def call(records: Sequence[AnyRecord], context: Context) -> Any:
            nonlocal sends
            sends = self._begin_batch(get_running_loop())
            return self._spans.around_async(self.binding.call)(records, context)

        returned = None
        try:
            returned = await call_isolated(call, batch.records, context)
        except BaseException as error:
            found: Sequence[Returned] = [self._failure_of(error)]
        else:
            found = batch.read(returned)
        finally:
            end_sends(sends)
        sent = batch.waits_for(found, sends or ())
        promises = [promise for one in found for promise in promises_in(one)] + sent

        async def finish() -> RunResult:
            await settled(promises)
            answers = [await confirm_async(promises_in(one), (), self._exceptions) or failure_in(one) for one in found]
            return batch.result(returned, answers, confirm((), sent, self._exceptions))

        if not promises:
            return await finish()
        run.reached = len(run.records)
        return AwaitingAcksOnLoop(finish)

    # Small parts

    def _begin_batch(self, loop: Any = None) -> RecordSends | None:
        if self._sends is None:
            return None
        return self._sends.begin() if loop is None else self._sends.begin(loop, running_task)

    def _failure_of(self, error: BaseException) -> Failure:
        return failure_of_exception(error, self._exceptions)

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
        """Return whether the record has expired. If not, set its remaining time in the context."""
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


def failure_of_exception(error: BaseException, exceptions: ExceptionTable) -> Failure:
    """Return the failure of the record whose handler raised. Raises `error` again if it does not concern the record.

    | raised | then |
    |---|---|
    | an `Exception` | a failure of the record, by the exception table |
    | `CancelledError`, while the handler's task is not being cancelled | the same: its awaited call was cancelled |
    | `SystemExit`, `KeyboardInterrupt` | the app stops gracefully and raises it from `run` or `serve` |
    | what the exception table names, whatever it is | a failure of the record, as declared |
    | any other `BaseException` | the worker is dead: the partition stops, the app is not alive |
    """
    if isinstance(error, CancelledError):
        if is_being_cancelled():
            raise error
    elif isinstance(error, GeneratorExit) or not (isinstance(error, Exception) or exceptions.declares(error)):
        raise error
    return exceptions.failure_of(error)


def decode_values(records: Sequence[AnyRecord], serde: Serde[Any], context: SerdeContext) -> bool:
    """Decode values in place. Returns whether one is malformed."""
    return keep_values(records, serde.deserialize_records(records, context), serde)


def keep_values(records: Sequence[AnyRecord], values: list[Any], serde: Serde[Any]) -> bool:
    """Set the values of records. Returns whether one is malformed."""
    has_malformed = Malformed in set(map(type, values))
    found = with_serde_name(values, serde) if has_malformed else values
    for record, value in zip(records, found, strict=True):
        record.value = value
    return has_malformed


def with_serde_name(decoded: list[Any], serde: Serde[Any]) -> list[Any]:
    """Return the failures with the serde's name in what it could not decode."""
    name = type_name(serde)
    return [replace(each, serde=name) if type(each) is Malformed else each for each in decoded]


def _without(records: Sequence[AnyRecord], pending: Sequence[Pending]) -> Sequence[AnyRecord]:
    """Return those that wait for nothing."""
    if not pending:
        return records
    waiting = {record.offset for record, _, _ in pending}
    return [record for record in records if record.offset not in waiting]
