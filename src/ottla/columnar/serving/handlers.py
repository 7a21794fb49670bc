"""Delivers a run of rows to a handler of columns: decode, call once, and read what it says of which rows.

Decoding is column-wise where the serde allows it. Rows that do not decode never reach the handler: they fail alone,
with the evidence that a handler of records would leave. What the handler raises fails all rows of the call together;
the core halves them when their retries are used up.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.app.delivery.confirmed_on_loop import ConfirmedOnLoop
from ottla.app.delivery.handler_result import failure_in, is_open, mistake, promises_in, read_returned
from ottla.app.delivery.invoker import raise_unless_of_record
from ottla.app.delivery.isolate_contextvars import call_isolated
from ottla.app.delivery.pending_sends import (
    AwaitingAcks,
    AwaitingAcksOnLoop,
    confirm,
    confirm_async,
    confirming,
    settled,
    unsettled,
)
from ottla.app.handler.binding import Binding, BindingError, bind
from ottla.app.handler.handler_context import Context
from ottla.app.handler.middleware import Middleware, wrap
from ottla.app.once.exactly_once_invoker import ExactlyOnceSettings, InTransaction
from ottla.app.once.result_settings import ResultSettings
from ottla.clock import Clock, SystemClock
from ottla.columnar.serving.frames import Frame, check_columns, data_of, form_of
from ottla.columnar.serving.returned import ColumnOutput, outputs_of, split, with_rows
from ottla.columnar.serving.rows import ArrowRows, rows_of
from ottla.columnar.serving.spans import ColumnSpans
from ottla.columnar.values.decoding import decoder_for
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.current_task import running_task
from ottla.errors import InputError, RegistryUnavailable
from ottla.failures.exceptions import ExceptionTable, Failure
from ottla.failures.expiry import EXPIRES_HEADER
from ottla.failures.outcomes import Ack, Dead, Outcomes, Retry, Skip
from ottla.once.transaction_parts import HandledRows
from ottla.producer.record_sends import HandlerSends, RecordSends, Sent, disown, end_sends
from ottla.records import Malformed, TopicPartition

if TYPE_CHECKING:
    from ottla.app.declaration.route import Route

Mask = np.ndarray[Any, Any]


class ColumnInvoker:
    """One handler of columns. It keeps nothing between runs."""

    def __init__(
        self,
        route: Route,
        middlewares: Sequence[Middleware],
        state: dict[str, Any],
        *,
        clock: Clock | None = None,
    ) -> None:
        binding = bind(route.handler, is_batch=True, is_columnar=True, resources=route.resources)
        self._form = form_of(binding.frame_hint)
        if self._form is None:
            raise BindingError(
                f"{route.name}: columns=True gives a pyarrow.RecordBatch or Table, a polars.DataFrame or a "
                f"pandas.DataFrame, but the annotation says {binding.frame_hint!r}"
            )
        self.name = route.name
        self.binding: Binding = wrap(with_rows(binding), middlewares)
        self._spans = ColumnSpans(group=route.group, handler=route.name)
        self._group = route.group
        self._values = decoder_for(route.value_serde)
        self._keys = decoder_for(route.key_serde)
        self._columns = route.columns or ()
        check_columns(route.name, self._values.type, self._columns)
        self._exceptions = ExceptionTable(route.on_error, keeps_errors=route.retry.has_strategies)
        self._expiry = route.expiry
        self._clock = clock or SystemClock()
        self._state = state
        self._origins = {name: topic for topic, names in route.retry_chains.items() for name in names}
        self._to = None if route.results is None else route.results.topic
        self._is_exactly_once = route.exactly is not None
        self._sends = None if route.is_at_most_once else HandlerSends(route.group, route.name)
        self._committer: ExactlyOnceSettings | ResultSettings | None = route.exactly or route.results

    def deliver(self, run: Run) -> RunResult | AwaitingAcks | InTransaction:
        """Deliver to a synchronous handler. What it sent may still be under way."""
        call: RunResult | InTransaction | HandlerCall = self.begin(run)
        following: RunResult | InTransaction | HandlerCall | _Open
        while isinstance(call, HandlerCall):
            own = copy_context()
            sends = own.run(self._begin_sends, None)
            try:
                returned = own.run(self._spans.around(self.binding.call), call.frame, call.context)
            except BaseException as error:
                end_sends(sends)
                following = self._raised(call, error)
            else:
                end_sends(sends)
                following = self._read(call, returned)
            waiting = self._waiting(call, following, sends or ())
            if waiting is None:
                assert not isinstance(following, _Open)
                call = following
            elif self._committer is None:
                return confirming(waiting.promises, waiting.finish)
            else:  # rows, and offsets, are written behind what it sent
                call = waiting.ended(confirm(waiting.returned, waiting.sent, self._exceptions))
        return call

    async def deliver_async(
        self, run: Run, yield_now: Callable[[], Any]
    ) -> RunResult | AwaitingAcksOnLoop | ConfirmedOnLoop:
        """Deliver to an asynchronous handler. As `deliver`."""
        call: RunResult | InTransaction | HandlerCall = self.begin(run)
        sends: RecordSends | None = None

        def begin_and_call(frame: Frame, context: Context) -> Any:
            nonlocal sends
            sends = self._begin_sends(get_running_loop())
            return self._spans.around_async(self.binding.call)(frame, context)

        following: RunResult | InTransaction | HandlerCall | _Open
        while isinstance(call, HandlerCall):
            try:
                returned = await call_isolated(begin_and_call, call.frame, call.context)
            except BaseException as error:
                end_sends(sends)
                following = self._raised(call, error)
            else:
                end_sends(sends)
                following = self._read(call, returned)
            waiting = self._waiting(call, following, sends or ())
            if waiting is None:
                assert not isinstance(following, _Open)
                call = following
            elif self._committer is None:
                return AwaitingAcksOnLoop(waiting.finish_async)
            else:
                call = waiting.ended(await waiting.failure_async())
        return ConfirmedOnLoop(call) if isinstance(call, InTransaction) else call

    # What it said

    def _read(self, call: HandlerCall, returned: Any) -> RunResult | InTransaction | HandlerCall | _Open:
        """Return the outcome of the call: its result, a pending write, its outputs, or the next call."""
        if returned is None:
            return self._ended(call, call.answered(None))
        frames, said = split(returned)
        if frames and self._to is None:
            return call.failed(mistake("the handler returned rows, and to= does not say where they go"))
        try:
            outputs = outputs_of(self._to or "", frames)
        except InputError as error:
            return call.failed(mistake(str(error)))
        if isinstance(said, Outcomes):
            result = call.outcomes(said)
            if self._is_exactly_once and result.failures and result.done is not call.head:
                return self._up_to_the_first(call, result, has_rows=bool(outputs))
            return self._ended(call, result, outputs)
        found = read_returned(said)
        if is_open(found):
            return _Open(found, outputs)
        return self._ended(call, call.answered(failure_in(found)), outputs)

    def _raised(self, call: HandlerCall, error: BaseException) -> RunResult | InTransaction:
        raise_unless_of_record(error, self._exceptions)
        return self._ended(call, call.failed(self._exceptions.failure_of(error)))

    def _begin_sends(self, loop: Any) -> RecordSends | None:
        if self._sends is None:
            return None
        return self._sends.begin() if loop is None else self._sends.begin(loop, running_task)

    def _waiting(
        self,
        call: HandlerCall,
        following: RunResult | InTransaction | HandlerCall | _Open,
        sends: Sequence[Sent],
    ) -> _UnacknowledgedOutputs | None:
        """Return the pending operation of the call, if any, with its continuation."""
        returned = promises_in(following.promises) if isinstance(following, _Open) else ()
        if not returned and not sends:
            return None
        if isinstance(following, RunResult) and _is_nothing_done(following):
            disown(sends)  # all of it comes again, or goes elsewhere
            return None
        sent = unsettled(sends, returned)
        if not returned and not sent:
            return None
        call.run.reached = len(call.run.records)

        def ended(failure: Failure | None) -> RunResult | InTransaction | HandlerCall:
            if isinstance(following, _Open):
                return self._ended(call, call.answered(failure), following.outputs)
            return following if failure is None else self._ended(call, call.answered(failure))

        return _UnacknowledgedOutputs(returned, sent, self._exceptions, ended)

    def _ended(
        self, call: HandlerCall, result: RunResult, outputs: Sequence[ColumnOutput] = ()
    ) -> RunResult | InTransaction:
        """Return the result, as soon as what it waits for is written."""
        committer = self._committer
        done = call.run.records if result.done is None else result.done
        if committer is None or result.whole is not None or not done or not (outputs or self._is_exactly_once):
            return result
        call.run.reached = len(call.run.records)
        # In a transaction all that is done comes before all that is not; else the session commits, as of other runs.
        next_offset = done[-1].offset + 1
        rows = sum(output.rows.num_rows for output in outputs)

        def refused_with(error: Exception) -> RunResult:
            return call.failed(self._exceptions.failure_of(error))

        def work(then: Callable[[RunResult], None]) -> HandledRows:
            return HandledRows(call.run, next_offset, result, outputs, rows=rows, refused_with=refused_with, then=then)

        return InTransaction(committer, work)

    def _up_to_the_first(
        self, call: HandlerCall, result: RunResult, *, has_rows: bool
    ) -> RunResult | InTransaction | HandlerCall:
        """Return the result with only the rows before the first failure as done, because one offset marks the progress.
        The handler's output covers all rows, so the others are handled again."""
        record, failure = min(result.failures, key=lambda pair: pair[0].offset)
        rows = call.run.records
        at = _index_of(rows, record.offset)
        if at == 0:
            return RunResult(done=(), failures=[(record, failure)], untouched=rows[1:], malformed=result.malformed)
        if has_rows:
            again = self.begin(call.run, at)
            if isinstance(again, HandlerCall):
                again.then_fails(record, failure)
            return again
        expired = [each for each in result.expired if each.offset < record.offset]
        behind = RunResult(
            done=rows[:at],
            failures=[(record, failure)],
            untouched=rows[at + 1 :],
            expired=expired,
            skipped=result.skipped,
        )
        return self._ended(call, behind)

    # Decoding

    def begin(self, run: Run, most: int | None = None) -> HandlerCall | RunResult:
        """Decode the run, or its first `most` rows. A result where there is nothing to hand out, or nothing can be
        decoded now."""
        if run.is_cancelled:
            return RunResult(done=(), untouched=run.records)
        all_rows = rows_of(run.records, run.topic_partition)
        rows = all_rows if most is None else all_rows[:most]
        place = self._origin_of(run.topic_partition)
        try:
            values, value_errors, keys, key_errors = rows.column("value"), None, None, None
            if not self._values.gives_bytes:
                values, value_errors = self._values.decode(values, topic=place.topic)
            if not self._keys.gives_bytes:  # else they are the column itself, which is made when it is asked for
                keys, key_errors = self._keys.decode(rows.column("key"), topic=place.topic, part="key")
        except RegistryUnavailable as error:
            return RunResult(done=(), whole=(all_rows, self._exceptions.failure_of(error)))
        result = RunResult(done=())
        context = Context(
            group=self._group,
            handler=self.name,
            topic_partition=place,
            attempt=run.attempt,
            state=self._state,
            clock=self._clock,
            run=run,
        )
        good = self._without_expired(rows, result, context)
        if value_errors is not None or key_errors is not None:
            good = self._without_malformed(rows, value_errors, key_errors, result, good)
        if self._is_exactly_once:
            return self._head(run, all_rows, rows, values, keys, good, result, context)
        if good is not None:
            if not good.any():
                return result
            rows, values, keys = _where(good, rows, values, keys)
        return HandlerCall(run, rows, self._frame(rows, values, keys, place), context, result)

    def _head(
        self,
        run: Run,
        all_rows: ArrowRows,
        rows: ArrowRows,
        values: pa.Array,
        keys: pa.Array | None,
        good: Mask | None,
        result: RunResult,
        context: Context,
    ) -> HandlerCall | RunResult:
        """Return the rows before the first failure, in a transaction; the failure is settled when they are
        committed."""
        failures = sorted(result.failures, key=lambda pair: pair[0].offset)[:1]
        at = _index_of(rows, failures[0][0].offset) if failures else len(rows)
        behind = RunResult(
            done=(),
            failures=failures,
            untouched=all_rows[at + len(failures) :],
            expired=[record for record in result.expired if not failures or record.offset < failures[0][0].offset],
            malformed=sum(failure.kind == "malformed" for _, failure in failures),
        )
        head = rows[:at]
        if at == 0 or (good is not None and not good[:at].any()):
            return replace(behind, done=head)  # the session commits the offset of what it passed over
        shown, values, keys = head, values[:at], None if keys is None else keys[:at]
        if good is not None:
            shown, values, keys = _where(good[:at], head, values, keys)
        frame = self._frame(shown, values, keys, context.topic_partition)
        return HandlerCall(run, shown, frame, context, behind, head=head, behind=all_rows[at:])

    def _frame(self, rows: ArrowRows, values: pa.Array, keys: pa.Array | None, place: TopicPartition) -> Frame:
        form, columns, is_bytes = self._form or "arrow", self._columns, self._values.gives_bytes
        frame = Frame(rows, values, keys, place, lambda: data_of(frame, form, columns, is_bytes=is_bytes))
        return frame

    def _without_malformed(
        self,
        rows: ArrowRows,
        value_errors: pa.Array | None,
        key_errors: pa.Array | None,
        result: RunResult,
        good: Mask | None,
    ) -> Mask | None:
        """Return a mask of decoded rows (None: all); every other row fails alone."""
        fine: Mask | None = None
        of_rows: dict[int, Failure] = {}
        for errors, part in ((value_errors, "value"), (key_errors, "key")):
            if errors is None or errors.null_count == len(errors):
                continue
            if fine is None:
                fine = np.ones(len(rows), dtype=np.bool_) if good is None else good.copy()
            failed = errors.is_valid().to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(failed if good is None else failed & good).tolist():
                error = errors[row].as_py()
                malformed = Malformed(
                    part=part,  # type: ignore[arg-type]
                    raw=None,
                    error=error["message"],
                    error_type=error["type"],
                    kind=error["kind"],
                )
                of_rows.setdefault(row, Failure.of_malformed(malformed))
                fine[row] = False
        if fine is None:
            return good
        result.failures = [*result.failures, *((rows[row], of_rows[row]) for row in sorted(of_rows))]
        result.malformed = len(of_rows)
        return fine

    def _without_expired(self, rows: ArrowRows, result: RunResult, context: Context) -> Mask | None:
        """Return a mask of rows that have not expired; None for all rows."""
        candidates = rows.with_header(EXPIRES_HEADER)
        if not candidates and self._expiry.ttl_ms is None:
            return None
        now_ms = self._clock.now_ms()
        if self._expiry.ttl_ms is not None:
            candidates = list({record.offset: record for record in (*candidates, *self._old(rows, now_ms))}.values())
        deadlines = self._expiry.deadlines(candidates) if candidates else None
        if deadlines is None:
            return None
        context.expires_ms = min((ms for ms in deadlines.values() if ms > now_ms), default=None)
        late = [record for record in candidates if deadlines.get(record.offset, now_ms + 1) <= now_ms]
        offsets = {record.offset for record in late}
        fine = np.ones(len(rows), dtype=np.bool_)
        fine[[row for row, offset in enumerate(rows.offsets) if offset in offsets] if offsets else []] = False
        if isinstance(self._expiry.outcome, Dead):
            result.failures = [(record, Failure.of_expiry(self._expiry.outcome)) for record in late]
        else:
            result.expired = late
            result.done = late
        return fine

    def _old(self, rows: ArrowRows, now_ms: int) -> list[AnyRecord]:
        """Return the rows that may have expired: in a retry topic, whose timestamps are later, any of them."""
        if rows.partition.topic in self._origins:
            return list(rows)
        born_ms = rows.column("timestamp").cast(pa.int64()).to_numpy() // 1_000
        latest_ms = now_ms - (self._expiry.ttl_ms or 0) - self._expiry.grace_ms
        return [rows[int(row)] for row in np.flatnonzero((born_ms >= 0) & (born_ms <= latest_ms))]

    def _origin_of(self, place: TopicPartition) -> TopicPartition:
        origin = self._origins.get(place.topic)
        return place if origin is None else TopicPartition(origin, place.partition)


