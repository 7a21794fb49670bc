"""Reads what a cluster has of what is declared: topics by one request, their settings by few."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ottla.admin.declared.declared_cluster import Applied, DeclaredCluster
from ottla.admin.declared.found_cluster import FoundCluster
from ottla.admin.facts.admin_operation import AdminOperation
from ottla.admin.facts.cluster_facts import Part
from ottla.admin.facts.facts_reader import WantedFacts, read_facts
from ottla.admin.operations.acl_changes import AclsRefused, acl_info, find_acls
from ottla.admin.operations.quota_changes import find_quotas
from ottla.admin.operations.scram_changes import find_scram_users
from ottla.admin.operations.setting_changes import group_settings
from ottla.errors import InputError
from ottla.wire_client.errors import BrokerRefused
from ottla_wire.protocol import ErrorCode


def read_declared(declared: DeclaredCluster, applied: Applied, *, at_ms: int) -> AdminOperation[FoundCluster]:
    """Return what the cluster has of what is declared, or was. Raises what could not be read: a plan is made of whole
    facts only."""
    return (
        yield from read_found(
            {*declared.topics, *applied.topics},
            {*declared.groups, *applied.groups},
            with_settings={
                *(name for name, topic in declared.topics.items() if topic.settings),
                *(name for name, topic in applied.topics.items() if topic.settings),
            },
            has_acls=bool(declared.acls or applied.acls),
            has_quotas=bool(declared.quotas or applied.quotas),
            has_users=bool(declared.users or applied.users),
            is_of_all_topics=True,
            at_ms=at_ms,
        )
    )


def read_found(
    topics: Collection[str],
    groups: Collection[str],
    *,
    with_settings: Collection[str],
    has_acls: bool = False,
    has_quotas: bool = False,
    has_users: bool = False,
    is_of_all_topics: bool = False,
    at_ms: int,
) -> AdminOperation[FoundCluster]:
    """Return these topics or all, those of `with_settings` with their settings, the settings of these groups, and the
    rest where it is asked for. A user needs no rights for what is not asked for."""
    names = None if is_of_all_topics else tuple(sorted(topics))
    outline = yield from read_facts(WantedFacts(parts=frozenset({Part.TOPICS}), at_ms=at_ms, topics=names))
    refused = [each for each in outline.not_read if each.subject.removeprefix("topic ") in topics]
    unseen = tuple(sorted(set(topics) - outline.by_topic.keys()))
    if (
        is_of_all_topics and unseen
    ):  # a list leaves out topics that may not be described; asked by name, they are refused
        by_name = yield from read_facts(WantedFacts(parts=frozenset({Part.TOPICS}), at_ms=at_ms, topics=unseen))
        refused += by_name.not_read
    named = sorted(each for each in with_settings if each in outline.by_topic)
    found = dict(outline.by_topic)
    if named:
        parts = frozenset({Part.TOPICS, Part.TOPIC_SETTINGS})
        wanted = WantedFacts(parts=parts, at_ms=at_ms, topics=tuple(named), topic_settings=None)
        described = yield from read_facts(wanted)
        refused += described.not_read
        found.update(described.by_topic)
    if refused:
        raise InputError(f"{refused[0].subject}: could not be read: {refused[0].reason}")
    acls = (yield from find_acls()) if has_acls else None
    return FoundCluster(
        cluster_id=outline.cluster_id,
        at_ms=at_ms,
        topics=found,
        groups=(yield from group_settings(sorted(groups))) if groups else {},
        acls=None if acls is None else tuple(map(acl_info, acls)),
        quotas=(yield from find_quotas({})) if has_quotas else None,
        users=(yield from find_scram_users()) if has_users else None,
    )


def read_everything(
    topics: Collection[str], groups: Collection[str], *, is_of_topics_only: bool
) -> AdminOperation[tuple[FoundCluster, tuple[str, ...]]]:
    """Return these topics and groups with their settings, with all ACLs, quotas and users, and why some of it could not
    be read."""
    not_read: list[str] = []
    found = yield from read_found(topics, (), with_settings=topics, at_ms=0)
    if is_of_topics_only:
        return found, ()
    acls, quotas, users = found.acls, found.quotas, found.users
    settings = found.groups
    try:
        settings = yield from group_settings(groups)
    except BrokerRefused as error:
        not_read.append(str(error))
    try:
        acls = tuple(map(acl_info, (yield from find_acls())))
    except AclsRefused as error:
        if error.code is not ErrorCode.SECURITY_DISABLED:  # without an authorizer there are none
            not_read.append(str(error))
    try:
        quotas = yield from find_quotas({})
    except BrokerRefused as error:
        not_read.append(str(error))
    try:
        users = yield from find_scram_users()
    except BrokerRefused as error:
        not_read.append(str(error))
    return replace(found, groups=settings, acls=acls, quotas=quotas, users=users), tuple(not_read)
