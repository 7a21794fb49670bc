"""Records of the topic of recurring tasks, `ottla.tasks.<schedule>`: one partition, compacted, with the brokers'
append times.

| key | value | written by |
|---|---|---|
| `definition <id>` | JSON of a `Definition`; null removes the task | an app that declares the task, when it starts |
| `pause <id>` | `true` or `false` | `ottla schedule pause` and `resume` |
| `trigger <id> <name>` | `true`; null once it was dispatched | `ottla schedule trigger` |
| `state <id>` | JSON of a `State`, `read_to` alone after a removal | the owner, with the runs that it dispatches |

All but states are requests: the owner applies them in the order of their offsets. A state says which requests it knows
(`read_to`), so that compaction may remove the older ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from ottla.failures.expiry import EXPIRES_HEADER
from ottla.foreign_json import read_json
from ottla.records import ID_HEADER, Header, Record, topic_problem
from ottla.schedule.headers import DELIVERED_PREFIX, RecordToWrite
from ottla.schedule.tasks.due_times import CronTimes, DueTimes, Interval

TOPIC_PREFIX: Final = "ottla.tasks."

TOPIC_CONFIG: Final = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    "min.compaction.lag.ms": "86400000",
    "segment.bytes": "16777216",
}
"""Settings of the topic. No request is compacted away before an owner had a day to see it. Segments are small, as the
newest one is not compacted, and each new owner reads it whole."""

Missed: TypeAlias = Literal["one", "all", "none"]
"""Which of the due times that passed without a scheduler are run: the last one, all of them, or none."""

NEVER_EXPIRES: Final = -1
_MAX_VALUE_BYTES: Final = 10_000
MAX_ID: Final = 200
"""Characters of an id, an expression, or the name of a topic."""
MAX_VERSION: Final = 10
"""Numbers in a version."""

_MAX_MS: Final = 10**15

# Bounds of what is read: any client may write to the topic.
Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_ID)]
Milliseconds: TypeAlias = Annotated[int, Meta(ge=0, lt=_MAX_MS)]


class InvalidTask(ValueError):
    """Pass over the record: no owner can act on it, as any client may write there."""


def tasks_topic(schedule: str) -> str:
    """Return the topic of a schedule's recurring tasks."""
    return TOPIC_PREFIX + schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A recurring task as it was declared."""

    id: Text
    version: Annotated[tuple[Annotated[int, Meta(ge=0, lt=2**31)], ...], Meta(min_length=1, max_length=MAX_VERSION)]
    """Compared number by number: 1.10 is later than 1.9."""
    topic: Text
    missed: Missed = "one"
    expires_after_ms: Annotated[int, Meta(ge=NEVER_EXPIRES, lt=_MAX_MS)] | None = None
    """None: at the next due time. `NEVER_EXPIRES`: never."""
    cron: Text | None = None
    tz: Text = "UTC"
    every_ms: Milliseconds | None = None

    @property
    def due_times(self) -> DueTimes:
        """Return when it is due. Raises `InvalidTimes`, also for a time zone that this system does not have."""
        return CronTimes(self.cron, self.tz) if self.cron is not None else Interval(self.every_ms or 0)

    @property
    def times(self) -> str:
        """Return the expression, or the interval, for people."""
        return f"{self.cron} {self.tz}" if self.cron is not None else f"every {(self.every_ms or 0) / 1_000:g} s"

    def replaces(self, other: Definition | None) -> bool:
        """Return whether it takes the place of the other: it is of a later version, or says something else in the
        same."""
        if other is None or self.version > other.version:
            return True
        return self.version == other.version and self != other

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the record."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A task in the hands of its owner, as of its last write."""

    definition: Definition
    next_ms: int | None
    """The next due time that was not dispatched; None if there is none."""
    last_ms: int | None = None
    """The due time of the last run that was dispatched."""
    is_paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest:
    """A record that changes a task: a definition, None to remove it, or whether it is paused."""

    offset: int
    at_ms: int
    """When it was appended. It concerns the due times behind."""
    change: Definition | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """An additional run, now."""

    key: bytes
    id: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerDone:
    """The trigger with this key was dispatched."""

    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRead:
    """The state of a task; None after it was removed. Requests at smaller offsets than `read_to` are part of it."""

    id: str
    state: State | None
    read_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _StateFields:
    """The JSON of a state's record."""

    read_to: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    definition: Definition | None = None
    next_ms: Milliseconds | None = None
    last_ms: Milliseconds | None = None
    is_paused: bool = False


