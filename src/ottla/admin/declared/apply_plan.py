"""A plan of `ottla apply`: the changes from what a cluster has to what is declared, as a file without secrets.

Each change has the value that it was planned from, so that it is applied to that value only. The same changes the other
way round are the undo file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Final

from ottla.admin.declared.declared_cluster import INTERNAL, NOTHING_APPLIED, Applied, DeclaredSchema
from ottla.admin.facts.cluster_facts import AclInfo, Int64
from ottla.admin.facts.facts_file import from_json, to_json
from ottla.admin.operations.scram_changes import MECHANISMS
from ottla.errors import InputError
from ottla_wire.facts import fact

SCHEMA: Final = "ottla.apply-plan/1"


class Kind(StrEnum):
    """What a change is of. The order is the one in which changes are made."""

    TOPIC = "topic"
    PARTITIONS = "partitions"
    TOPIC_SETTING = "topic setting"
    GROUP_SETTING = "group setting"
    QUOTA = "quota"
    USER = "user"
    ACL = "acl"
    LEVEL = "compatibility level"
    SCHEMA = "schema"
    REPLICAS = "replicas"


OF_REGISTRY: Final = frozenset({Kind.LEVEL, Kind.SCHEMA})
ORDER: Final = {kind: number for number, kind in enumerate(Kind)}


@fact
class TopicShape:
    """How a topic is created. None is the cluster's own choice."""

    partitions: Int64 | None = None
    replication_factor: Int64 | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [] if self.partitions is None else [f"{self.partitions} partitions"]
        parts += [] if self.replication_factor is None else [f"{self.replication_factor} replicas"]
        parts += [f"{name}={value}" for name, value in sorted(self.settings.items())]
        return ", ".join(parts) or "with the cluster's defaults"


@fact
class PlannedChange:
    """One change. `old` and `new` are texts; None is a thing that does not exist, or a setting that is not set on the
    topic or group itself."""

    kind: Kind
    """What it is of, as `topic setting`."""
    subject: str
    """The topic, group, user, entity of a quota, or principal of an ACL."""
    name: str = ""
    """The setting, quota or mechanism; of an ACL what it allows or denies."""
    old: str | None
    """The text before."""
    new: str | None
    """The text after."""
    inherited: str | None = None
    """Of a setting that is not set on the topic or group itself: the value in force."""
    note: str = ""
    """What to know before it is agreed to."""
    topic_id: str | None = None
    """Of a topic that exists: the id that it was planned for."""
    shape: TopicShape | None = None
    """Of a topic that is created."""
    acl: AclInfo | None = None
    """The ACL that is created or deleted."""
    entity: Mapping[str, str | None] = field(default_factory=dict)
    """Of a quota: a name for each kind, None for the default."""
    schema: DeclaredSchema | None = None
    """The schema that is registered."""
    secret: tuple[str, ...] = ()
    """Where the password of a user comes from, as `DeclaredUser.secret`."""

    @property
    def is_deletion_of_topic(self) -> bool:
        """Return whether it deletes a topic with its records."""
        return self.kind is Kind.TOPIC and self.new is None

    def __str__(self) -> str:
        what = f"{self.kind} {self.subject}{f' {self.name}' if self.name else ''}"
        return f"{what}: {'none' if self.old is None else self.old} to {'none' if self.new is None else self.new}"


@fact
class ApplyPlan:
    """What applying would change."""

    cluster_id: str
    """The cluster that it was made for, and is applied to."""
    at_ms: Int64
    """When it was planned, in milliseconds since the epoch."""
    changes: tuple[PlannedChange, ...]
    """The changes in the order in which they are made."""
    applied: Applied = NOTHING_APPLIED
    """What is declared: what the record of applied declarations says when the plan was applied."""
    before: Applied = NOTHING_APPLIED
    """What the record said when this was planned."""
    record: str = ""
    """The file of that record."""
    lost: tuple[str, ...] = ()
    """Of an undo file: changes that cannot be reverted."""

    @property
    def replica_factors(self) -> dict[str, int]:
        """Topic → replicas, of the changes that move replicas."""
        return {each.subject: int(each.new or 0) for each in self.changes if each.kind is Kind.REPLICAS}

    @property
    def of_registry(self) -> tuple[PlannedChange, ...]:
        """The changes that the schema registry makes, and no broker."""
        return tuple(each for each in self.changes if each.kind in OF_REGISTRY)

    @property
    def deleted_topics(self) -> tuple[str, ...]:
        """The topics that it deletes."""
        return tuple(each.subject for each in self.changes if each.is_deletion_of_topic)

    def only(self, wanted: Callable[[PlannedChange], bool]) -> ApplyPlan:
        """Return the plan with some of its changes."""
        return replace(self, changes=tuple(filter(wanted, self.changes)))