def _where(
    mask: Mask, rows: ArrowRows, values: pa.Array, keys: pa.Array | None
) -> tuple[ArrowRows, pa.Array, pa.Array | None]:
    """Return the rows, with values and keys, for which the mask is true."""
    if mask.all():
        return rows, values, keys
    chosen = pa.array(mask)
    return rows.where(mask), values.filter(chosen), None if keys is None else keys.filter(chosen)


class _Open(NamedTuple):
    """The pending sends of a handler, and the rows to write after them."""

    promises: Sequence[Any]
    outputs: Sequence[ColumnOutput]


@dataclass(frozen=True, slots=True)
class _UnacknowledgedOutputs:
    """Sends that are not acknowledged yet, and the call's result with or without a failure."""

    returned: Sequence[Any]
    sent: Sequence[Sent]
    exceptions: ExceptionTable
    ended: Callable[[Failure | None], RunResult | InTransaction | HandlerCall]

    @property
    def promises(self) -> list[Any]:
        return [*self.returned, *self.sent]

    def finish(self, are_acknowledged: bool) -> RunResult:
        """Return the result, if no rows are to be written."""
        failure = None if are_acknowledged else confirm(self.returned, self.sent, self.exceptions)
        return self._result(failure)

    async def finish_async(self) -> RunResult:
        return self._result(await self.failure_async())

    async def failure_async(self) -> Failure | None:
        await settled(self.promises)
        return await confirm_async(self.returned, self.sent, self.exceptions)

    def _result(self, failure: Failure | None) -> RunResult:
        result = self.ended(failure)
        assert isinstance(result, RunResult)
        return result


