"""Delivers a run to a handler, record by record.

Costs per record: the decoder, one call in a context of its own, two comparisons and one assignment. Everything else is
per run. A failing record pays for its own evidence.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextvars import copy_context
from typing import Any, TypeAlias, Unpack

from ottla.app.delivery.async_record_invoker import AsyncRecordInvoker
from ottla.app.delivery.handler_result import read_returned
from ottla.app.delivery.invoker import InvokerParts, raise_unless_of_record
from ottla.app.delivery.pending_sends import (
    AwaitingAcks,
    Pending,
    confirm,
    confirming,
    pending_of,
    promises_of,
    unsettled,
)
from ottla.app.delivery.run_decoder import RunDecoder, malformed_part
from ottla.app.delivery.run_progress import RunProgress
from ottla.app.handler.binding import Call
from ottla.app.handler.handler_context import Context
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.errors import RegistryUnavailable
from ottla.failures.exceptions import Failure
from ottla.failures.outcomes import Ack, Skip
from ottla.producer.record_sends import HandlerSends, RecordSends, Sent, end_sends, handled, has_senders

Stretches: TypeAlias = "Generator[tuple[Call, Iterable[Any], bool], None, None]"
"""Tuples of a callable, its subjects (records or values), and whether a subject may be malformed."""


class RecordInvoker(AsyncRecordInvoker):
    """Calls the handler with each record of a run. See the module."""

    __slots__ = ("_of_value",)

    def __init__(self, *, decoder: RunDecoder, **parts: Unpack[InvokerParts]) -> None:
        super().__init__(decoder=decoder, **parts)
        self._of_value = self.binding.of_value if self.decoder.has_parts else None

    def deliver(self, run: Run) -> RunResult | AwaitingAcks:
        if run.can_grow and self._may_grow:
            result = self.decoder.decode(run)[1]
            if result is not None:
                return result
            stretches = self._growing_stretches(run)
        elif self._of_value is not None and self._spans.are_off:
            stretches = self._values(run, self._of_value)
        else:
            has_malformed, result = self.decoder.decode(run)
            if result is not None:
                return result
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

    def _growing_stretches(self, run: Run) -> Stretches:
        yield self.binding.call, self._growing(run), not self.binding.wants_malformed

    def _values(self, run: Run, of_value: Call) -> Stretches:
        """Return the values of a run, each part decoded when the one before it is handled. Raises
        `RegistryUnavailable`."""
        for part, values in self.decoder.parts(run):
            if values is None:
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
                        raise_unless_of_record(error, self._exceptions)
                        return index, skipped, self._exceptions.failure_of(error)
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
                        raise_unless_of_record(error, self._exceptions)
                        failure = self._exceptions.failure_of(error)
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
            outage = self.decoder.decode_rest(run, left)
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
                raise_unless_of_record(error, self._exceptions)
                progress.failed(record, self._exceptions.failure_of(error), sends or ())
                continue
            end_sends(sends)
            progress.returned(record, outcome, sends or ())
        if not progress.pending:
            return progress.result()
        return confirming(promises_of(progress.pending), lambda _: self._confirmed(progress))

    def _confirmed(self, progress: RunProgress) -> RunResult:
        """Return the result of a run once the sends of its pending records are settled."""
        for record, returned, sent in progress.pending:
            progress.confirmed(record, confirm(returned, sent, self._exceptions))
        return progress.result()


def _without(records: Sequence[AnyRecord], pending: Sequence[Pending]) -> Sequence[AnyRecord]:
    """Return those that wait for nothing."""
    if not pending:
        return records
    waiting = {record.offset for record, _, _ in pending}
    return [record for record in records if record.offset not in waiting]
