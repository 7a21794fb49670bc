"""Delivers a run to its handler: decode, call, turn what comes back into a `RunResult`. The hot path of consuming.

Costs per record: the decoder, one call, two comparisons and one assignment. Everything else is per run. A failing
record pays for its own evidence. The synchronous and the asynchronous loop differ in their awaits only.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Final

from ottla.app.binding import Binding
from ottla.app.context import Context
from ottla.app.pending import Confirming, ConfirmingOnLoop, confirm, confirm_async, pending_of, tell_when_done
from ottla.consumer.lanes import Ordering
from ottla.consumer.run import AnyRecord, Run, RunResult
from ottla.delivery.exceptions import ExceptionTable, Failure
from ottla.delivery.outcomes import Ack, Dead, Retry, Skip
from ottla.errors import RegistryUnavailable
from ottla.records import Malformed, TopicPartition
from ottla.serdes import Bytes, Serde, SerdeContext

_YIELD_EVERY_S: Final = 0.004
"""An event loop that is kept longer than a few milliseconds stops answering its heartbeats and its neighbours."""

Yield = Callable[[], Awaitable[None]]


class Invoker:
    """One handler with its serdes and its exception table. Thread-safe: it keeps nothing between runs."""

    __slots__ = (
        "_bytes_only",
        "_contexts",
        "_exceptions",
        "_group",
        "_is_batch",
        "_key",
        "_ordering",
        "_origins",
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
        origins: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.binding = binding
        self._group = group
        self._value = value
        self._key = key
        self._exceptions = exceptions
        self._ordering = ordering
        self._is_batch = is_batch
        self._state = state
        self._origins = dict(origins or {})
        self._contexts: dict[str, tuple[SerdeContext, SerdeContext]] = {}
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
        for record, value, key in zip(records, values, keys, strict=True):
            record.value = value
            record.key = key
        has_malformed = Malformed in set(map(type, values)) or Malformed in set(map(type, keys))
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
        call = self.binding.call
        is_checked = has_malformed and not self.binding.wants_malformed
        index = skipped = 0
        for record in run.records:
            if run.is_cancelled:
                break
            if is_checked and (malformed := _malformed_part(record)) is not None:
                return self._with_failures(run, index, Failure.of_malformed(malformed), context, skipped)
            try:
                outcome = call(record, context)
            except Exception as error:
                return self._with_failures(run, index, self._exceptions.failure_of(error), context, skipped)
            if outcome is not None and type(outcome) is not Ack:
                if pending_of(outcome) is not None:
                    return self._with_pending(run, index, outcome, context, skipped)
                failure = _failure_of_outcome(outcome)
                if failure is not None and type(outcome) is not Skip:
                    return self._with_failures(run, index, failure, context, skipped)
                skipped += failure is not None
            index += 1
            run.done = index
        if index == len(run.records):
            return RunResult(skipped=skipped)
        return RunResult(done=run.records[:index], untouched=run.records[index:], skipped=skipped)

    async def deliver_async(self, run: Run, yield_now: Yield) -> RunResult | ConfirmingOnLoop:
        """Deliver with an asynchronous handler; `yield_now` lets the loop breathe. As `deliver`."""
        has_malformed, result = self.decode(run)
        if result is not None:
            return result
        if self._is_batch:
            return await self._deliver_batch_async(run, has_malformed)
        context = self._context(run)
        progress = _Progress(run, self._ordering)
        call = self.binding.call
        is_checked = has_malformed and not self.binding.wants_malformed
        breathe_at_s = monotonic() + _YIELD_EVERY_S
        for record in run.records:
            if not progress.takes(record):
                continue
            if is_checked and (malformed := _malformed_part(record)) is not None:
                progress.failed(record, Failure.of_malformed(malformed))
                continue
            try:
                outcome = await call(record, context)
            except Exception as error:
                progress.failed(record, self._exceptions.failure_of(error))
                continue
            progress.returned(record, outcome)
            if monotonic() > breathe_at_s:
                await yield_now()
                breathe_at_s = monotonic() + _YIELD_EVERY_S
        if not progress.pending:
            return progress.result()

        async def finish() -> RunResult:
            for record, promises in progress.pending:
                progress.confirmed(record, await confirm_async(promises, self._exceptions))
            return progress.result()

        return ConfirmingOnLoop(finish)

    def _with_pending(
        self, run: Run, index: int, outcome: Any, context: Context, skipped: int
    ) -> RunResult | Confirming:
        """The rest of a run in which the handler of the record at `index` returned what it sent."""
        progress = _Progress(run, self._ordering, done=run.records[:index])
        progress.skipped = skipped
        progress.reaches_next()
        progress.returned(run.records[index], outcome)
        return self._rest(run, index, context, progress)

    def _with_failures(
        self, run: Run, index: int, failure: Failure, context: Context, skipped: int
    ) -> RunResult | Confirming:
        """The rest of a run in which the record at `index` failed."""
        progress = _Progress(run, self._ordering, done=run.records[:index])
        progress.skipped = skipped
        progress.reaches_next()
        progress.failed(run.records[index], failure)
        return self._rest(run, index, context, progress)

    def _rest(self, run: Run, index: int, context: Context, progress: _Progress) -> RunResult | Confirming:
        for record in run.records[index + 1 :]:
            if not progress.takes(record):
                continue
            malformed = _malformed_part(record)
            if malformed is not None and not self.binding.wants_malformed:
                progress.failed(record, Failure.of_malformed(malformed))
                continue
            try:
                progress.returned(record, self.binding.call(record, context))
            except Exception as error:
                progress.failed(record, self._exceptions.failure_of(error))
        if not progress.pending:
            return progress.result()

        def finish() -> RunResult:
            for record, promises in progress.pending:
                progress.confirmed(record, confirm(promises, self._exceptions))
            return progress.result()

        return _confirming([promise for _, promises in progress.pending for promise in promises], finish)

    def _deliver_batch(self, run: Run, has_malformed: bool) -> RunResult | Confirming:
        records, failures = self._sound_records(run, has_malformed)
        if run.is_cancelled:
            return RunResult(done=(), untouched=run.records)
        if not records:
            return RunResult(done=(), failures=failures, malformed=len(failures))
        try:
            outcomes = self.binding.call(records, self._context(run))
        except Exception as error:
            return self._failed_batch(records, failures, error)
        promises = _promises_in(outcomes)
        if not promises:
            return self._batch_result(records, failures, outcomes)
        run.reached = len(run.records)
        return _confirming(
            promises,
            lambda: self._batch_result(records, failures, [self._settled(outcome) for outcome in outcomes]),
        )

    async def _deliver_batch_async(self, run: Run, has_malformed: bool) -> RunResult | ConfirmingOnLoop:
        records, failures = self._sound_records(run, has_malformed)
        if run.is_cancelled:
            return RunResult(done=(), untouched=run.records)
        if not records:
            return RunResult(done=(), failures=failures, malformed=len(failures))
        try:
            outcomes = self.binding.call(records, self._context(run))
            if inspect.isawaitable(outcomes):
                outcomes = await outcomes
        except Exception as error:
            return self._failed_batch(records, failures, error)
        if not _promises_in(outcomes):
            return self._batch_result(records, failures, outcomes)
        run.reached = len(run.records)

        async def finish() -> RunResult:
            settled = [await self._settled_async(outcome) for outcome in outcomes]
            return self._batch_result(records, failures, settled)

        return ConfirmingOnLoop(finish)

    # Parts of a batch

    def _sound_records(self, run: Run, has_malformed: bool) -> tuple[list[AnyRecord], list[tuple[AnyRecord, Failure]]]:
        if not has_malformed or self.binding.wants_malformed:
            return run.records, []
        sound: list[AnyRecord] = []
        failures: list[tuple[AnyRecord, Failure]] = []
        for record in run.records:
            malformed = _malformed_part(record)
            if malformed is None:
                sound.append(record)
            else:
                failures.append((record, Failure.of_malformed(malformed)))
        return sound, failures

    def _failed_batch(
        self, records: Sequence[AnyRecord], failures: list[tuple[AnyRecord, Failure]], error: Exception
    ) -> RunResult:
        failure = self._exceptions.failure_of(error)
        if isinstance(failure.outcome, Ack | Skip):
            return RunResult(done=records, failures=failures, skipped=len(records), malformed=len(failures))
        return RunResult(
            done=(),
            failures=[*failures, *((record, failure) for record in records)],
            is_batch_failure=True,
            malformed=len(failures),
        )

    def _batch_result(
        self, records: list[AnyRecord], failures: list[tuple[AnyRecord, Failure]], outcomes: Any
    ) -> RunResult:
        if outcomes is None and not failures:
            return RunResult()
        if outcomes is None:
            return RunResult(done=records, failures=failures, malformed=len(failures))
        if not isinstance(outcomes, Sequence) or len(outcomes) != len(records):
            found = f"{len(outcomes)} outcomes" if isinstance(outcomes, Sequence) else repr(outcomes)
            return self._failed_batch(
                records,
                failures,
                TypeError(
                    f"{self.name}: a batch handler returns None or one outcome per record, in order: "
                    f"found {found} for {len(records)} records"
                ),
            )
        done: list[AnyRecord] = []
        malformed = len(failures)
        skipped = 0
        for record, outcome in zip(records, outcomes, strict=True):
            failure = _failure_of_outcome(outcome)
            is_skipped = failure is not None and isinstance(failure.outcome, Skip)
            skipped += is_skipped
            if failure is None or is_skipped:
                done.append(record)
            else:
                failures.append((record, failure))
        return RunResult(done=done, failures=failures, malformed=malformed, skipped=skipped)

    # Small parts

    def _settled(self, outcome: Any) -> Any:
        """An outcome without promises: what was sent is acknowledged (None), or a failure."""
        promises = pending_of(outcome)
        return outcome if promises is None else confirm(promises, self._exceptions)

    async def _settled_async(self, outcome: Any) -> Any:
        promises = pending_of(outcome)
        return outcome if promises is None else await confirm_async(promises, self._exceptions)

    def _context(self, run: Run) -> Context:
        return Context(
            group=self._group,
            handler=self.name,
            topic_partition=self._origin_of(run.topic_partition),
            attempt=run.attempt,
            state=self._state,
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


class _Progress:
    """What became of the records of a run so far, and which of the rest a failure holds back."""

    __slots__ = (
        "_done",
        "_failed_keys",
        "_failures",
        "_is_held",
        "_malformed",
        "_ordering",
        "_position",
        "_run",
        "_untouched",
        "pending",
        "skipped",
    )

    def __init__(self, run: Run, ordering: Ordering, done: Sequence[AnyRecord] = ()) -> None:
        self._run = run
        self._ordering = ordering
        self._done = list(done)
        self._position = run.reached = len(self._done)
        self._failures: list[tuple[AnyRecord, Failure]] = []
        self._untouched: list[AnyRecord] = []
        self._failed_keys: set[bytes] = set()
        self._is_held = False
        self._malformed = 0
        self.skipped = 0
        self.pending: list[tuple[AnyRecord, Sequence[Any]]] = []
        """Records whose handler returned, with what it sent and is not acknowledged yet."""

    def takes(self, record: AnyRecord) -> bool:
        """Whether the record may be delivered now; if not, it is noted as untouched."""
        is_next = not self._is_held and not self._run.is_cancelled and record.raw_key not in self._failed_keys
        if is_next:
            self.reaches_next()
        else:
            self._position += 1
            self._untouched.append(record)
        return is_next

    def reaches_next(self) -> None:
        """The next record of the run is handed out."""
        self._position += 1
        self._run.reached = self._position

    def returned(self, record: AnyRecord, outcome: Any) -> None:
        """The handler returned: the record is done, failed, or waits for an acknowledgement."""
        if outcome is None:  # nearly always: looking for promises costs a sixth of all that asyncio does per record
            self.succeeded(record)
            return
        promises = pending_of(outcome)
        if promises is not None:
            self.pending.append((record, promises))
            return
        failure = _failure_of_outcome(outcome)
        if failure is None:
            self.succeeded(record)
        else:
            self.failed(record, failure)

    def confirmed(self, record: AnyRecord, failure: Failure | None) -> None:
        """What the record's handler sent was acknowledged, or not."""
        if failure is None:
            self._done.append(record)
        else:
            self.failed(record, failure)

    def succeeded(self, record: AnyRecord) -> None:
        self._done.append(record)
        # `done` counts a prefix of the run, read by the session at any time: a record that waits ends the prefix.
        if not self._failures and not self.pending:
            self._run.done = len(self._done)

    def failed(self, record: AnyRecord, failure: Failure) -> None:
        if isinstance(failure.outcome, Ack | Skip):
            self.skipped += isinstance(failure.outcome, Skip)
            self.succeeded(record)
            return
        self._failures.append((record, failure))
        self._malformed += failure.kind == "malformed"
        # Even a record that is given up holds back what follows: whether there is a dead letter topic, and budget for
        # it, is decided elsewhere, and until then it may have to be delivered again in its place.
        if self._ordering is Ordering.PARTITION:
            self._is_held = True
        elif self._ordering is Ordering.KEY and record.raw_key is not None:
            self._failed_keys.add(record.raw_key)

    def result(self) -> RunResult:
        if not self._failures and not self._untouched:
            return RunResult(skipped=self.skipped)
        return RunResult(
            done=self._done,
            failures=self._failures,
            untouched=self._untouched,
            malformed=self._malformed,
            skipped=self.skipped,
        )