def _is_nothing_done(result: RunResult) -> bool:
    return result.done is not None and len(result.done) <= len(result.expired)


class HandlerCall:
    """One call of the handler: its rows, and what is known of those that it did not get.

    In a transaction it gets the `head` of a run: what `others` says of the rows `behind` counts when that is done.
    """

    __slots__ = ("_behind", "_others", "context", "frame", "head", "rows", "run")

    def __init__(
        self,
        run: Run,
        rows: ArrowRows,
        frame: Frame,
        context: Context,
        others: RunResult,
        *,
        head: ArrowRows | None = None,
        behind: Sequence[AnyRecord] = (),
    ) -> None:
        self.run = run
        self.rows = rows
        self.frame = frame
        self.context = context
        self._others = others
        self.head = head
        self._behind = behind

    def then_fails(self, record: AnyRecord, failure: Failure) -> None:
        """Record that the row behind the head is known to fail."""
        if not self._others.failures:
            self._others = replace(self._others, failures=[(record, failure)], untouched=self._behind[1:])

    def answered(self, failure: Failure | None) -> RunResult:
        """Return the handler said one thing of all rows."""
        if failure is None:
            return self._result(done=self.rows)
        return self.failed(failure)

    def failed(self, failure: Failure) -> RunResult:
        """Fail all rows together."""
        if isinstance(failure.outcome, Ack | Skip):
            return self._result(done=self.rows, skipped=len(self.rows) if isinstance(failure.outcome, Skip) else 0)
        if isinstance(failure.outcome, Dead) and failure.error_type == "Dead" and self.head is None:
            # The handler returned it: all of them, it says, and none is to be looked at alone.
            return self._result(failures=[(record, failure) for record in self.rows])
        return self._result(whole=(self.rows, failure))

    def outcomes(self, outcomes: Outcomes) -> RunResult:
        """Settle the rows that the handler named as it says, and all others as done."""
        count = len(self.rows)
        left = np.ones(count, dtype=np.bool_)  # not named so far
        done = np.ones(count, dtype=np.bool_)
        failures: list[tuple[AnyRecord, Failure]] = []
        skipped = 0
        for given, outcome in outcomes.parts:
            try:
                named = _numbers_of(given, count)
            except (TypeError, ValueError, IndexError) as error:
                return self.failed(mistake(f"Outcomes: {error}"))
            named = named[left[named]]
            left[named] = False
            if isinstance(outcome, Retry | Dead):
                failure = Failure.of_outcome(outcome)
                failures += [(self.rows[int(row)], failure) for row in named]
                done[named] = False
            elif isinstance(outcome, Skip):
                skipped += len(named)
        if not failures:
            return self._result(done=self.rows, skipped=skipped)
        failures.sort(key=lambda pair: pair[0].offset)
        return self._result(done=self.rows.where(done), failures=failures, skipped=skipped)

    def _result(
        self,
        *,
        done: Sequence[AnyRecord] = (),
        failures: Sequence[tuple[AnyRecord, Failure]] = (),
        skipped: int = 0,
        whole: tuple[Sequence[AnyRecord], Failure] | None = None,
    ) -> RunResult:
        others = self._others
        if self.head is not None and whole is not None:
            return RunResult(done=others.expired, expired=others.expired, whole=whole, untouched=self._behind)
        if self.head is not None and not failures:
            if not others.failures and not others.untouched:
                return RunResult(expired=others.expired, skipped=skipped)
            return replace(others, done=self.head, skipped=skipped)
        if not others.failures and not others.expired and not failures and whole is None:
            return RunResult(skipped=skipped)
        return RunResult(
            done=[*others.expired, *done] if others.expired else done,
            failures=[*others.failures, *failures],
            expired=others.expired,
            skipped=skipped,
            malformed=others.malformed,
            whole=whole,
        )


