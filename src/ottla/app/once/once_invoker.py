"""Carries out what `ottla.once` decides of a run: the store's sessions, the handler, the renewal of claims.

`OnceInvoker` stands in the place of a handler's `Invoker`. A worker takes a session for a run and gives it back, so
there are as many connections as runs at the same time. A session that failed is given up, and those that wait with it:
what ended one connection has ended the others too, as a rule.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final

from ottla.app.delivery.invoker import Invoker
from ottla.app.delivery.run_decoder import Yield, malformed_part
from ottla.app.once.leases import AsyncLeases, ClaimLease, ClaimLeases
from ottla.app.once.once_settings import OnceSettings
from ottla.app.once.resource_invoker import ResourceInvoker
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.lanes import Ordering
from ottla.errors import StoreUnavailable
from ottla.failures.exceptions import ExceptionTable, described
from ottla.once import steps as step_of
from ottla.once.claims import ClaimRuns
from ottla.once.message_id import ids_by_header, message_id_of
from ottla.once.parts import PartOfRun
from ottla.once.steps import CallHandler, ReleaseIds, RollBack, Step
from ottla.once.transactions import TransactionRuns
from ottla.records import TopicPartition
from ottla.stepping import Steps, drive, drive_async, run_async
from ottla.stepping import run as make_calls
from ottla.telemetry import log_event

_CLEAN_EVERY_S: Final = 60.0

_BEFORE_THE_HANDLER: Final = (
    step_of.BeginTransaction,
    step_of.MarkProcessed,
    step_of.ReadOffset,
    step_of.ClaimIds,
    step_of.FindProcessed,
    step_of.FinishIds,
)
"""RunProcedure that only the store can fail: the record is never the reason."""

_LEVELS: Final[Mapping[str, str]] = {"duplicates_skipped": "info"}


class _Work:
    """One run in progress: its session, and the name under which it claims. `hand` passes a part of it to the
    handler."""

    __slots__ = ("claimed_s", "hand", "is_again", "is_handed_out", "lease", "owner", "run", "session")

    def __init__(self, run: Run, owner: str, hand: Callable[[PartOfRun], Any]) -> None:
        self.run = run
        self.owner = owner
        self.hand = hand
        self.session: Any = None
        self.is_handed_out = False
        self.is_again = False
        """The transaction was rolled back: later marks are written for each record separately."""
        self.claimed_s = 0.0
        """When its claims were asked for."""
        self.lease: ClaimLease | None = None

    def took(self, step: Step, seconds: float) -> None:
        """Add the time that the store took for a step."""
        self.is_again = self.is_again or isinstance(step, RollBack)
        if not self.is_again:
            self.run.store_s += seconds


class OnceInvoker:
    """Delivers runs as an `Invoker` does. See the module."""

    def __init__(
        self,
        invoker: Invoker | ResourceInvoker,
        settings: OnceSettings,
        *,
        ordering: Ordering,
        is_batch: bool,
        exceptions: ExceptionTable,
    ) -> None:
        self._invoker = invoker
        self._settings = settings
        self.binding = invoker.binding
        self.name = invoker.name
        self.decoder = invoker.decoder
        self._clean_at_s = monotonic() + _CLEAN_EVERY_S
        self._has_warned = False
        inbox = settings.inbox
        on_duplicate = None if inbox is None else inbox.on_duplicate
        self._reads_values = inbox is not None and inbox.id is not None
        """Whether ids come from values, so that a run is decoded before they are asked for."""
        self._runs: TransactionRuns | ClaimRuns
        if settings.is_transactional:
            self._runs = TransactionRuns(
                ordering=ordering,
                is_batch=is_batch,
                exceptions=exceptions,
                tell=self._event,
                ids_of=None if inbox is None else self._ids_of,
                on_duplicate=on_duplicate,
                epoch_of=settings.epoch_of,
                saved=settings.saved,
            )
        else:
            self._runs = ClaimRuns(
                ordering=ordering,
                is_batch=is_batch,
                exceptions=exceptions,
                tell=self._event,
                ids_of=self._ids_of,
                on_duplicate=on_duplicate,
            )
        is_async = invoker.binding.is_async
        self._new_session = settings.new_async_session if is_async else settings.new_session
        leases = AsyncLeases if is_async else ClaimLeases
        self._leases = leases(self._new_session, settings.consumer, settings.lease_ms)
        settings.closers.append(self._leases.close)

    def deliver(self, run: Run) -> RunResult:
        """Deliver with a synchronous handler. Everything is settled when it returns."""
        waits = self.decoder.decode(run)[1] if self._reads_values else None
        if waits is not None:
            return waits
        work = _Work(run, self._settings.new_owner(), self._invoker.deliver)
        try:
            result = drive(self._runs.handle(run), lambda step: make_calls(self._carrying(step, work)))
        except BaseException:
            make_calls(self._giving_up(work))
            raise
        make_calls(self._giving_back(work))
        return result

    async def deliver_async(self, run: Run, yield_now: Yield) -> RunResult:
        """Deliver with an asynchronous handler."""
        waits = (await self.decoder.decode_on_loop(run, yield_now))[1] if self._reads_values else None
        if waits is not None:
            return waits
        work = _Work(run, self._settings.new_owner(), lambda part: self._invoker.deliver_async(part, yield_now))
        try:
            result = await drive_async(self._runs.handle(run), lambda step: run_async(self._carrying(step, work)))
        except BaseException:
            await run_async(self._giving_up(work))
            raise
        await run_async(self._giving_back(work))
        return result

    # Procedures: their calls are made in a thread, or awaited

    def _carrying(self, step: Step, work: _Work) -> Steps[Any]:
        if isinstance(step, CallHandler):
            return (yield from self._handing(step, work))
        began_s = monotonic()
        try:
            if work.session is None:
                if isinstance(step, RollBack | ReleaseIds):
                    return None  # the session is gone: its transaction as well, and claims run out
                work.session = yield from self._settings.taking(self._new_session)
            answer = yield partial(self._call, step, work)
            if isinstance(step, step_of.FinishIds) and work.lease is not None:
                work.lease.is_held()  # the last check: until now another process may have handled them too
            return answer
        except Exception as error:
            yield from self._failing(step, work, error)
        finally:
            work.took(step, monotonic() - began_s)

    def _handing(self, step: CallHandler, work: _Work) -> Steps[RunResult]:
        part, lease = self._part(step, work)
        if lease is not None and not lease.is_held():
            return RunResult(done=(), untouched=part.records)  # it stood still since the claim: all come again
        if lease is not None:
            self._leases.hold(lease)
        try:
            result = yield partial(work.hand, part)
            result = result if isinstance(result, RunResult) else (yield result.wait)
        except CancelledError:
            if lease is not None:  # as by a queue's `max_job_s`: the next attempt need not wait until it expires
                yield from self._carrying(ReleaseIds(list(lease.ids)), work)
            raise
        finally:
            if lease is not None:
                self._leases.release(lease)
        work.run.reached = max(work.run.reached, part.reached)
        return result

    def _failing(self, step: Step, work: _Work, error: Exception) -> Steps[None]:
        """Raise the error of a failed step of the store, as the failure policy gets it."""
        is_outage = isinstance(error, StoreUnavailable) or self._settings.is_outage(error)
        never_fails = isinstance(step, RollBack | ReleaseIds)
        if not (is_outage or never_fails or isinstance(step, _BEFORE_THE_HANDLER)):
            raise error
        yield from self._giving_up(work)
        if not never_fails:
            raise StoreUnavailable(f"{self._settings.store!r}: {described(error)}") from error

    def _giving_back(self, work: _Work) -> Steps[None]:
        session = work.session
        if session is None:
            return
        try:
            if self._cleans():
                yield partial(session.clean, self._settings.consumer, window_ms=self._settings.window_ms)
        except Exception as error:
            self._event_of("inbox_clean_failed", "warning", {"error": described(error)})
            yield from self._giving_up(work)
        else:
            work.session = None
            self._settings.give(session)

    def _giving_up(self, work: _Work) -> Steps[None]:
        session, work.session = work.session, None
        if session is not None:
            yield from self._settings.discarding(session)

    def _call(self, step: Step, work: _Work) -> Any:
        """Return the session's method for a step; of an asynchronous session, what to await."""
        session, settings = work.session, self._settings
        consumer, lease_ms = settings.consumer, settings.lease_ms
        match step:
            case step_of.BeginTransaction():
                return session.begin()
            case step_of.CommitTransaction():
                return session.commit()
            case RollBack():
                return session.rollback()
            case step_of.MarkProcessed(ids):
                return session.mark(consumer, ids)
            case step_of.UnmarkProcessed(ids):
                return session.unmark(consumer, ids)
            case step_of.SaveOffset(next_offset, epoch):
                return session.save_offset(settings.group, work.run.topic_partition, next_offset, epoch)
            case step_of.ReadOffset():
                return session.read_offset(settings.group, work.run.topic_partition)
            case step_of.ClaimIds(ids):
                work.claimed_s = monotonic()
                return session.claim(consumer, ids, owner=work.owner, lease_ms=lease_ms)
            case step_of.FindProcessed(ids):
                return session.look(consumer, ids)
            case step_of.FinishIds(ids):
                return session.finish(consumer, ids, window_ms=settings.window_ms)
            case ReleaseIds(ids):
                return session.release(consumer, ids, owner=work.owner)
            case _:
                raise AssertionError(f"no code for {step!r}")

    def _part(self, step: CallHandler, work: _Work) -> tuple[PartOfRun, ClaimLease | None]:
        lease = None
        if step.claimed:
            lease = work.lease = ClaimLease(
                list(step.claimed),
                work.owner,
                lease_s=self._settings.lease_ms / 1_000,
                claimed_s=work.claimed_s,
                on_lost=lambda ids: self._event_of("inbox_lease_lost", "warning", {"messages": len(ids)}),
            )
        transaction = work.session.transaction if self._settings.is_transactional else None
        owns = None if lease is None else lease.is_held
        part = PartOfRun(work.run, step.records, transaction=transaction, owns=owns)
        part.is_first = work.run.is_first and not work.is_handed_out
        work.is_handed_out = True
        return part, lease

    def _ids_of(self, records: Sequence[AnyRecord]) -> Mapping[int, str]:
        function = None if self._settings.inbox is None else self._settings.inbox.id
        ids = ids_by_header(records) if function is None else {}
        if len(ids) == len(records):
            return ids
        for record in records:
            if record.offset in ids:
                continue
            own = function if function is None or malformed_part(record) is None else None
            ids[record.offset], is_position = message_id_of(record, own)
            if is_position and not self._has_warned:
                self._has_warned = True
                self._event_of("message_without_id", "warning", {"position": record.position})
        return ids

    def _cleans(self) -> bool:
        now_s = monotonic()
        if self._settings.inbox is None or now_s < self._clean_at_s:
            return False
        self._clean_at_s = now_s + _CLEAN_EVERY_S
        return True

    def _event(self, event: str, fields: Mapping[str, object]) -> None:
        if event == "duplicates_skipped" and self._settings.hooks.refresh():
            self._settings.hooks.duplicates(
                group=self._settings.group,
                handler=self.name,
                topic=str(fields["partition"]).rpartition("-")[0],
                records=int(str(fields["records"])),
            )
        self._event_of(event, _LEVELS.get(event, "warning"), fields)

        if event == "run_fenced":
            name, _, partition = str(fields["partition"]).rpartition("-")
            self._settings.on_fenced(TopicPartition(name, int(partition)))

    def _event_of(self, event: str, level: str, fields: Mapping[str, object]) -> None:
        log_event(event, level, {"group": self._settings.group, "handler": self.name, **fields})
        if self._settings.hooks.refresh():
            self._settings.hooks.event(group=self._settings.group, event=event)
