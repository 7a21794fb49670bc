"""The recurring tasks of a schedule in the hands of their owner: what is due, and what is written for it.

`tick(now_ms)` is a procedure (`ottla.stepping`): it yields requests (`ClaimTasks`, `FindLogEnd`, `ReadRecords`,
`WriteTasks`) and is sent the responses. `now_ms` is never ahead of the brokers' clock.

Why a due time is run once: a run and the state with the next due time are one transaction. The owner claims the log
first, which aborts every transaction of an earlier owner, and then reads it whole.

Why none is left out: the next due time is calculated from the one before, not from the clock; which of those that
passed without an owner are run is what the task says (`missed=`).

Why a request that was acknowledged before a due time is honoured: the end of the log is found after `now_ms` was taken,
and is read before anything is dispatched. A request concerns the due times behind its own append time. Those before are
dispatched first, as the task was until then.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.records import Record
from ottla.schedule.slot import FindLogEnd, ReadRecords, RecordsRead, WriteRefused
from ottla.schedule.tasks.due_times import DueTimes, InvalidTimes
from ottla.schedule.tasks.task_records import (
    NEVER_EXPIRES,
    Definition,
    State,
    StateRead,
    TaskRequest,
    Trigger,
    TriggerDone,
    parse_task_record,
)
from ottla.stepping import Procedure

LATE_MS: Final = 60_000
"""With ``missed="none"``: a due time that is dispatched this much later was missed. A new owner takes less."""

MAX_RUNS_PER_WRITE: Final = 1_000
_MAX_RUNS_PER_TASK: Final = 100
"""Per transaction, so that a task with years to make up for delays no other one."""

_MAX_TIMES: Final = 10_000
_LOOK_MS: Final = 1_000
"""How often the log is read while nothing is due."""
_AGAIN_MS: Final = 5_000
"""Delay of a task whose run was refused."""
_MAX_READS: Final = 20
"""Reads per tick; slots wait meanwhile."""
_MAX_WRITES: Final = 10
"""Transactions per tick."""


class ClaimTasks(NamedTuple):
    """Fence all other owners. Response: the offset at which the log begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run to be dispatched, as the task was declared when it was due."""

    definition: Definition
    due_ms: int
    expires_ms: int | None
    trigger: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWrite:
    """What becomes of one task: its runs, and its state behind them; None after it was removed."""

    id: str
    runs: tuple[Run, ...]
    state: State | None
    is_changed: bool
    """The state is written."""
    read_to: int
    """Requests at smaller offsets are part of the state."""
    triggers: tuple[bytes, ...]
    """Keys of the triggers that are done."""


class WriteTasks(NamedTuple):
    """Write all of it in one transaction. Response: None when committed, or a `WriteRefused` whose offsets are indexes
    of the writes to blame."""

    writes: list[TaskWrite]


Ask: TypeAlias = ClaimTasks | FindLogEnd | ReadRecords | WriteTasks


@dataclass(slots=True)
class _Task:
    """One task."""

    state: State | None = None
    requests: list[TaskRequest] = field(default_factory=list)
    """Not applied yet, in the order of their offsets."""
    triggers: dict[bytes, Trigger] = field(default_factory=dict)
    again_ms: int = 0
    problem: str | None = None
    """Why it is not dispatched."""


@dataclass(slots=True)
class OwnedTasks:
    """All tasks of a schedule. A fenced owner drops it and creates a new one."""

    is_open: bool = False
    is_behind: bool = False
    """The last tick left something to do: run the next one at once."""
    next_offset: int = 0
    delivered: int = 0
    unreadable: int = 0
    tasks: dict[str, _Task] = field(default_factory=dict)
    _has_read: bool = False
    """The log was read up to its end. All states in it from then on are this owner's."""
    _looked_ms: int | None = None
    _times: dict[Definition, DueTimes] = field(default_factory=dict)
    """Parsed expressions."""

    def tick(self, now_ms: int) -> Procedure[Ask, Any, None]:
        """Run one tick: read, apply requests, dispatch."""
        if not self.is_open:
            self.next_offset = yield ClaimTasks()
            self.is_open = True
        is_due = any(
            task.state is not None and task.again_ms <= now_ms and _is_due(task.state, now_ms)
            for task in self.tasks.values()
        )
        is_time_to_look = self._looked_ms is None or not 0 <= now_ms - self._looked_ms < _LOOK_MS
        if not (is_due or is_time_to_look or self.is_behind):
            return
        self.is_behind = not (yield from self._catch_up())
        if self.is_behind:
            return
        self._looked_ms, self._has_read = now_ms, True
        for _ in range(_MAX_WRITES):
            writes = self._next_writes(now_ms)
            if not writes:
                return
            refused: WriteRefused | None = yield WriteTasks(writes)
            for index, write in enumerate(writes):
                if refused is None:
                    self._written(write)
                elif index in refused.offsets:
                    task = self.tasks[write.id]
                    task.again_ms, task.problem = now_ms + _AGAIN_MS, refused.reason
        self.is_behind = True

    @property
    def next_due_ms(self) -> int | None:
        """Return the next due time of a task that is not paused; None without one."""
        return min(
            (
                task.state.next_ms
                for task in self.tasks.values()
                if task.state is not None and task.state.next_ms is not None and not task.state.is_paused
            ),
            default=None,
        )

    @property
    def problems(self) -> dict[str, str]:
        """Id → why its runs are not dispatched."""
        return {id: task.problem for id, task in self.tasks.items() if task.problem is not None}

    def states(self) -> dict[str, State]:
        """Return the tasks by id, with the requests that no owner has applied yet."""
        found: dict[str, State] = {}
        for id, task in self.tasks.items():
            state = task.state
            for request in task.requests:
                try:
                    state = self._changed(state, request)
                except InvalidTimes:
                    break  # no scheduler with these time zones applies it
            if state is not None:
                found[id] = state
        return found

    def take_in(self, record: Record[Any]) -> None:
        """Apply the next record of the log."""
        found = parse_task_record(record)
        match found:
            case Trigger():
                self._task(found.id).triggers[found.key] = found
            case TriggerDone():
                for task in self.tasks.values():
                    task.triggers.pop(found.key, None)
            case StateRead() if not self._has_read:
                self._take_in_state(found)
            case StateRead():
                pass
            case (id, request):
                self._task(id).requests.append(request)
            case None if (record.raw_key or b"").startswith(b"state ") or record.raw_value is not None:
                self.unreadable += 1

    # What tick does

    def _catch_up(self) -> Procedure[Ask, Any, bool]:
        """Read to the end of the log. Returns False if it is further away than one tick reads."""
        end: int = yield FindLogEnd()
        for _ in range(_MAX_READS):
            if self.next_offset >= end:
                return True
            chunk: RecordsRead = yield ReadRecords(self.next_offset)
            if chunk.next_offset <= self.next_offset:
                return False
            for record in chunk.records:
                self.take_in(record)
            self.next_offset = chunk.next_offset
        return self.next_offset >= end

    def _next_writes(self, now_ms: int) -> list[TaskWrite]:
        writes: list[TaskWrite] = []
        room = MAX_RUNS_PER_WRITE
        for id, task in list(self.tasks.items()):
            if task.again_ms > now_ms or room <= 0:
                continue
            write = self._next_write(id, task, now_ms, min(room, _MAX_RUNS_PER_TASK))
            if write is not None:
                writes.append(write)
                room -= max(1, len(write.runs))
            elif task.state is None and not task.requests and not task.triggers:
                del self.tasks[id]
        return writes

    def _next_write(self, id: str, task: _Task, now_ms: int, room: int) -> TaskWrite | None:
        """Return what is to be written of a task now: the due runs before its next request, then the request."""
        before = state = task.state
        runs: list[Run] = []
        requests = list(task.requests)
        task.problem = None
        try:
            while True:
                until_ms = min(now_ms, requests[0].at_ms) if requests else now_ms
                if state is not None and _is_due(state, until_ms) and not (requests and self._is_unreadable(state)):
                    if len(runs) >= room:
                        break
                    state = self._dispatched(state, until_ms, now_ms, runs)
                elif requests and requests[0].at_ms <= now_ms:
                    state = self._changed(state, requests[0])
                    del requests[0]
                else:
                    break
        except InvalidTimes as error:  # another owner may know the time zone
            task.problem, task.again_ms = str(error), now_ms + _AGAIN_MS
        triggers = () if requests else tuple(key for key, each in task.triggers.items() if each.at_ms <= now_ms)
        is_changed = state != before or len(runs) > 0
        if state is not None:
            runs += [_triggered(state.definition, task.triggers[key]) for key in triggers]
        if not is_changed and not triggers:
            task.requests = requests  # the others changed nothing
            return None
        return TaskWrite(
            id=id,
            runs=tuple(runs),
            state=state,
            is_changed=is_changed,
            # Requests that are not applied yet are read again by the next owner.
            read_to=requests[0].offset if requests else self.next_offset,
            triggers=triggers,
        )

    def _dispatched(self, state: State, until_ms: int, now_ms: int, runs: list[Run]) -> State:
        """Return the state after the due times up to `until_ms`, or the first of them, and add their runs."""
        assert state.next_ms is not None
        definition, due_ms, times = state.definition, state.next_ms, self._times_of(state.definition)
        if definition.missed != "all":
            due_ms = times.latest(due_ms, until_ms)
        next_ms = times.after(due_ms)
        if definition.missed == "none" and now_ms - due_ms > LATE_MS:
            return replace(state, next_ms=next_ms)
        # Of those that are made up for, each would have expired before it is dispatched.
        at_next = None if definition.missed == "all" else next_ms
        is_next = definition.expires_after_ms is None
        runs.append(
            Run(definition=definition, due_ms=due_ms, expires_ms=at_next if is_next else _expiry(definition, due_ms))
        )
        return replace(state, next_ms=next_ms, last_ms=due_ms)

    def _changed(self, state: State | None, request: TaskRequest) -> State | None:
        """Return the state after a request. Raises `InvalidTimes`."""
        change = request.change
        if isinstance(change, bool):
            if state is None or change is state.is_paused:
                return state
            # While it is paused nothing is due, and nothing is made up for afterwards.
            next_ms = state.next_ms if change else self._times_of(state.definition).after(request.at_ms)
            return replace(state, is_paused=change, next_ms=next_ms)
        if change is None:
            return None
        if state is None:
            return State(definition=change, next_ms=self._times_of(change).after(request.at_ms))
        if not change.replaces(state.definition):
            return state
        next_ms = state.next_ms
        if change.times != state.definition.times:
            next_ms = self._times_of(change).after(request.at_ms)
        return replace(state, definition=change, next_ms=next_ms)

    def _is_unreadable(self, state: State) -> bool:
        try:
            self._times_of(state.definition)
        except InvalidTimes:
            return True
        return False

    def _times_of(self, definition: Definition) -> DueTimes:
        """Return when it is due. Raises `InvalidTimes`."""
        found = self._times.get(definition)
        if found is None:
            if len(self._times) >= _MAX_TIMES:
                self._times.clear()
            found = self._times[definition] = definition.due_times
        return found

    def _written(self, write: TaskWrite) -> None:
        task = self.tasks[write.id]
        task.state = write.state
        task.requests = [request for request in task.requests if request.offset >= write.read_to]
        for key in write.triggers:
            task.triggers.pop(key, None)
        self.delivered += len(write.runs)

    def _take_in_state(self, found: StateRead) -> None:
        task = self._task(found.id)
        task.state = found.state
        task.requests = [request for request in task.requests if request.offset >= found.read_to]

    def _task(self, id: str) -> _Task:
        return self.tasks.setdefault(id, _Task())


def _is_due(state: State, until_ms: int) -> bool:
    return not state.is_paused and state.next_ms is not None and state.next_ms <= until_ms


def _triggered(definition: Definition, trigger: Trigger) -> Run:
    return Run(
        definition=definition, due_ms=trigger.at_ms, expires_ms=_expiry(definition, trigger.at_ms), trigger=trigger.key
    )


def _expiry(definition: Definition, due_ms: int) -> int | None:
    """Return when a run expires by a duration of its own; None if it has none, or never expires."""
    after_ms = definition.expires_after_ms
    return None if after_ms is None or after_ms == NEVER_EXPIRES else due_ms + after_ms
