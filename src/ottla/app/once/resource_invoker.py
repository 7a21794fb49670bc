"""Delivers runs to a handler whose resources are opened once per run: `Provide(open_session, scope="run")`.

`ResourceInvoker` stands in the place of a handler's `Invoker`. What is open is handled as a transaction of a store is
(`ottla.once.transactions`): it ends normally when all records of the run are done, and their offsets count only then.
On the first failure it ends with the error, and the run is done again record by record, each with resources of its own,
so that only the bad record is left.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.app.delivery.invoker import Invoker
from ottla.app.delivery.run_decoder import Yield
from ottla.app.handler.resources import OpenedForRun, Unsettled
from ottla.consumer.model.run import Run, RunResult
from ottla.consumer.partitions.lanes import Ordering
from ottla.failures.exceptions import ExceptionTable, described
from ottla.failures.outcomes import Dead, Retry
from ottla.once.parts import PartOfRun
from ottla.once.steps import BeginTransaction, CallHandler, CommitTransaction, Step
from ottla.once.transactions import TransactionRuns
from ottla.stepping import Steps, drive, drive_async, run_async
from ottla.stepping import run as make_calls
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

    def deliver(self, run: Run) -> RunResult:
        """Deliver with a synchronous handler. Everything is settled when it returns."""
        opened = OpenedForRun(is_async=False)
        try:
            return drive(
                self._runs.handle(run),
                lambda step: make_calls(self._carrying(step, run, opened, self._invoker.deliver)),
            )
        except BaseException as error:
            opened.error = error
            make_calls(opened.rolling_back())
            raise

    async def deliver_async(self, run: Run, yield_now: Yield) -> RunResult:
        """Deliver with an asynchronous handler."""
        opened = OpenedForRun(is_async=True)

        def hand(part: Run) -> Any:
            return self._invoker.deliver_async(part, yield_now)

        try:
            return await drive_async(
                self._runs.handle(run), lambda step: run_async(self._carrying(step, run, opened, hand))
            )
        except BaseException as error:
            opened.error = error
            await run_async(opened.rolling_back())
            raise

    def _carrying(
        self, step: Step, run: Run, opened: OpenedForRun, hand: Callable[[Run], Any]
    ) -> Steps[RunResult | None]:
        match step:
            case BeginTransaction():
                opened.begin()
            case CallHandler(records):
                part = PartOfRun(run, records, transaction=run.transaction)
                part.is_first = run.is_first and opened.times == 1
                part.resources = opened
                result = yield partial(hand, part)
                result = result if isinstance(result, RunResult) else (yield result.wait)
                run.reached = max(run.reached, part.reached)
                if opened.error is None and result.failures:  # a record that was not handed out, or sends that failed
                    outcome = result.failures[0][1].outcome
                    opened.error = Unsettled(outcome if isinstance(outcome, Retry | Dead) else Retry())
                return result
            case CommitTransaction():
                yield from opened.closing()
            case _:
                try:
                    yield from opened.rolling_back()
                except Exception as error:
                    self._log(error)
        return None

    def _log(self, error: Exception) -> None:
        fields = {"group": self._group, "handler": self.name, "error": described(error), "exc_info": error}
        log_event("resource_close_failed", "warning", fields)


def _no_event(event: str, fields: object) -> None:
    raise AssertionError(f"found the event {event}, wanted none: there are no ids and no offsets")