TaskRecord: TypeAlias = tuple[str, TaskRequest] | Trigger | TriggerDone | StateRead


def definition_record(definition: Definition) -> tuple[bytes, bytes]:
    """Return the key and value of the record that declares a task."""
    return b"definition " + definition.id.encode(), msgspec.json.encode(definition.to_json())


def removal_record(id: str) -> tuple[bytes, None]:
    """Return the key and value of the record that removes a task."""
    return b"definition " + id.encode(), None


def pause_record(id: str, *, is_paused: bool) -> tuple[bytes, bytes]:
    """Return the key and value of the record that pauses or resumes a task."""
    return b"pause " + id.encode(), b"true" if is_paused else b"false"


def trigger_record(id: str, name: str) -> tuple[bytes, bytes]:
    """Return the key and value of the record that triggers a run. `name` is unique."""
    return f"trigger {id} {name}".encode(), b"true"


def state_record(topic: str, id: str, state: State | None, *, read_to: int) -> RecordToWrite:
    """Return the record of a state. None says that the task was removed."""
    value: dict[str, Any] = {"read_to": read_to}
    if state is not None:
        value |= {
            "definition": state.definition.to_json(),
            "next_ms": state.next_ms,
            "last_ms": state.last_ms,
            "is_paused": state.is_paused,
        }
    return RecordToWrite(topic, 0, b"state " + id.encode(), msgspec.json.encode(value), [])


def run_record(
    definition: Definition, *, due_ms: int, dispatched_ms: int, expires_ms: int | None, trigger: bytes | None = None
) -> RecordToWrite:
    """Return the record of a run, as its topic gets it. Its `ottla-id` is the same however often it is handled."""
    is_triggered = trigger is not None
    value = {"id": definition.id, "due_ms": due_ms, "dispatched_ms": dispatched_ms, "is_triggered": is_triggered}
    headers: list[Header] = [] if expires_ms is None else [(EXPIRES_HEADER, b"%d" % expires_ms)]
    headers += [
        (DELIVERED_PREFIX + "id", definition.id.encode()),
        (DELIVERED_PREFIX + "due", b"%d" % due_ms),
        (ID_HEADER, trigger or f"{definition.id}@{due_ms}".encode()),
    ]
    return RecordToWrite(definition.topic, None, definition.id.encode(), msgspec.json.encode(value), headers)


def parse_task_record(record: Record[Any]) -> TaskRecord | None:
    """Parse a record of the topic; None if no owner can act on it."""
    kind, _, rest = (record.raw_key or b"").partition(b" ")
    value = record.raw_value
    try:
        if value is not None and len(value) > _MAX_VALUE_BYTES:
            return None
        if kind == b"definition":
            id = _id(rest)
            if value is None:
                return id, TaskRequest(offset=record.offset, at_ms=record.timestamp_ms, change=None)
            definition = _checked(msgspec.convert(read_json(value, most_depth=2), Definition))
            if definition.id != id:
                return None
            return id, TaskRequest(offset=record.offset, at_ms=record.timestamp_ms, change=definition)
        if kind == b"pause" and value is not None:
            return _id(rest), TaskRequest(offset=record.offset, at_ms=record.timestamp_ms, change=value == b"true")
        if kind == b"trigger":
            key = record.raw_key or b""
            if value is None:
                return TriggerDone(key=key)
            return Trigger(key=key, id=_id(rest.rpartition(b" ")[0]), at_ms=record.timestamp_ms)
        if kind == b"state" and value is not None:
            return _state(_id(rest), read_json(value, most_depth=3))
    except ValueError:  # InvalidTask, or what is no JSON, no such fields, or no text
        pass
    return None


def _state(id: str, found: Any) -> StateRead:
    read = msgspec.convert(found, _StateFields)
    if read.definition is None:
        return StateRead(id=id, state=None, read_to=read.read_to)
    state = State(
        definition=_checked(read.definition), next_ms=read.next_ms, last_ms=read.last_ms, is_paused=read.is_paused
    )
    return StateRead(id=id, state=state, read_to=read.read_to)


def _checked(definition: Definition) -> Definition:
    """Return a definition that was read, if it names a topic, and its times by one of the two ways."""
    if topic_problem(definition.topic) is not None or (definition.every_ms is None) == (definition.cron is None):
        raise InvalidTask
    return definition


def _id(raw: bytes) -> str:
    return msgspec.convert(raw.decode(), Text)