def _index_of(rows: Sequence[AnyRecord], offset: int) -> int:
    """Return the index of the row with this offset."""
    offsets = rows.offsets if isinstance(rows, ArrowRows) else [record.offset for record in rows]
    return offset - offsets[0] if isinstance(offsets, range) else int(np.searchsorted(np.asarray(offsets), offset))


def _numbers_of(given: Any, count: int) -> np.ndarray[Any, Any]:
    """Return row numbers from a mask or from numbers."""
    if hasattr(given, "to_numpy"):
        is_arrow = isinstance(given, pa.Array | pa.ChunkedArray)
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        given = given.fill_null(False) if is_arrow and pa.types.is_boolean(given.type) else given
        given = given.to_numpy(zero_copy_only=False) if isinstance(given, pa.Array) else given.to_numpy()
    found = np.asarray(list(given) if isinstance(given, set | frozenset | range) else given)
    if found.dtype == object and all(value is None or isinstance(value, bool | np.bool_) for value in found):
        found = np.array([bool(value) for value in found], dtype=np.bool_)
    if found.dtype == np.bool_:
        if found.shape != (count,):
            raise ValueError(f"found a mask of {len(found)}, wanted one of {count} rows")
        return np.flatnonzero(found)
    if not found.size:
        return np.zeros(0, dtype=np.int64)
    if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer):
        raise TypeError(f"found {given!r}, wanted a mask or the numbers of rows")
    if found.min() < 0 or found.max() >= count:
        raise IndexError(f"found row {found.min() if found.min() < 0 else found.max()}, wanted 0 to {count - 1}")
    return np.unique(found)
