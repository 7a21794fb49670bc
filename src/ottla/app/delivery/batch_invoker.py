"""Delivers a run to a handler of batches: one call. `handler_batch` reads its answer."""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Sequence
from contextvars import copy_context
from typing import Any, ClassVar

from ottla.app.delivery.handler_batch import Batch
from ottla.app.delivery.handler_result import Returned, failure_in, promises_in
from ottla.app.delivery.invoker import Invoker, raise_unless_of_record
from ottla.app.delivery.isolate_contextvars import call_isolated
from ottla.app.delivery.pending_sends import (
    AwaitingAcks,
    AwaitingAcksOnLoop,
    confirm,
    confirm_async,
    confirming,
    settled,
)
from ottla.app.delivery.run_decoder import Yield
from ottla.app.handler.handler_context import Context
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.lanes import Ordering
from ottla.current_task import running_task
from ottla.producer.record_sends import RecordSends, end_sends


class BatchInvoker(Invoker):
    """Calls the handler with all records of a run. See the module."""

    __slots__ = ()

    is_batch: ClassVar = True

    def deliver(self, run: Run) -> RunResult | AwaitingAcks:
        prepared = self._prepared(run, self.decoder.decode(run))
        if isinstance(prepared, RunResult):
            return prepared
        batch, context = prepared
        own = copy_context()
        sends = own.run(self._begin_batch)
        returned = None
        try:
            returned = own.run(self._spans.around(self.binding.call), batch.records, context)
        except BaseException as error:
            raise_unless_of_record(error, self._exceptions)
            found: Sequence[Returned] = [self._exceptions.failure_of(error)]
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

    async def deliver_async(self, run: Run, yield_now: Yield) -> RunResult | AwaitingAcksOnLoop:
        prepared = self._prepared(run, await self.decoder.decode_on_loop(run, yield_now))
        if isinstance(prepared, RunResult):
            return prepared
        batch, context = prepared
        sends: RecordSends | None = None

        def call(records: Sequence[AnyRecord], context: Context) -> Any:
            nonlocal sends
            sends = self._begin_batch(get_running_loop())
            return self._spans.around_async(self.binding.call)(records, context)

        returned = None
        try:
            returned = await call_isolated(call, batch.records, context)
        except BaseException as error:
            raise_unless_of_record(error, self._exceptions)
            found: Sequence[Returned] = [self._exceptions.failure_of(error)]
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

    def _begin_batch(self, loop: Any = None) -> RecordSends | None:
        if self._sends is None:
            return None
        return self._sends.begin() if loop is None else self._sends.begin(loop, running_task)

    def _prepared(self, run: Run, decoded: tuple[bool, RunResult | None]) -> tuple[Batch, Context] | RunResult:
        """Return what goes to the handler, or the result where nothing does. `decoded` is what the decoder returned."""
        has_malformed, result = decoded
        if result is not None:
            return result
        context = self._context(run)
        expired: set[int] = set()
        deadlines = self._expiry.deadlines(run.records)
        if deadlines is not None:
            now_ms = self._clock.now_ms()
            expired = {offset for offset, expires_ms in deadlines.items() if expires_ms <= now_ms}
            context.expires_ms = min((ms for ms in deadlines.values() if ms > now_ms), default=None)
        batch = Batch(
            run,
            is_checked=has_malformed and not self.binding.wants_malformed,
            keeps_key_order=self._ordering is not Ordering.UNORDERED and self._sends is not None,
            expired=expired,
            on_expired=self._expiry.outcome,
        )
        result = batch.needs_no_handler
        return (batch, context) if result is None else result
