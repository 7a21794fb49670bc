"""Delivers runs to a handler whose resources are opened once per run: `Provide(open_session, scope="run")`.

`ResourceInvoker` stands in the place of a handler's `Invoker`. What is open is handled as a transaction of a store is
(`ottla.once.transactions`): it ends normally when all records of the run are done, and their offsets count only then.
On the first failure it ends with the error, and the run is done again record by record, each with resources of its own,
so that only the bad record is left.
"""

from __future__ import annotations

from typing import Any

from ottla.app.delivery.invoker import Invoker, Yield
from ottla.app.handler.resources import AsyncOpenedForRun, OpenedForRun, Unsettled
from ottla.consumer.model.run import Run, RunResult
from ottla.consumer.partitions.lanes import Ordering
from ottla.failures.exceptions import ExceptionTable, described
from ottla.failures.outcomes import Dead, Retry
from ottla.once.parts import PartOfRun
from ottla.once.steps import BeginTransaction, CallHandler, CommitTransaction, Step
from ottla.once.transactions import TransactionRuns
from ottla.stepping import drive, drive_async
from ottla.telemetry import log_event


class ResourceInvoker:
    """Delivers runs as an `Invoker` does. See the module."""

    def __init__(
        self, invoker: Invoker, *, group: str, ordering: Ordering, is_batch: bool, exceptions: ExceptionTable
    ) -> None:
        self._invoker = invoker
        self._group = group
        self.binding, self.name, self.decoder = invoker.binding, invoker.name, invoker.decoder
        self._runs = TransactionRuns(ordering=ordering, is_batch=is_batch, exceptions=exceptions, tell=_no_event)

    # Threads

    def deliver(self, run: Run) -> RunResult:
        """Deliver with a synchronous handler. Everything is settled when it returns."""
        opened = OpenedForRun()

        def carry(step: Step) -> RunResult | None:
            match step:
                case BeginTransaction():
                    opened.begin()
                case CallHandler(records):
                    part = _part(run, records, opened)
                    result = self._invoker.deliver(part)
                    result = result if isinstance(result, RunResult) else result.wait()
                    self._note(part, result, opened)
                    return result
                case CommitTransaction():
                    opened.close()
                case _:
                    try:
                        opened.roll_back()
                    except Exception as error:
                        self._log(error)
            return None

        try:
            return drive(self._runs.handle(run), carry)
        except BaseException as error:
            opened.error = error
            opened.roll_back()
            raise

    # Event loops

    async def deliver_async(self, run: Run, yield_now: Yield) -> RunResult:
        """Deliver with an asynchronous handler."""
        opened = AsyncOpenedForRun()

        async def carry(step: Step) -> RunResult | None:
            match step:
                case BeginTransaction():
                    opened.begin()
                case CallHandler(records):
                    part = _part(run, records, opened)
                    result = await self._invoker.deliver_async(part, yield_now)
                    result = result if isinstance(result, RunResult) else await result.wait()
                    self._note(part, result, opened)
                    return result
                case CommitTransaction():
                    await opened.close()
                case _:
                    try:
                        await opened.roll_back()
                    except Exception as error:
                        self._log(error)
            return None

        try:
            return await drive_async(self._runs.handle(run), carry)
        except BaseException as error:
            opened.error = error
            await opened.roll_back()
            raise

    # What both share

    def _note(self, part: PartOfRun, result: RunResult, opened: OpenedForRun | AsyncOpenedForRun) -> None:
        part.whole.reached = max(part.whole.reached, part.reached)
        if opened.error is None and result.failures:  # a record that was not handed out, or sends that failed
            outcome = result.failures[0][1].outcome
            opened.error = Unsettled(outcome if isinstance(outcome, Retry | Dead) else Retry())

    def _log(self, error: Exception) -> None:
        fields = {"group": self._group, "handler": self.name, "error": described(error), "exc_info": error}
        log_event("resource_close_failed", "warning", fields)


def _part(run: Run, records: Any, opened: OpenedForRun | AsyncOpenedForRun) -> PartOfRun:
    part = PartOfRun(run, records, transaction=run.transaction)
    part.is_first = run.is_first and opened.times == 1
    part.resources = opened
    return part


def _no_event(event: str, fields: object) -> None:
    raise AssertionError(f"found the event {event}, wanted none: there are no ids and no offsets")
