"""Decisions of `ottla run --workers`: when each worker process is started, stopped, replaced and given up.

Each worker is in one phase:

1. `WAITING`: it has no process, and gets one when its time has come.
2. `LOADING`: its process runs, and imports the app.
3. `RUNNING`: the app is loaded. It reports once a second.
4. `STOPPING`: it was asked to drain. When its grace has passed it is ordered to end at once.
5. `ENDING`: it was ordered to end at once. It is killed if it has not ended after five seconds.
6. `ENDED`: it has no process, and gets none.

The first worker loads alone. If that fails, it fails for all of them, with one message. A worker that ends by itself is
started again after a pause, which doubles; whichever ends too often ends them all. A worker hangs if its handler has
been with one record for too long, or if it has not reported for so long: its process exists in both cases.

Nothing here reads a clock or touches a process: `step` methods take the time, and return effects for
`ottla.cli.services.workers` to carry out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

FIRST_PAUSE_MS: Final = 1_000
LONGEST_PAUSE_MS: Final = 30_000
MOST_DEATHS: Final = 5
QUIET_MS: Final = 120_000
"""Deaths are forgotten when all workers have run for so long."""
DEAD_MS: Final = 10_000
"""A worker that has reported for so long that only a restart helps is replaced."""
AT_ONCE_MS: Final = 5_000
"""A worker that was ordered to end at once is killed after so long."""
ENDED_BY_STOP: Final = (130, 143)
"""Exit codes of a process that SIGINT or SIGTERM ends while it loads. A terminal sends Ctrl-C to all processes."""
FIRST_GRACE_MS: Final = 30_000
"""How long a worker that has not said how long it drains may take to stop."""


class Phase(Enum):
    """See the module."""

    WAITING = "waiting"
    LOADING = "loading"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDING = "ending"
    ENDED = "ended"


VALID_PREVIOUS: Final = {
    Phase.WAITING: {Phase.LOADING, Phase.RUNNING, Phase.STOPPING, Phase.ENDING},
    Phase.LOADING: {Phase.WAITING},
    Phase.RUNNING: {Phase.LOADING},
    Phase.STOPPING: {Phase.LOADING, Phase.RUNNING},
    Phase.ENDING: {Phase.LOADING, Phase.RUNNING, Phase.STOPPING, Phase.ENDING},
    Phase.ENDED: set(Phase) - {Phase.ENDED},
}


class How(Enum):
    """How a worker is ended."""

    GRACEFULLY = "gracefully"
    AT_ONCE = "at once"
    KILLED = "killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start a process for the worker."""

    worker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """End the worker's process."""

    worker: int
    how: How


@dataclass(frozen=True, slots=True)
class LogWorker:
    """Log an event of a worker."""

    event: str
    level: str
    fields: dict[str, object]


