"""Applies a plan in batches, each to the values that it was planned from only.

A batch reads what it is about to change, refuses what is neither as planned from nor as planned, and leaves out what is
done. So a plan that was applied half way is applied again, and of two that apply different plans at once one is
refused. Kafka has no compare-and-set: between a read and the change stand some milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import groupby
from typing import Final, TypeAlias

from ottla.admin.declared.apply_plan import OF_REGISTRY, ApplyPlan, Kind, PlannedChange
from ottla.admin.declared.declared_cluster import entity_key
from ottla.admin.declared.found_cluster import FoundCluster, own_value
from ottla.admin.declared.planning import quota_text, same_value
from ottla.admin.declared.reading import read_found
from ottla.admin.errors import PartlyDone
from ottla.admin.facts.admin_operation import AdminOperation, until_seen
from ottla.admin.facts.cluster_facts import TopicInfo
from ottla.admin.operations.acl_changes import Acl, create_acls, delete_acls
from ottla.admin.operations.quota_changes import alter_quotas
from ottla.admin.operations.scram_changes import delete_scram_user, set_scram_user
from ottla.admin.operations.setting_changes import alter_group_settings, alter_topic_settings
from ottla.admin.operations.topic_changes import add_partitions, create_topics, delete_topics
from ottla.config import TopicSpec
from ottla.errors import InputError, OttlaError

Batch: TypeAlias = tuple[PlannedChange, ...]

Passwords: TypeAlias = Mapping[tuple[str, str], tuple[str, bytes]]
"""(user, mechanism) → the password, and random bytes to salt it with."""

_OF_TOPICS: Final = (Kind.TOPIC, Kind.PARTITIONS, Kind.REPLICAS, Kind.TOPIC_SETTING)
_TOPICS_AT_ONCE: Final = 50
_ACLS_AT_ONCE: Final = 100
_MOST_NAMED: Final = 5


def batches_of(plan: ApplyPlan) -> list[Batch]:
    """Return the changes in the order in which they are made, without those of replicas, which are the planner's, and
    of the schema registry."""
    batches: list[Batch] = []
    for (kind, _, _), found in groupby(plan.changes, key=_batch_key):
        changes = tuple(found)
        size = {Kind.TOPIC: _TOPICS_AT_ONCE, Kind.ACL: _ACLS_AT_ONCE}.get(kind, len(changes))
        if kind is not Kind.REPLICAS and kind not in OF_REGISTRY:
            batches += [changes[start : start + size] for start in range(0, len(changes), size)]
    return batches


def check_passwords(plan: ApplyPlan, passwords: Passwords) -> None:
    """Raise InputError for a user whose password is missing."""
    for change in plan.changes:
        if change.kind is Kind.USER and change.new is not None:
            _password_of(change, passwords)


def check_plan(plan: ApplyPlan, *, at_ms: int) -> AdminOperation[None]:
    """Raise InputError where the cluster is no longer as the plan was made from, and `BrokerRefused` for a change that
    the cluster refuses, as a value that a setting cannot have. Changes nothing."""
    left = remaining(plan, plan.changes, (yield from _read(plan.changes, at_ms)))
    for batch in batches_of(replace(plan, changes=left)):
        yield from _change(batch, {}, dry_run=True)


def apply_batch(
    plan: ApplyPlan, batch: Batch, passwords: Passwords, *, at_ms: int
) -> AdminOperation[tuple[PlannedChange, ...]]:
    """Make the changes of a batch that are not made yet, and return them."""
    left = remaining(plan, batch, (yield from _read(batch, at_ms)))
    if left:
        yield from _change(left, passwords, dry_run=False)
        yield from _await_seen(plan, left, at_ms)
    return left


def remaining(plan: ApplyPlan, changes: Sequence[PlannedChange], found: FoundCluster) -> Batch:
    """Return the changes that are not made yet. InputError where something is neither as it was nor as it shall be."""
    if found.cluster_id != plan.cluster_id:
        raise InputError(f"the plan is of cluster {plan.cluster_id!r}, and this is cluster {found.cluster_id!r}")
    left, problems = [], []
    for change in changes:
        if change.kind in OF_REGISTRY:
            continue
        there = found.topics.get(change.subject)
        if change.topic_id is not None and there is not None and there.topic_id != change.topic_id:
            problems.append(f"topic {change.subject}: deleted and created again since")
        elif change.is_deletion_of_topic and there is not None and there.is_internal:
            problems.append(f"topic {change.subject}: found an internal topic of Kafka")
        elif change.kind is Kind.TOPIC:
            problem = _shape_problem(change, there)
            problems += [] if problem is None else [problem]
            if (there is None) is (change.old is None):
                left.append(change)
        elif there is None and change.kind in _OF_TOPICS:
            problems.append(f"topic {change.subject}: deleted since")
        else:
            now = _value_now(change, found)
            if same_value(now, change.new):
                continue
            if not same_value(now, change.old):
                problems.append(f"{change}: is {'none' if now is None else now} now")
            left.append(change)
    if problems:
        more = f"; and {len(problems) - _MOST_NAMED} more" if len(problems) > _MOST_NAMED else ""
        raise InputError(f"changed since it was planned: {'; '.join(problems[:_MOST_NAMED])}{more}; plan again")
    return tuple(left)


class ApplyProgress:
    """What was made so far, for the error of what was not."""

    def __init__(self, on_made: Callable[[PlannedChange], object] | None = None) -> None:
        self.made: list[PlannedChange] = []
        self._on_made = on_made

    def add(self, changes: Batch) -> None:
        """Take the changes that a batch made."""
        self.made += changes
        if self._on_made is not None:
            for change in changes:
                self._on_made(change)

    @contextmanager
    def of(self, batch: Batch) -> Iterator[None]:
        """Turn the error of a batch into `PartlyDone`, if something was made before it."""
        try:
            yield
        except OttlaError as error:
            if not self.made and not isinstance(error, PartlyDone):
                raise
            done = [*map(str, self.made), *(error.done if isinstance(error, PartlyDone) else ())]
            failed = error.failed if isinstance(error, PartlyDone) else {str(batch[0]): error}
            raise PartlyDone("changes", done=done, failed=failed) from error


def _batch_key(change: PlannedChange) -> tuple[Kind, str, bool]:
    """Return what changes of one request have in common."""
    is_of_many = change.kind in (Kind.TOPIC, Kind.ACL)
    subject = f"{change.subject} {change.name}" if change.kind is Kind.USER else change.subject
    return change.kind, "" if is_of_many else subject, change.new is None and is_of_many


def _read(changes: Sequence[PlannedChange], at_ms: int) -> AdminOperation[FoundCluster]:
    kinds = {change.kind for change in changes}
    return (
        yield from read_found(
            {change.subject for change in changes if change.kind in _OF_TOPICS},
            {change.subject for change in changes if change.kind is Kind.GROUP_SETTING},
            with_settings={
                change.subject
                for change in changes
                if change.kind is Kind.TOPIC_SETTING or (change.shape is not None and change.shape.settings)
            },
            has_acls=Kind.ACL in kinds,
            has_quotas=Kind.QUOTA in kinds,
            has_users=Kind.USER in kinds,
            at_ms=at_ms,
        )
    )


def _await_seen(plan: ApplyPlan, made: Batch, at_ms: int) -> AdminOperation[None]:
    """Wait until a broker describes rights, quotas and users as they were changed."""

    def is_seen() -> AdminOperation[bool]:
        return not remaining(plan, made, (yield from _read(made, at_ms)))

    if made[0].kind in (Kind.QUOTA, Kind.USER, Kind.ACL):
        yield from until_seen(is_seen, what=str(made[0]))


def _value_now(change: PlannedChange, found: FoundCluster) -> str | None:
    """Return the text that `old` of the change would have now."""
    match change.kind:
        case Kind.PARTITIONS:
            return str(len(found.topics[change.subject].partitions))
        case Kind.REPLICAS:
            return str(found.topics[change.subject].replication_factor)
        case Kind.TOPIC_SETTING:
            return own_value(found.topics[change.subject].settings, change.name)
        case Kind.GROUP_SETTING:
            return own_value(found.groups.get(change.subject, {}), change.name)
        case Kind.QUOTA:
            for each in found.quotas or ():
                if (entity_key(each.entity), each.name) == (entity_key(change.entity), change.name):
                    return quota_text(each.value)
        case Kind.ACL:
            return change.acl.permission if change.acl is not None and change.acl in (found.acls or ()) else None
        case Kind.USER:
            for user in found.users or ():
                if (user.user, user.mechanism) == (change.subject, change.name):
                    return f"{user.iterations} iterations"
        case Kind.TOPIC | Kind.LEVEL | Kind.SCHEMA:
            pass
    return None


def _shape_problem(change: PlannedChange, there: TopicInfo | None) -> str | None:
    """Return why a topic that exists is not the one that was to be created."""
    if change.shape is None or change.old is not None or there is None:
        return None
    shape = change.shape
    has_shape = shape.partitions in (None, len(there.partitions))
    has_shape &= shape.replication_factor in (None, there.replication_factor)
    has_settings = all(same_value(own_value(there.settings, name), value) for name, value in shape.settings.items())
    return None if has_shape and has_settings else f"topic {change.subject}: created otherwise since"


def _change(changes: Batch, passwords: Passwords, *, dry_run: bool) -> AdminOperation[None]:
    """Make changes of one batch. With `dry_run` the cluster checks what Kafka can check."""
    first = changes[0]
    values = {change.name: change.new for change in changes}
    match first.kind:
        case Kind.TOPIC if first.new is not None:
            yield from create_topics({change.subject: _spec(change) for change in changes}, dry_run=dry_run)
        case Kind.PARTITIONS:
            yield from add_partitions(first.subject, int(first.new or 0), dry_run=dry_run)
        case Kind.TOPIC_SETTING:
            yield from alter_topic_settings(first.subject, values, dry_run=dry_run)
        case Kind.GROUP_SETTING:
            yield from alter_group_settings(first.subject, values, dry_run=dry_run)
        case Kind.QUOTA:
            numbers = {name: None if value is None else float(value) for name, value in values.items()}
            yield from alter_quotas(first.entity, numbers, dry_run=dry_run)
        case _ if dry_run:
            return
        case Kind.TOPIC:
            yield from delete_topics([change.subject for change in changes])
        case Kind.ACL if first.new is None:
            yield from delete_acls([Acl(**asdict(change.acl)) for change in changes if change.acl is not None])
        case Kind.ACL:
            yield from create_acls([Acl(**asdict(change.acl)) for change in changes if change.acl is not None])
        case Kind.USER if first.new is None:
            yield from delete_scram_user(first.subject, first.name)
        case Kind.USER:
            yield from _set_user(first, passwords)
        case Kind.REPLICAS | Kind.LEVEL | Kind.SCHEMA:
            pass


def _set_user(change: PlannedChange, passwords: Passwords) -> AdminOperation[None]:
    password, salt = _password_of(change, passwords)
    iterations = int((change.new or "0").split()[0])
    yield from set_scram_user(change.subject, change.name, password=password, iterations=iterations, salt=salt)


def _password_of(change: PlannedChange, passwords: Passwords) -> tuple[str, bytes]:
    found = passwords.get((change.subject, change.name))
    if found is None:
        raise InputError(f"user {change.subject}, {change.name}: found no password, wanted one to set")
    return found


def _spec(change: PlannedChange) -> TopicSpec | None:
    shape = change.shape
    if shape is None:
        return None
    return TopicSpec(
        partitions=shape.partitions, replication_factor=shape.replication_factor, config=dict(shape.settings)
    )
