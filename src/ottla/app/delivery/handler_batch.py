"""A run of a batch handler: the records that it gets, and the outcome of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from ottla.app.delivery.handler_result import PerRecord, Returned, promises_in, read_batch, read_returned
from ottla.app.delivery.pending_sends import unsettled
from ottla.app.delivery.run_decoder import malformed_part
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.failures.exceptions import Failure
from ottla.failures.outcomes import Ack, Dead, Retry, Skip
from ottla.producer.record_sends import Sent, disown

_SKIP: Final = Skip()


class Batch:
    """The records of one run that go to the handler; malformed ones have failed before.

    `keeps_key_order` says that a record that the handler asks to have again holds back the later records of its key.
    They were in its hands already, so they come once more behind it, whatever it said about them. `expired` are the
    offsets of records that have expired: they do not go to the handler, `on_expired` is what becomes of them.
    """

    __slots__ = ("_expired", "_failures", "_keeps_key_order", "_run", "records")

    def __init__(
        self,
        run: Run,
        *,
        is_checked: bool,
        keeps_key_order: bool,
        expired: Collection[int] = (),
        on_expired: Skip | Dead = _SKIP,
    ) -> None:
        self._run = run
        self._keeps_key_order = keeps_key_order
        self._failures: list[tuple[AnyRecord, Failure]] = []
        self._expired: list[AnyRecord] = []
        self.records: list[AnyRecord] = list(run.records)
        if expired:
            late = [record for record in run.records if record.offset in expired]
            self.records = [record for record in run.records if record.offset not in expired]
            if isinstance(on_expired, Dead):
                self._failures += [(record, Failure.of_expiry(on_expired)) for record in late]
            else:
                self._expired = late
        if is_checked:
            unchecked, self.records = self.records, []
            for record in unchecked:
                malformed = malformed_part(record)
                if malformed is None:
                    self.records.append(record)
                else:
                    self._failures.append((record, Failure.of_malformed(malformed)))

    @property
    def needs_no_handler(self) -> RunResult | None:
        """The result, where there is nothing to hand out."""
        if self._run.is_cancelled:
            return RunResult(done=(), untouched=self._run.records)
        if not self.records:
            return self._with_own(done=())
        return None

    def read(self, returned: Any) -> list[Returned]:
        """Return what the handler said: of each record in order, or once for all."""
        found = read_batch(returned, len(self.records))
        if not isinstance(found, PerRecord):
            return [found]
        return [read_returned(entry) for entry in found.entries]

    def raised(self, failure: Failure) -> RunResult:
        """Fail the batch: the handler raised, or what it sent for all records together failed."""
        if isinstance(failure.outcome, Ack | Skip):
            skipped = len(self.records) if isinstance(failure.outcome, Skip) else 0
            return self._with_own(done=self.records, skipped=skipped)
        failures = [(record, failure) for record in self.records]
        return self._with_own(done=(), failures=failures, is_batch_failure=True)

    def waits_for(self, found: Sequence[Returned], sends: Sequence[Sent]) -> list[Sent]:
        """Return the handler's sends to wait for, beside the ones that it returned. Empty if the batch failed: all of
        it is delivered again."""
        if not sends:
            return []
        if len(found) == 1 and isinstance(found[0], Failure) and not isinstance(found[0].outcome, Ack | Skip):
            disown(sends)
            return []
        return list(unsettled(sends, [promise for one in found for promise in promises_in(one)]))

    def result(self, returned: Any, answers: Sequence[Failure | None], failed_send: Failure | None = None) -> RunResult:
        """Return the result of what `read` found, with the promises in it settled: None for what is done. `failed_send`
        is something else that the handler sent: which of the records it was for is not known."""
        if failed_send is not None:
            return self.raised(failed_send)
        if isinstance(returned, list | tuple) and len(returned) == len(self.records):
            return self._result_of_each(returned, answers)
        (answer,) = answers
        if answer is None:
            return self._with_own(done=self.records) if self._failures else RunResult(expired=self._expired)
        result = self.raised(answer)
        if isinstance(returned, Dead):
            result.is_batch_failure = False  # All of them, says the handler: none is to be looked at alone.
        return result

    def _result_of_each(self, returned: Sequence[Any], answers: Sequence[Failure | None]) -> RunResult:
        failures: list[tuple[AnyRecord, Failure]] = []
        done: list[AnyRecord] = []
        untouched: list[AnyRecord] = []
        keys_to_retry: set[bytes] = set()
        skipped = 0
        for record, entry, answer in zip(self.records, returned, answers, strict=True):
            key = record.raw_key
            is_behind = bool(keys_to_retry) and key in keys_to_retry
            if answer is not None and isinstance(answer.outcome, Dead):
                failures.append((record, answer))
            elif is_behind:
                untouched.append(record)
            elif answer is not None and isinstance(answer.outcome, Retry):
                failures.append((record, answer))
                if isinstance(entry, Retry) and key is not None and self._keeps_key_order:
                    keys_to_retry.add(key)
            else:
                skipped += answer is not None and isinstance(answer.outcome, Skip)
                done.append(record)
        return self._with_own(done=done, failures=failures, untouched=untouched, skipped=skipped)

    def _with_own(
        self,
        *,
        done: Sequence[AnyRecord],
        failures: Sequence[tuple[AnyRecord, Failure]] = (),
        untouched: Sequence[AnyRecord] = (),
        skipped: int = 0,
        is_batch_failure: bool = False,
    ) -> RunResult:
        """Return the result of the handler's records, with those that it did not get."""
        return RunResult(
            done=[*self._expired, *done],
            failures=[*self._failures, *failures],
            untouched=untouched,
            is_batch_failure=is_batch_failure,
            expired=self._expired,
            skipped=skipped,
            malformed=sum(not failure.is_expiry for _, failure in self._failures),
        )