def _confirming(promises: list[Any], finish: Callable[[], RunResult]) -> RunResult | Confirming:
    """Without a worker, where the promises call back; else this worker waits."""
    return Confirming(promises, finish) if tell_when_done(promises) else finish()


def _promises_in(outcomes: Any) -> list[Any]:
    """All promises in what a batch handler returned."""
    if not isinstance(outcomes, Sequence):
        return []
    return [promise for outcome in outcomes for promise in pending_of(outcome) or ()]


def _malformed_part(record: AnyRecord) -> Malformed | None:
    if type(record.value) is Malformed:
        return record.value
    return record.key if type(record.key) is Malformed else None


def _failure_of_outcome(outcome: Any) -> Failure | None:
    """What a handler returned, as a failure; None when the record is done."""
    if outcome is None or isinstance(outcome, Ack):
        return None
    if isinstance(outcome, Failure):
        return outcome
    if isinstance(outcome, Retry | Dead):
        return Failure.of_outcome(outcome)
    if isinstance(outcome, Skip):
        return Failure(outcome=outcome, kind="skipped", message=outcome.reason)
    if isinstance(outcome, type) and issubclass(outcome, Ack | Retry | Dead | Skip):
        message = f"the handler returned the class {outcome.__name__}, wanted an instance: {outcome.__name__}()"
        return Failure(outcome=Dead(reason=message), error_type="TypeError", message=message)
    return None  # Any other value is the handler's own business: it returned, so the record is done.