Effect = Start | End | LogWorker


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What a worker says of itself."""

    is_alive: bool
    """False where only a restart helps."""
    stuck_ms: int
    """How long the slowest of its handlers has been with one record."""
    silent_ms: int = 0
    """How old that is: its event loop, or what else it asks, has not answered for so long."""


@dataclass(slots=True)
class WorkerState:
    """One worker: the number stays, the process changes."""

    number: int
    phase: Phase = Phase.WAITING
    due_ms: int = 0
    """When its phase ends, in `WAITING`, `STOPPING` and `ENDING`."""
    heard_ms: int = 0
    """When it was started, or has last reported."""
    stuck_ms: int = 0
    dead_since_ms: int | None = None
    grace_ms: int = FIRST_GRACE_MS
    hung_after_ms: int = 0
    deaths: int = 0
    """How often it has ended by itself since all were quiet."""
    starts: int = 0
    has_loaded: bool = False
    is_refused: bool = False
    exit_code: int = 0

    def enter(self, phase: Phase, due_ms: int = 0) -> None:
        """Go to another phase."""
        assert self.phase in VALID_PREVIOUS[phase], f"worker {self.number}: {self.phase} to {phase}"
        self.phase, self.due_ms = phase, due_ms

    def no_progress_ms(self, now_ms: int) -> int:
        """Return how long it has made no progress, as far as that is known."""
        return self.stuck_ms + max(0, now_ms - self.heard_ms)


@dataclass(slots=True)
class Supervision:
    """The state of all workers. `loading_limit_ms` bounds an import, and stands for the limit of progress until a
    worker has said its own."""

    count: int
    loading_limit_ms: int
    workers: list[WorkerState] = field(init=False)
    exit_code: int | None = None
    """What `ottla run` ends with; None while the workers go on."""
    _is_loadable: bool = False
    """One worker has loaded the app, so the others can as well."""
    _signals: int = 0
    _settled_since_ms: int | None = None

    def __post_init__(self) -> None:
        self.workers = [WorkerState(number) for number in range(1, self.count + 1)]

    @property
    def is_over(self) -> bool:
        """Return whether no worker has a process, and none gets one."""
        return all(worker.phase is Phase.ENDED for worker in self.workers)

    @property
    def is_stopping(self) -> bool:
        return self.exit_code is not None

    def tick(self, now_ms: int) -> list[Effect]:
        """Return what is due now."""
        effects: list[Effect] = []
        for worker in self.workers:
            if worker.phase is Phase.WAITING:
                if worker.due_ms <= now_ms and (self._is_loadable or worker is self.workers[0]):
                    worker.enter(Phase.LOADING)
                    worker.heard_ms, worker.stuck_ms, worker.dead_since_ms, worker.has_loaded = now_ms, 0, None, False
                    worker.starts += 1
                    effects.append(Start(worker=worker.number))
            elif worker.phase in (Phase.LOADING, Phase.RUNNING):
                effects += self._replaced(worker, now_ms)
            elif worker.phase is Phase.STOPPING and worker.due_ms <= now_ms:
                effects += _forced(worker, How.AT_ONCE, now_ms)
            elif worker.phase is Phase.ENDING and worker.due_ms <= now_ms:
                effects += _forced(worker, How.KILLED, now_ms)
        self._forget_deaths(now_ms)
        return effects

    def loaded(self, number: int, *, grace_ms: int, hung_after_ms: int, now_ms: int) -> list[Effect]:
        """Record that a worker has loaded the app, and how long that may take to stop and to handle a record."""
        worker = self.workers[number - 1]
        worker.heard_ms, worker.grace_ms, worker.hung_after_ms = now_ms, grace_ms, hung_after_ms
        if worker.phase is Phase.LOADING:
            worker.enter(Phase.RUNNING)
            self._is_loadable = worker.has_loaded = True
        return [] if self.is_stopping else self.tick(now_ms)

    def reported(self, number: int, report: WorkerReport, now_ms: int) -> None:
        """Record what a worker says of itself."""
        worker = self.workers[number - 1]
        worker.heard_ms, worker.stuck_ms = now_ms - report.silent_ms, report.stuck_ms
        if report.is_alive:
            worker.dead_since_ms = None
        elif worker.dead_since_ms is None:
            worker.dead_since_ms = now_ms

    def refused(self, number: int) -> None:
        """Record that a worker found a `ConfigError`: no restart helps."""
        self.workers[number - 1].is_refused = True

    def ended(self, number: int, exit_code: int, now_ms: int) -> list[Effect]:
        """Record that a worker's process has ended; `exit_code` is negative if a signal ended it."""
        worker = self.workers[number - 1]
        before = worker.phase
        worker.exit_code = exit_code if exit_code >= 0 else 128 - exit_code
        if self.is_stopping:
            worker.enter(Phase.ENDED)
            if worker.has_loaded or worker.exit_code not in ENDED_BY_STOP:  # an import that was ended lost nothing
                self.exit_code = self.exit_code or worker.exit_code
            return []
        worker.deaths += 1
        fields = {"worker": number, "exit_code": exit_code, "deaths": worker.deaths}
        never_loaded = before is Phase.LOADING and not self._is_loadable
        if worker.is_refused or never_loaded or worker.deaths >= MOST_DEATHS:
            worker.enter(Phase.ENDED)
            why = (
                "its settings are refused"
                if worker.is_refused
                else "the app could not be loaded"
                if never_loaded
                else f"it has ended {worker.deaths} times"
            )
            log = LogWorker("workers_given_up", "error", {**fields, "reason": why})
            return [log, *self._stop_all(worker.exit_code or 1, now_ms)]
        pause_ms = min(FIRST_PAUSE_MS << (worker.deaths - 1), LONGEST_PAUSE_MS)
        worker.enter(Phase.WAITING, now_ms + pause_ms)
        self._settled_since_ms = None
        return [LogWorker("worker_ended", "error", {**fields, "again_in_s": pause_ms / 1_000})]

    def signalled(self, now_ms: int) -> list[Effect]:
        """Record a signal: the first one drains all workers, a second one ends them at once, a third one kills them."""
        self._signals += 1
        if self._signals == 1:
            return [] if self.is_stopping else self._stop_all(0, now_ms)
        how = How.AT_ONCE if self._signals == 2 else How.KILLED
        effects: list[Effect] = []
        for worker in self.workers:
            if worker.phase is Phase.WAITING:
                worker.enter(Phase.ENDED)
            elif worker.phase is not Phase.ENDED:
                worker.enter(Phase.ENDING, now_ms + AT_ONCE_MS)
                effects.append(End(worker=worker.number, how=how))
        return effects

    def _stop_all(self, exit_code: int, now_ms: int) -> list[Effect]:
        self.exit_code = exit_code
        effects: list[Effect] = []
        for worker in self.workers:
            if worker.phase is Phase.WAITING:
                worker.enter(Phase.ENDED)
            elif worker.phase in (Phase.LOADING, Phase.RUNNING):
                worker.enter(Phase.STOPPING, now_ms + worker.grace_ms)
                effects.append(End(worker=worker.number, how=How.GRACEFULLY))
        return effects

    def _replaced(self, worker: WorkerState, now_ms: int) -> Sequence[Effect]:
        """Stop a worker that makes no progress; it is started again when it has ended."""
        is_loading = worker.phase is Phase.LOADING
        limit_ms = self.loading_limit_ms if is_loading else worker.hung_after_ms
        for_ms = now_ms - worker.heard_ms if is_loading else worker.no_progress_ms(now_ms)
        is_dead = worker.dead_since_ms is not None and now_ms - worker.dead_since_ms >= DEAD_MS
        if for_ms < limit_ms and not is_dead:
            return ()
        reason = "it is not alive" if is_dead else "it makes no progress"
        fields = {"worker": worker.number, "reason": reason, "for_s": round(for_ms / 1_000, 1)}
        log = LogWorker("worker_replaced", "error", {**fields, "limit_s": limit_ms / 1_000})
        if not is_loading and now_ms - worker.heard_ms >= limit_ms:  # nothing runs in it that could drain
            worker.enter(Phase.ENDING, now_ms + AT_ONCE_MS)
            return log, End(worker=worker.number, how=How.AT_ONCE)
        worker.enter(Phase.STOPPING, now_ms + worker.grace_ms)
        return log, End(worker=worker.number, how=How.GRACEFULLY)

    def _forget_deaths(self, now_ms: int) -> None:
        if any(worker.phase is not Phase.RUNNING for worker in self.workers):
            self._settled_since_ms = None
        elif self._settled_since_ms is None:
            self._settled_since_ms = now_ms
        elif now_ms - self._settled_since_ms >= QUIET_MS:
            for worker in self.workers:
                worker.deaths = 0


def _forced(worker: WorkerState, how: How, now_ms: int) -> list[Effect]:
    worker.enter(Phase.ENDING, now_ms + AT_ONCE_MS)
    fields: dict[str, object] = {"worker": worker.number, "how": how.value}
    return [LogWorker("worker_forced", "warning", fields), End(worker=worker.number, how=how)]
