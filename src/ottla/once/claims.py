"""A run whose messages are claimed, handled, and then marked as done.

For stores beside the handler's own work. A message is handled again only if its process dies between the handler's
effect and the mark, and then not before the claim runs out. No other owner handles it while a claim holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.lanes import Ordering
from ottla.errors import StoreUnavailable
from ottla.failures.exceptions import ExceptionTable, Failure
from ottla.failures.outcomes import Dead, Retry
from ottla.once.parts import IdsOf, event_place, first_of_each, in_order, unavailable
from ottla.once.steps import CallHandler, ClaimIds, FindProcessed, FinishIds, ReleaseIds, RunProcedure

Tell = Callable[[str, Mapping[str, object]], None]

_BUSY_AT_LEAST_S = 0.05


class ClaimRuns:
    """Runs one handler with claims."""

    def __init__(
        self,
        *,
        ordering: Ordering,
        is_batch: bool,
        exceptions: ExceptionTable,
        tell: Tell,
        ids_of: IdsOf,
        on_duplicate: Dead | None = None,
    ) -> None:
        self._ordering = ordering
        self._is_batch = is_batch
        self._exceptions = exceptions
        self._event = tell
        self._ids_of = ids_of
        self._on_duplicate = on_duplicate
        self._unmarked: dict[str, None] = {}
        """Messages that were handled while the store was unavailable for their marks. Bounded by the records in flight.
        Workers share it: it is never iterated.
        """

    def handle(self, run: Run) -> RunProcedure:
        """Yield the steps of one run."""
        records = list(run.records)
        result, ids = self._ids(records)
        if result is not None:
            at = len(records) - len(result.untouched) - 1
            records = records[:at]
        bad = RunResult(done=()) if result is None else result
        if not records:
            return bad
        try:
            handled = yield from self._claimed(run, records, ids)
        except StoreUnavailable as error:
            failure = self._exceptions.failure_of(error)
            handled = unavailable(records, failure, self._ordering, is_batch=self._is_batch)
        if result is None:
            return handled
        is_held = self._ordering is Ordering.PARTITION and bool(handled.failures or handled.untouched)
        behind = [record for record, _ in bad.failures] if is_held else []
        return RunResult(
            done=records if handled.done is None else handled.done,
            failures=[*handled.failures, *([] if is_held else bad.failures)],
            untouched=[*handled.untouched, *behind, *bad.untouched],
            skipped=handled.skipped,
            malformed=handled.malformed,
            expired=handled.expired,
        )

    def _ids(self, records: list[AnyRecord]) -> tuple[RunResult | None, Mapping[int, str]]:
        """Return the ids. Where an id cannot be had, add the failure of its record and keep back the records behind
        it.
        """
        try:
            return None, self._ids_of(records)
        except Exception:
            ids: dict[int, str] = {}
            for index, record in enumerate(records):
                try:
                    ids.update(self._ids_of([record]))
                except Exception as error:
                    failure = self._exceptions.failure_of(error)
                    return RunResult(done=(), failures=[(record, failure)], untouched=records[index + 1 :]), ids
            raise

    def _claimed(self, run: Run, records: list[AnyRecord], ids: Mapping[int, str]) -> RunProcedure:
        by_id, copied = first_of_each(records, ids)
        own = set((yield ClaimIds(list(by_id))))
        fresh: list[AnyRecord] = records
        copies: list[AnyRecord] = []
        waiting: Collection[str] = ()
        busy: Mapping[int, int | None] = {}
        if len(own) < len(records) or self._unmarked:  # else mostly: each message is here once and was unclaimed
            others = [message_id for message_id in by_id if message_id not in own]
            states: Mapping[str, int | None] = (yield FindProcessed(others)) if others else {}
            waiting = {message_id for message_id in by_id if message_id in self._unmarked}
            busy = {
                record.offset: states.get(message_id, 0)
                for message_id, record in by_id.items()
                if message_id not in own and message_id not in waiting and states.get(message_id, 0) is not None
            }
            free = own - waiting
            fresh = [record for message_id, record in by_id.items() if message_id in free]
            copies = [
                *copied,
                *(by_id[message_id] for message_id in others if states.get(message_id, 0) is None),
            ]
            copies = [record for record in copies if ids[record.offset] not in waiting or record in copied]
        if busy and self._ordering is Ordering.PARTITION:
            first = min(busy)
            yield from self._release(ids, [record for record in fresh if record.offset > first])
            fresh = [record for record in fresh if record.offset < first]
        fresh = in_order(fresh)
        result: RunResult = RunResult()
        if fresh:
            result = yield CallHandler(fresh, [ids[record.offset] for record in fresh])
        done = fresh if result.done is None else list(result.done)
        finished = [ids[record.offset] for record in done]
        left = [record for record, _ in result.failures] + list(result.untouched)
        yield from self._release(ids, left)
        already = [by_id[message_id] for message_id in waiting]
        finished += waiting
        if finished:
            try:
                yield FinishIds(finished)
            except StoreUnavailable as error:
                self._unmarked.update(dict.fromkeys(finished))
                self._event("inbox_mark_failed", {**event_place(run, len(finished)), "error": str(error)})
                failure = self._exceptions.failure_of(error)
                return unavailable(records, failure, self._ordering, is_batch=self._is_batch)
            for message_id in waiting:
                self._unmarked.pop(message_id, None)
        return self._result(run, records, ids, [*done, *already], copies, busy, result)

    def _result(
        self,
        run: Run,
        records: list[AnyRecord],
        ids: Mapping[int, str],
        done: list[AnyRecord],
        copies: list[AnyRecord],
        busy: Mapping[int, int | None],
        result: RunResult,
    ) -> RunResult:
        if result.done is None and not (copies or busy):  # then nothing failed, and nothing was left
            return RunResult(skipped=result.skipped, malformed=result.malformed, expired=result.expired)
        failures = list(result.failures)
        settled = {record.offset for record in done}
        # A copy in the same run is one only if the first was done; else both come again.
        held_ids = {ids[record.offset] for record in records if record.offset in busy}
        held_ids |= {ids[record.offset] for record, _ in result.failures} | {ids[r.offset] for r in result.untouched}
        seen = [record for record in copies if ids[record.offset] not in held_ids]
        if self._ordering is Ordering.PARTITION:
            stops = [record.offset for record, _ in failures] + [record.offset for record in result.untouched]
            first = min([*stops, *busy], default=None)
            seen = [record for record in seen if first is None or record.offset < first]
        if self._on_duplicate is None:
            done = [*done, *seen]
            settled |= {record.offset for record in seen}
        else:
            failures += [(record, Failure.of_outcome(self._on_duplicate)) for record in seen]
        if seen:
            self._event("duplicates_skipped", event_place(run, len(seen)))
        for record in records:
            wait_ms = busy.get(record.offset)
            if wait_ms is not None and (self._ordering is not Ordering.PARTITION or record.offset == min(busy)):
                failures.append((record, _busy(ids[record.offset], wait_ms)))
        failed = {record.offset for record, _ in failures}
        untouched = [record for record in records if record.offset not in settled and record.offset not in failed]
        if not failures and not untouched:
            return RunResult(skipped=result.skipped, malformed=result.malformed, expired=result.expired)
        return RunResult(
            done=in_order(done),
            failures=failures,
            untouched=untouched,
            skipped=result.skipped,
            malformed=result.malformed,
            expired=result.expired,
            is_batch_failure=result.is_batch_failure and len(failures) == len(result.failures),
        )

    def _release(self, ids: Mapping[int, str], records: list[AnyRecord]) -> RunProcedure:
        if records:
            yield ReleaseIds([ids[record.offset] for record in records])
        return RunResult()


def _busy(message_id: str, wait_ms: int) -> Failure:
    return Failure(
        outcome=Retry(after_s=max(_BUSY_AT_LEAST_S, wait_ms / 1_000)),
        kind="failed",
        error_type="MessageBusy",
        message=f"message {message_id} is claimed by another member for {wait_ms} ms",
        is_outage=True,
    )
