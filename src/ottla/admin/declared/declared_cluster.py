"""What an operator declares of a cluster, and what was declared when it was applied last. Both without secrets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace
from typing import Final, Literal

from ottla.admin.facts.cluster_facts import AclInfo
from ottla.errors import InputError
from ottla_wire.facts import fact

INTERNAL: Final = "__"
"""How names of Kafka's own topics begin."""


@fact
class DeclaredTopic:
    """A declared topic. What is None or not named is left as the cluster has it."""

    partitions: int | None = None
    """How many partitions; they only grow."""
    replication_factor: int | None = None
    """How many replicas each partition has."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Kafka's names and values, as the protocol has them."""
    owner: str | None = None
    """Who may delete the topic with `--prune` when it is no longer declared."""


@fact
class DeclaredQuota:
    """Declared quotas of one entity. `entity` is a name for each kind (`user`, `client-id`, `ip`); None is the
    default."""

    entity: Mapping[str, str | None]
    """A name for each kind."""
    values: Mapping[str, float]
    """Kafka's name of a quota → its value."""


@fact
class DeclaredUser:
    """A declared SCRAM credential. `secret` says where its password comes from, and is never the password."""

    user: str
    """The name that clients log in with."""
    mechanism: str
    """`SCRAM-SHA-256` or `SCRAM-SHA-512`."""
    iterations: int
    """Rounds of the hash, 4,096 to 16,384."""
    secret: tuple[str, ...]
    """("env", variable), or ("command", program, argument, ...)."""


@fact
class DeclaredSchema:
    """A declared subject of the schema registry: its newest schema, its level, or both."""

    type: Literal["AVRO", "JSON", "PROTOBUF"] = "AVRO"
    """What the schema is written in."""
    text: str | None = None
    """The schema; None where only the level is declared."""
    references: tuple[str, ...] = ()
    """Schemas that it uses, as `NAME=SUBJECT:VERSION`."""
    level: str | None = None
    """The compatibility level of the subject; None leaves it alone."""


@fact
class Prune:
    """The topics that `--prune` may delete: those under a prefix, and those that an owner declared before."""

    prefixes: tuple[str, ...] = ()
    """How names of topics begin that may be deleted; none begins with `_`."""
    owners: tuple[str, ...] = ()
    """Owners whose topics may be deleted."""


@fact
class DeclaredCluster:
    """Everything that the files and services of one run declare."""

    topics: Mapping[str, DeclaredTopic] = field(default_factory=dict)
    """Topics by name."""
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings of groups by name."""
    acls: tuple[AclInfo, ...] = ()
    """ACLs in Kafka's words."""
    quotas: tuple[DeclaredQuota, ...] = ()
    """Quotas of each entity."""
    users: tuple[DeclaredUser, ...] = ()
    """SCRAM users."""
    schemas: Mapping[str, DeclaredSchema] = field(default_factory=dict)
    """Subjects of the schema registry by name."""
    prune: Prune = Prune()
    """What may be deleted."""


@fact
class AppliedTopic:
    """The settings of a topic that were declared, and its owner."""

    settings: tuple[str, ...] = ()
    owner: str | None = None


@fact
class AppliedQuota:
    """The names of an entity's quotas that were declared."""

    entity: Mapping[str, str | None]
    names: tuple[str, ...]


@fact
class Applied:
    """What was declared when it was applied last, by name and without values. What is in here and no longer declared is
    unset; what is not in here was set by another, and is left alone."""

    topics: Mapping[str, AppliedTopic] = field(default_factory=dict)
    """Topics by name."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Group → the names of its settings."""
    acls: tuple[AclInfo, ...] = ()
    """ACLs, whole."""
    quotas: tuple[AppliedQuota, ...] = ()
    """Entities with the names of their quotas."""
    levels: tuple[str, ...] = ()
    """Subjects whose compatibility level was declared."""
    users: tuple[tuple[str, str], ...] = ()
    """(user, mechanism) of each."""


NOTHING: Final = DeclaredCluster()
NOTHING_APPLIED: Final = Applied()


def applied_of(declared: DeclaredCluster) -> Applied:
    """Return what is known of a declaration after it was applied."""
    return Applied(
        topics={
            name: AppliedTopic(settings=tuple(sorted(topic.settings)), owner=topic.owner)
            for name, topic in sorted(declared.topics.items())
        },
        groups={name: tuple(sorted(settings)) for name, settings in sorted(declared.groups.items())},
        acls=tuple(sorted(set(declared.acls), key=acl_key)),
        quotas=tuple(AppliedQuota(entity=each.entity, names=tuple(sorted(each.values))) for each in declared.quotas),
        levels=tuple(sorted(subject for subject, each in declared.schemas.items() if each.level is not None)),
        users=tuple(sorted({(each.user, each.mechanism) for each in declared.users})),
    )


