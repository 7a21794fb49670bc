"""Background jobs that outlast a request: a redrive, the run of a plan. One of a kind per subject at a time."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.browse.human_amounts import moment
from ottla.errors import InputError, OttlaError

log = logging.getLogger(__name__)

_MOST_KEPT: Final = 50


class Stopped(BaseException):
    """Raised inside a job that a user stopped."""


@dataclass
class Job:
    """A background job. `progress` is what the page shows; the job replaces it as a whole."""

    id: int
    kind: str
    subject: str
    started_ms: int
    progress: dict[str, Any] = field(default_factory=dict)
    state: str = "running"
    """running, done, failed or stopped."""
    problem: str | None = None
    standing: dict[str, Any] = field(default_factory=dict)
    """Shown on the page as well, and not replaced by the job."""
    stop: threading.Event = field(default_factory=threading.Event)
    is_left: bool = False
    """True if it was stopped because the console ends: its work is not undone."""

    def item(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "kind": self.kind,
            "subject": self.subject,
            "started": moment(self.started_ms),
            "state": self.state,
            "stopping": self.stop.is_set() and self.state == "running",
            "progress": {**self.progress, **self.standing},
            "problem": self.problem,
        }


class Jobs:
    """Threads that outlive the request that began them, and end with the console."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._jobs: dict[int, Job] = {}
        self._threads: list[threading.Thread] = []

    def begin(
        self, kind: str, subject: str, work: Callable[[Job], None], standing: dict[str, Any] | None = None
    ) -> Job:
        """Begin a job. Raises InputError while another job of its kind works on the same subject."""
        with self._lock:
            for job in self._jobs.values():
                if job.state == "running" and (job.kind, job.subject) == (kind, subject):
                    raise InputError(f"{kind} of {subject} is under way already")
            job = Job(next(self._numbers), kind, subject, self._now_ms(), standing=standing or {})
            self._jobs[job.id] = job
            over = [number for number, each in self._jobs.items() if each.state != "running"]
            for number in over[: max(0, len(self._jobs) - _MOST_KEPT)]:
                del self._jobs[number]
            thread = threading.Thread(target=self._run, args=(job, work), name=f"ottla-console-{kind}", daemon=True)
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()
        return job

    def items(self) -> list[dict[str, Any]]:
        """Return all known jobs, the newest first."""
        with self._lock:
            return [job.item() for job in reversed(self._jobs.values())]

    def job(self, number: int | None) -> Job:
        """Return a job. Raises InputError if there is none with this id."""
        if number is None:
            raise InputError("id: found none, wanted the id of a job")
        with self._lock:
            job = self._jobs.get(number)
        if job is None:
            raise InputError(f"job {number} is not known")
        return job

    def close(self) -> None:
        """Ask all jobs to stop, and wait briefly. Work inside the cluster continues."""
        with self._lock:
            jobs, threads = list(self._jobs.values()), list(self._threads)
        for job in jobs:
            if not job.stop.is_set():
                job.is_left = True
                job.stop.set()
        for thread in threads:
            thread.join(5)

    def _run(self, job: Job, work: Callable[[Job], None]) -> None:
        try:
            work(job)
        except (Stopped, KeyboardInterrupt):
            job.state = "stopped"
        except OttlaError as error:
            job.problem, job.state = str(error)[:2_000], "failed"
        except Exception as error:
            log.exception("%s of %s failed", job.kind, job.subject)
            job.problem, job.state = f"{type(error).__name__}: {error}"[:2_000], "failed"
        else:
            job.state = "done"
