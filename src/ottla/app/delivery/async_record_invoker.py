"""Delivers a run to an asynchronous handler, record by record, as `record_invoker` does to a synchronous one."""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Iterator, Mapping
from contextvars import copy_context
from inspect import isawaitable
from time import monotonic
from types import CoroutineType

from ottla.app.delivery.invoker import Invoker, raise_unless_of_record
from ottla.app.delivery.isolate_contextvars import call_isolated, values_in
from ottla.app.delivery.pending_sends import AwaitingAcksOnLoop, confirm_async, promises_of, settled
from ottla.app.delivery.run_decoder import YIELD_EVERY_S, Yield, malformed_part
from ottla.app.delivery.run_progress import RunProgress
from ottla.app.handler.handler_context import Context
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.current_task import running_task
from ottla.failures.exceptions import Failure
from ottla.producer.record_sends import HandlerSends, RecordSends, end_sends, handled, has_senders


class AsyncRecordInvoker(Invoker):
    """The half of `RecordInvoker` for event loops. See the module."""

    __slots__ = ()

    async def deliver_async(self, run: Run, yield_now: Yield) -> RunResult | AwaitingAcksOnLoop:
        has_malformed, result = await self.decoder.decode_on_loop(run, yield_now)
        if result is not None:
            return result
        progress = RunProgress(run, self._ordering)
        progress.breathe_at_s = monotonic() + YIELD_EVERY_S
        progress.deadlines = self._expiry.deadlines(run.records)
        grows = run.can_grow and self._may_grow and not self.decoder.may_block
        feed = self._growing(run) if grows else iter(run.records)
        is_checked = (has_malformed or grows) and not self.binding.wants_malformed
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

    def _growing(self, run: Run) -> Iterator[AnyRecord]:
        """Yield the records of a run, and those that it grows by: one when all before it are done. Raises
        `RegistryUnavailable`."""
        yield from run.records
        while run.done == len(run.records) and run.grow():
            self.decoder.decode_newest(run)
            yield run.records[-1]

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
                    raise_unless_of_record(error, self._exceptions)
                    progress.failed(record, self._exceptions.failure_of(error), sends.take() if sends else ())
                else:
                    if is_exact:
                        end_sends(sends)
                    progress.returned(record, outcome, sends.take() if sends else ())
                if monotonic() > breathe_at_s:
                    await yield_now()
                    breathe_at_s = progress.breathe_at_s = monotonic() + YIELD_EVERY_S
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

    def _has_expired(self, record: AnyRecord, deadlines: Mapping[int, int], context: Context) -> bool:
        """Return whether the record has expired. If not, set its remaining time in the context."""
        expires_ms = context.expires_ms = deadlines.get(record.offset)
        return expires_ms is not None and expires_ms <= self._clock.now_ms()