def both_applied(one: Applied, other: Applied) -> Applied:
    """Return what either was declared: what is known while a plan is applied, and if that ends half way."""
    topics = dict(one.topics)
    for name, topic in other.topics.items():
        before = topics.get(name, AppliedTopic())
        topics[name] = AppliedTopic(
            settings=_merged(before.settings, topic.settings), owner=topic.owner or before.owner
        )
    quotas = {entity_key(each.entity): each for each in one.quotas}
    for each in other.quotas:
        before_names = quotas[entity_key(each.entity)].names if entity_key(each.entity) in quotas else ()
        quotas[entity_key(each.entity)] = AppliedQuota(entity=each.entity, names=_merged(before_names, each.names))
    return Applied(
        topics=topics,
        groups={
            name: _merged(one.groups.get(name, ()), other.groups.get(name, ())) for name in {*one.groups, *other.groups}
        },
        acls=tuple(sorted({*one.acls, *other.acls}, key=acl_key)),
        quotas=tuple(quotas.values()),
        levels=_merged(one.levels, other.levels),
        users=tuple(sorted({*one.users, *other.users})),
    )


def merged(parts: Collection[tuple[str, DeclaredCluster]]) -> DeclaredCluster:
    """Return the declarations of several sources as one. InputError where two declare one thing differently."""
    found = NOTHING
    origin: dict[tuple[str, object], str] = {}

    def check(kind: str, key: object, source: str, one: object, other: object) -> None:
        if one is not None and one != other:
            before = origin[kind, key]
            raise InputError(f"{source}: {kind} {key}: declared differently in {before}; declare it in one of them")
        origin[kind, key] = source

    for source, part in parts:
        topics = dict(found.topics)
        for name, topic in part.topics.items():
            topics[name] = _both_topics(topics.get(name), topic, f"{source}: topic {name}", origin.get(("topic", name)))
            origin["topic", name] = source
        for name, settings in part.groups.items():
            check("group", name, source, found.groups.get(name), settings)
        for subject, schema in part.schemas.items():
            check("schema", subject, source, found.schemas.get(subject), schema)
        quotas = {entity_text(each.entity): each for each in found.quotas}
        for quota in part.quotas:
            entity = entity_text(quota.entity)
            check("quotas of", entity, source, quotas.get(entity), quota)
            quotas[entity] = quota
        users = {f"{each.user}, {each.mechanism}": each for each in found.users}
        for user in part.users:
            named = f"{user.user}, {user.mechanism}"
            check("user", named, source, users.get(named), user)
            users[named] = user
        found = replace(
            found,
            topics=topics,
            groups={**found.groups, **part.groups},
            acls=tuple(dict.fromkeys((*found.acls, *part.acls))),
            quotas=tuple(quotas.values()),
            users=tuple(users.values()),
            schemas={**found.schemas, **part.schemas},
            prune=Prune(
                prefixes=tuple(dict.fromkeys((*found.prune.prefixes, *part.prune.prefixes))),
                owners=tuple(dict.fromkeys((*found.prune.owners, *part.prune.owners))),
            ),
        )
    return found


def _both_topics(one: DeclaredTopic | None, other: DeclaredTopic, place: str, before: str | None) -> DeclaredTopic:
    """Return a topic of two sources, of which each may leave open what the other declares."""
    if one is None:
        return other
    pairs: list[tuple[str, object, object]] = [
        (name, getattr(one, name), getattr(other, name)) for name in ("partitions", "replication_factor", "owner")
    ]
    pairs += [(name, one.settings.get(name), value) for name, value in other.settings.items()]
    for name, old, new in pairs:
        if None not in (old, new) and old != new:
            raise InputError(f"{place}: {name}: found {new}, and {old} in {before}; declare it in one of them")
    return DeclaredTopic(
        partitions=one.partitions if other.partitions is None else other.partitions,
        replication_factor=one.replication_factor if other.replication_factor is None else other.replication_factor,
        settings={**one.settings, **other.settings},
        owner=one.owner if other.owner is None else other.owner,
    )


def entity_key(entity: Mapping[str, str | None]) -> tuple[tuple[str, str | None], ...]:
    """Return the entity of a quota as a key."""
    return tuple(sorted(entity.items()))


def entity_text(entity: Mapping[str, str | None]) -> str:
    """Return the entity of a quota for people: `user billing, client-id <default>`."""
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in sorted(entity.items()))


def acl_key(acl: AclInfo) -> tuple[str, ...]:
    """Return the order of ACLs."""
    return (acl.resource, acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission)


def _merged(one: Collection[str], other: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted({*one, *other}))