def undo_of(plan: ApplyPlan) -> ApplyPlan:
    """Return the plan that reverts this one, without what cannot be: deleted records, partitions, old passwords."""
    changes, lost = [], []
    for each in reversed(plan.changes):
        if each.kind is Kind.TOPIC:
            verb = "deleted" if each.new is None else "created"
            lost.append(f"topic {each.subject}: {verb}")
        elif each.kind is Kind.PARTITIONS:
            lost.append(f"topic {each.subject}: {each.old} partitions became {each.new}")
        elif each.kind is Kind.SCHEMA:
            lost.append(f"schema {each.subject}: {each.new} was registered; `ottla schemas delete` deletes it")
        elif each.kind is Kind.USER and each.old is not None:
            lost.append(f"user {each.subject}, {each.name}: the old password is not known")
        else:
            changes.append(replace(each, old=each.new, new=each.old, inherited=None, note="", secret=()))
    changes.sort(key=lambda each: ORDER[each.kind])
    return replace(plan, changes=tuple(changes), applied=plan.before, before=plan.applied, lost=tuple(lost))


def dump_plan(plan: ApplyPlan) -> bytes:
    """Return the plan as a JSON document."""
    return to_json(SCHEMA, plan)


def load_plan(data: bytes, *, source: str) -> ApplyPlan:
    """Return the plan of a JSON document. InputError where it is none, or has a change that none can be."""
    plan = from_json(data, SCHEMA, ApplyPlan, source=source)
    for number, change in enumerate(plan.changes, start=1):
        problem = _problem_of(change)
        if problem is not None:
            raise InputError(f"{source}: change {number}, {change.kind} {change.subject}: {problem}")
    return plan


def _problem_of(change: PlannedChange) -> str | None:
    """Return why a change of a file, which anybody may have edited, cannot be made."""
    new = change.new
    match change.kind:
        case Kind.TOPIC if change.subject.startswith(INTERNAL):
            return "found an internal topic of Kafka"
        case Kind.TOPIC if new is not None and change.shape is None:
            return "found no shape, wanted how it is created"
        case Kind.PARTITIONS | Kind.REPLICAS if new is None or not _COUNT.fullmatch(new):
            return f"found {new!r}, wanted a number"
        case Kind.QUOTA if not change.entity or (new is not None and not _NUMBER.fullmatch(new)):
            return f"found {new!r} of {dict(change.entity)}, wanted a number of an entity"
        case Kind.USER if change.name not in MECHANISMS or (new is not None and not _ITERATIONS.fullmatch(new)):
            return f"found {new!r} for {change.name!r}, wanted '8192 iterations' of a SCRAM mechanism"
        case Kind.USER if change.secret and not _is_source(change.secret):
            return f"found {change.secret!r}, wanted ('env', VARIABLE) or ('command', PROGRAM, ...)"
        case Kind.SCHEMA if change.schema is None:
            return "found no schema"
        case Kind.ACL if change.acl is None:
            return "found no ACL"
    return None


def _is_source(secret: tuple[str, ...]) -> bool:
    kind, *arguments = secret
    return (kind == "env" and len(arguments) == 1) or (kind == "command" and bool(arguments))


_COUNT: Final = re.compile(r"[1-9][0-9]{0,8}")
_NUMBER: Final = re.compile(r"[0-9]{1,310}(\.[0-9]{1,18})?(e[+-]?[0-9]{1,2})?")
_ITERATIONS: Final = re.compile(r"[0-9]{1,6} iterations")
