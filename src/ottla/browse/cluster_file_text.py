"""A cluster as the file of `ottla apply`: what `ottla apply export` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from ottla.admin.declared.declared_cluster import INTERNAL, entity_key
from ottla.admin.declared.found_cluster import OWN_SOURCES, FoundCluster
from ottla.admin.facts.cluster_facts import AclInfo, SettingInfo
from ottla.admin.operations.scram_changes import MECHANISMS

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_OF_THE_REGISTRY: Final = "_schemas"
"""The topic in which a schema registry keeps its schemas: it creates it, and brokers do not mark it as internal."""
_KINDS: Final = {"topic": "topics", "group": "groups", "transactional-id": "transactional_ids"}
_ENTITIES: Final = {
    "user": ("user", "user_defaults"),
    "client-id": ("client_id", "client_defaults"),
    "ip": ("ip", "ip_defaults"),
}


def cluster_file_text(found: FoundCluster) -> str:
    """Return TOML that declares what was found: applied to the same cluster, it changes nothing.

    Internal topics are left out, and of settings those that are not set on the topic or group itself. A password is
    nowhere to be read: each user has the name of a variable.
    """
    parts = [*_topics(found), *_groups(found), *_acls(found.acls or ()), *_quotas(found), *_users(found)]
    return "\n".join(parts)


def _topics(found: FoundCluster) -> Iterator[str]:
    for name, topic in sorted(found.topics.items()):
        if topic.is_internal or name.startswith(INTERNAL) or name == _OF_THE_REGISTRY:
            continue
        yield f"[topics.{toml_key(name)}]\npartitions = {len(topic.partitions)}\n" + (
            f"replication_factor = {topic.replication_factor}\n{_settings(topic.settings)}"
        )


def _groups(found: FoundCluster) -> Iterator[str]:
    for name, settings in sorted(found.groups.items()):
        text = _settings(settings)
        if text:
            yield f"[groups.{toml_key(name)}]\n{text}"


def _settings(settings: Mapping[str, SettingInfo]) -> str:
    own = {name: each.value for name, each in settings.items() if each.source in OWN_SOURCES}
    return "".join(
        f"settings.{toml_text(name)} = {toml_text(value)}\n" for name, value in sorted(own.items()) if value is not None
    )


def _acls(acls: tuple[AclInfo, ...]) -> Iterator[str]:
    """Yield an entry for each resource and principal, with all operations."""
    operations: dict[AclInfo, list[str]] = {}
    for acl in acls:
        whose = AclInfo(
            resource=acl.resource,
            name=acl.name,
            pattern=acl.pattern,
            principal=acl.principal,
            host=acl.host,
            operation="",
            permission=acl.permission,
        )
        operations.setdefault(whose, []).append(acl.operation)
    for acl, allowed in operations.items():
        if acl.resource not in _KINDS and acl.resource != "cluster":
            yield f"# not declared in such a file: {acl.resource} {toml_text(acl.name)} of {toml_text(acl.principal)}\n"
            continue
        place = "cluster = true" if acl.resource == "cluster" else f"{_KINDS[acl.resource]} = [{toml_text(acl.name)}]"
        lines = ["[[acls]]", f"{acl.permission} = [{toml_text(acl.principal)}]", place]
        lines += ['pattern = "prefixed"'] if acl.pattern == "prefixed" else []
        lines += [f"hosts = [{toml_text(acl.host)}]"] if acl.host != "*" else []
        lines.append(f"operations = [{', '.join(toml_text(each) for each in sorted(allowed))}]")
        yield "\n".join(lines) + "\n"


def _quotas(found: FoundCluster) -> Iterator[str]:
    by_entity: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
    for each in found.quotas or ():
        by_entity.setdefault(entity_key(each.entity), {})[each.name] = each.value
    for entity, values in by_entity.items():
        lines = ["[[quotas]]"]
        for kind, name in entity:
            named, default = _ENTITIES.get(kind, (kind, f"{kind}_defaults"))
            lines.append(f"{default} = true" if name is None else f"{named} = {toml_text(name)}")
        lines += [f"{name} = {value!r}" for name, value in sorted(values.items())]
        yield "\n".join(lines) + "\n"


def _users(found: FoundCluster) -> Iterator[str]:
    for each in found.users or ():
        if each.mechanism not in MECHANISMS:
            continue
        variable = re.sub(r"[^A-Z0-9]+", "_", each.user.upper()).strip("_") or "USER"
        yield (
            f"[[users]]\nname = {toml_text(each.user)}\nmechanism = {toml_text(each.mechanism)}\n"
            f'iterations = {each.iterations}\npassword_env = "{variable}_PASSWORD"\n'
        )


def toml_key(name: str) -> str:
    """Return a key of TOML: quoted where it has to be."""
    return name if _BARE.fullmatch(name) else toml_text(name)


def toml_text(text: str) -> str:
    """Return a basic string of TOML: JSON's escapes are a part of TOML's, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
