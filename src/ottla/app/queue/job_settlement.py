"""What a queue's member does about a verdict: it acknowledges, keeps or releases the lease, or writes a dead letter.

Whoever handled the lease frees its worker once; after `max_job_s` the worker was freed before, though it is still busy.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Unpack

from ottla.app.member.member_base import MemberBase, MemberOptions, MemberParts
from ottla.app.queue.job_run import JobRun
from ottla.app.queue.queue_options import QueueOptions
from ottla.app.queue.queue_policy import Accept, QueuePolicy, Refuse, RejectWithDeadLetter, Release, Verdict, WaitUntil
from ottla.consumer.model.effects import Notice
from ottla.consumer.model.failed_writes import Write, WriteDeadLetter
from ottla.consumer.model.run import Run
from ottla.failures.dead_letter import Form
from ottla.queues.core.acknowledgements import Acknowledgement
from ottla.queues.io.lease_client import LeaseClient


class QueueParts(MemberParts):
    """What the member of a queue is given by its owner."""

    queue: QueueOptions
    execute: Mapping[str, Callable[[Run], Any]]
    """The code of the queue's handler."""


class JobSettlement(MemberBase):
    """The half of `QueueMember` that carries out verdicts."""

    def __init__(self, options: MemberOptions, **parts: Unpack[QueueParts]) -> None:
        super().__init__(options, dead_letters=parts["dead_letters"], on_stop=parts.get("on_stop", lambda: None))
        self.queue = queue = parts["queue"]
        self._plan = options.plans[0]
        self._policy = QueuePolicy(
            self._plan.failures,
            group=options.group,
            max_job_ms=queue.max_job_ms,
            budget=self._plan.budget,
            random=options.random or Random(),
            now_ms=self._clock.monotonic_ms(),
        )
        self._problems: dict[str, str] = {}
        self._client = self._new_client()

    @abstractmethod
    def _new_client(self) -> LeaseClient:
        """Return what leases the records."""

    def _carry_out(self, run: JobRun, verdict: Verdict) -> None:
        match verdict:
            case Accept():
                self._say(run, Acknowledgement.ACCEPT)
            case Release():
                self._say(run, Acknowledgement.RELEASE)
            case WaitUntil(due_ms):
                if run.lease.has_worker and not run.is_over:
                    self._client.waits(run.lease, due_ms)
                else:
                    self._client.waits_again(run.lease, due_ms)
            case RejectWithDeadLetter(dead_letter):
                self._keep(run)
                self._write(run, dead_letter)
            case Refuse(reason):
                self._keep(run)
                self._problems["refused"] = f"{self._plan.name}: {reason}"
                self._client.pause(True)

    def _say(self, run: JobRun, kind: Acknowledgement) -> None:
        if run.lease.has_worker and not run.is_over:
            self._client.finished(run.lease, kind)
        else:
            self._client.settle(run.lease, kind)

    def _keep(self, run: JobRun) -> None:
        if run.lease.has_worker and not run.is_over:
            self._client.finished(run.lease, None)

    def _write(self, run: JobRun, dead_letter: WriteDeadLetter) -> None:
        with self._attempts.around_failed_write(str(dead_letter.topic_partition), dead_letter.record.offset):
            self._failed_writes.write(dead_letter, partial(self._on_written, run))

    def _on_written(
        self, run: JobRun, write: Write, error: str | None, /, *, form: Form = Form.WHOLE, fits: bool = True
    ) -> None:
        """A dead letter was acknowledged, or not. In any thread, or on the loop."""
        assert isinstance(write, WriteDeadLetter)
        target = write.dead_letter_topic
        if error is not None:
            with self._client.lock:
                verdict, notice = self._policy.write_failed(run, self._clock.monotonic_ms(), error)
            self._problems["dead letters"] = f"the dead letter topic {target!r} does not take records: {error}"
            self._notice(notice)
            self._client.waits_again(run.lease, verdict.due_ms)
            return
        self._problems.pop("dead letters", None)
        notice = self._policy.written(run, write.reason, target)
        if form is not Form.WHOLE:
            notice = Notice(notice.event, notice.level, {**notice.fields, "form": form.value})
        self._notice(notice)
        self._client.settle(run.lease, Acknowledgement.REJECT)

    def _log(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            self._notice(notice)
