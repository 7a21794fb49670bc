"""From what is declared, was declared and is there to the changes that make the cluster so. Nothing is asked here.

Each setting is compared three ways, as each quota and ACL is:

1. What is declared gets its declared value.
2. What was declared when it was applied last, and is not any more, is unset.
3. What was never declared is left alone, whatever its value.

Topics and users that are no longer declared stay, unless `prune` deletes them. Partitions only grow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ottla.admin.declared.apply_plan import ORDER, ApplyPlan, Kind, PlannedChange, TopicShape
from ottla.admin.declared.declared_cluster import (
    INTERNAL,
    Applied,
    AppliedTopic,
    DeclaredCluster,
    DeclaredTopic,
    applied_of,
    entity_key,
    entity_text,
)
from ottla.admin.declared.found_cluster import FoundCluster, own_value
from ottla.admin.facts.cluster_facts import AclInfo, SettingInfo, TopicInfo
from ottla.errors import InputError

KEYS_MOVE: Final = "records of a key may go to another partition, out of order with earlier ones"
RECORDS_LOST: Final = "all its records are deleted"
_MOST_NAMED: Final = 20


def plan_changes(
    declared: DeclaredCluster, applied: Applied, found: FoundCluster, *, prune: bool = False, record: str = ""
) -> ApplyPlan:
    """Return the plan. InputError names everything declared that cannot be, such as fewer partitions."""
    problems = [
        f"prune: found the prefix {prefix!r}, wanted one that Kafka's and other tools' own topics do not begin with"
        for prefix in declared.prune.prefixes
        if not prefix or prefix.startswith("_")
    ]
    changes = [
        *_of_topics(declared, applied, found, problems),
        *_of_groups(declared, applied, found, problems),
        *_of_quotas(declared, applied, found),
        *_of_acls(declared, applied, found),
        *_of_users(declared, applied, found, prune=prune),
    ]
    if prune:
        changes += _pruned(declared, applied, found)
    if problems:
        more = f"; and {len(problems) - _MOST_NAMED} more" if len(problems) > _MOST_NAMED else ""
        raise InputError("; ".join(problems[:_MOST_NAMED]) + more)
    changes.sort(key=lambda each: (each.is_deletion_of_topic, ORDER[each.kind]))
    return ApplyPlan(
        cluster_id=found.cluster_id,
        at_ms=found.at_ms,
        changes=tuple(changes),
        applied=_kept(declared, applied, found, changes),
        before=applied,
        record=record,
    )


def same_value(one: str | None, other: str | None) -> bool:
    """Return whether two texts are one value for a broker, which may print it otherwise than it was set: `TRUE`, `0.50`
    and `compact, delete`."""
    if one is None or other is None or one == other:
        return one == other
    return _printed(one) == _printed(other)


def _of_topics(
    declared: DeclaredCluster, applied: Applied, found: FoundCluster, problems: list[str]
) -> Iterator[PlannedChange]:
    for name in sorted({*declared.topics, *applied.topics}):
        wanted, there = declared.topics.get(name), found.topics.get(name)
        if wanted is not None and (name.startswith(INTERNAL) or (there is not None and there.is_internal)):
            problems.append(f"topic {name}: found an internal topic of Kafka, wanted topics of services")
        elif wanted is not None and there is None:
            shape = TopicShape(
                partitions=wanted.partitions,
                replication_factor=wanted.replication_factor,
                settings=dict(wanted.settings),
            )
            yield PlannedChange(kind=Kind.TOPIC, subject=name, old=None, new=str(shape), shape=shape)
        elif there is not None:
            if wanted is not None:
                yield from _sizes(wanted, there, problems)
            before = applied.topics[name].settings if name in applied.topics else ()
            settings = {} if wanted is None else wanted.settings
            yield from _settings(
                Kind.TOPIC_SETTING, name, settings, before, there.settings, problems, topic_id=there.topic_id
            )


def _sizes(wanted: DeclaredTopic, there: TopicInfo, problems: list[str]) -> Iterator[PlannedChange]:
    partitions, factor = len(there.partitions), there.replication_factor
    if wanted.partitions is not None and wanted.partitions < partitions:
        problems.append(
            f"topic {there.name}: declared with {wanted.partitions} partitions, and it has {partitions}: "
            f"partitions only grow; declare {partitions}"
        )
    elif wanted.partitions is not None and wanted.partitions > partitions:
        yield PlannedChange(
            kind=Kind.PARTITIONS,
            subject=there.name,
            old=str(partitions),
            new=str(wanted.partitions),
            note=KEYS_MOVE,
            topic_id=there.topic_id,
        )
    is_uneven = any(len(each.replicas) != factor for each in there.partitions)
    if wanted.replication_factor is not None and (wanted.replication_factor != factor or is_uneven):
        yield PlannedChange(
            kind=Kind.REPLICAS,
            subject=there.name,
            old=str(factor),
            new=str(wanted.replication_factor),
            note="replicas are moved",
            topic_id=there.topic_id,
        )


def _settings(
    kind: Kind,
    subject: str,
    wanted: Mapping[str, str],
    before: Sequence[str],
    there: Mapping[str, SettingInfo],
    problems: list[str],
    *,
    topic_id: str | None = None,
) -> Iterator[PlannedChange]:
    """Compare settings of a topic or group three ways."""
    for name in sorted({*wanted, *before}):
        new, old = wanted.get(name), own_value(there, name)
        if new is not None and name not in there:
            problems.append(f"{kind} {subject}: the cluster knows no setting {name}")
        elif not same_value(old, new):
            inherited = there[name].value if old is None else None
            yield PlannedChange(
                kind=kind, subject=subject, name=name, old=old, new=new, inherited=inherited, topic_id=topic_id
            )


def _of_groups(
    declared: DeclaredCluster, applied: Applied, found: FoundCluster, problems: list[str]
) -> Iterator[PlannedChange]:
    for name in sorted({*declared.groups, *applied.groups}):
        wanted, before = declared.groups.get(name, {}), applied.groups.get(name, ())
        yield from _settings(Kind.GROUP_SETTING, name, wanted, before, found.groups.get(name, {}), problems)


def _of_quotas(declared: DeclaredCluster, applied: Applied, found: FoundCluster) -> Iterator[PlannedChange]:
    there = {(entity_key(each.entity), each.name): each.value for each in found.quotas or ()}
    wanted = {(entity_key(each.entity), name): value for each in declared.quotas for name, value in each.values.items()}
    before = {(entity_key(each.entity), name) for each in applied.quotas for name in each.names}
    for key in sorted({*wanted, *before}, key=repr):
        old, new = there.get(key), wanted.get(key)
        if old != new:
            entity = dict(key[0])
            yield PlannedChange(
                kind=Kind.QUOTA,
                subject=entity_text(entity),
                name=key[1],
                old=None if old is None else quota_text(old),
                new=None if new is None else quota_text(new),
                entity=entity,
            )


def quota_text(value: float) -> str:
    """Return the value of a quota as a plan has it."""
    return str(int(value)) if value.is_integer() else repr(value)


def _of_acls(declared: DeclaredCluster, applied: Applied, found: FoundCluster) -> Iterator[PlannedChange]:
    there = set(found.acls or ())
    wanted = set(declared.acls)
    for acl in sorted(wanted - there, key=acl_text):
        yield PlannedChange(
            kind=Kind.ACL, subject=acl.principal, name=acl_text(acl), old=None, new=acl.permission, acl=acl
        )
    for acl in sorted((set(applied.acls) - wanted) & there, key=acl_text):
        yield PlannedChange(
            kind=Kind.ACL, subject=acl.principal, name=acl_text(acl), old=acl.permission, new=None, acl=acl
        )


def acl_text(acl: AclInfo) -> str:
    """Return what an ACL is about, without its principal: `read topic orders`."""
    star = "*" if acl.pattern == "prefixed" else ""
    host = "" if acl.host == "*" else f" from {acl.host}"
    return f"{acl.operation} {acl.resource} {acl.name}{star}{host}"


def _of_users(
    declared: DeclaredCluster, applied: Applied, found: FoundCluster, *, prune: bool
) -> Iterator[PlannedChange]:
    there = {(each.user, each.mechanism): each.iterations for each in found.users or ()}
    wanted = {(each.user, each.mechanism): each for each in declared.users}
    for key, user in sorted(wanted.items()):
        old = there.get(key)
        if old != user.iterations:
            yield PlannedChange(
                kind=Kind.USER,
                subject=user.user,
                name=user.mechanism,
                old=None if old is None else _iterations(old),
                new=_iterations(user.iterations),
                note="" if old is None else "the password is set again",
                secret=user.secret,
            )
    for key in sorted(set(applied.users) - set(wanted)) if prune else ():
        if key in there:
            yield PlannedChange(kind=Kind.USER, subject=key[0], name=key[1], old=_iterations(there[key]), new=None)


def _iterations(count: int) -> str:
    return f"{count} iterations"


def _pruned(declared: DeclaredCluster, applied: Applied, found: FoundCluster) -> Iterator[PlannedChange]:
    for name, there in sorted(found.topics.items()):
        if name in declared.topics or there.is_internal or name.startswith(INTERNAL):
            continue
        owner = applied.topics[name].owner if name in applied.topics else None
        is_owned = owner is not None and owner in declared.prune.owners
        if is_owned or name.startswith(declared.prune.prefixes):
            yield PlannedChange(
                kind=Kind.TOPIC,
                subject=name,
                old=f"{len(there.partitions)} partitions",
                new=None,
                note=RECORDS_LOST,
                topic_id=there.topic_id,
            )


def _kept(
    declared: DeclaredCluster, applied: Applied, found: FoundCluster, changes: Sequence[PlannedChange]
) -> Applied:
    """Return the record after the plan: what is declared, and of what is not any more what a later `--prune` may
    delete."""
    deleted = {(each.kind, each.subject, each.name) for each in changes if each.new is None}
    record = applied_of(declared)
    topics = {
        name: AppliedTopic(owner=topic.owner)
        for name, topic in applied.topics.items()
        if topic.owner is not None
        and name not in record.topics
        and name in found.topics
        and (Kind.TOPIC, name, "") not in deleted
    }
    there = {(each.user, each.mechanism) for each in found.users or ()}
    users = {each for each in applied.users if each in there and (Kind.USER, each[0], each[1]) not in deleted}
    return replace(record, topics={**topics, **record.topics}, users=tuple(sorted({*record.users, *users})))


def _printed(value: str) -> object:
    text = value.strip()
    if "," in text:
        return tuple(each.strip() for each in text.split(","))
    if text.lower() in ("true", "false"):
        return text.lower()
    try:
        return float(text) if len(text) <= _LONGEST_NUMBER else text
    except ValueError:
        return text


_LONGEST_NUMBER: Final = 15
"""Digits that a float has exactly."""
