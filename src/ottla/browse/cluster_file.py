"""The file of `ottla apply`: a cluster's topics, settings, rights, quotas and users as TOML.

    owner = "billing"                               # of the topics of this file, for --prune

    [topics.orders]
    partitions = 6
    replication_factor = 3
    settings.retention.ms = "7d"

    [groups.billing]
    settings.share.auto.offset.reset = "earliest"

    [[acls]]
    allow = ["User:billing"]
    topics = ["orders"]
    groups = ["billing"]
    consumer = true

    [[quotas]]
    user = "billing"
    producer_byte_rate = "1MB"

    [[users]]
    name = "billing"
    mechanism = "SCRAM-SHA-512"
    password_env = "BILLING_PASSWORD"               # or password_command = ["pass", "show", "kafka/billing"]

    [schemas.orders-value]
    file = "order.avsc"                             # beside this file
    compatibility = "BACKWARD"

    [prune]
    prefixes = ["billing."]

Names and values are those of the commands `ottla topics`, `ottla acls`, `ottla quotas` and `ottla users`. A key that is
not known is refused, with its place; so is a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.admin.declared.declared_cluster import DeclaredCluster, DeclaredSchema, DeclaredTopic, Prune
from ottla.bounded_files import read_bounded
from ottla.browse.cluster_file_access import acls_of, quotas_of, users_of
from ottla.browse.cluster_file_values import (
    check_keys,
    count_of,
    entries_of,
    settings_of,
    tables_of,
    text_of,
    texts_of,
)
from ottla.browse.secret_sources import refuse_if_others_write
from ottla.errors import InputError
from ottla.lazy import LazyModule
from ottla.showing import shown
from ottla.topics import topic_problem

if TYPE_CHECKING:
    import tomllib

    from ottla.browse import schema_changes, schema_files
else:
    schema_changes = LazyModule("ottla.browse.schema_changes")
    schema_files = LazyModule("ottla.browse.schema_files")
    tomllib = LazyModule("tomllib")

MOST_BYTES: Final = 16 * 1024 * 1024
_MOST_PARTITIONS: Final = 1_000_000
_TOP: Final = ("owner", "topics", "groups", "acls", "quotas", "users", "schemas", "prune")


def read_cluster_file(path: Path) -> DeclaredCluster:
    """Return what a file declares. InputError names the place of what is wrong, ConfigError a file that others may
    write and that names commands."""
    data, status = read_bounded(path, MOST_BYTES, wanted="a file of declarations")
    declared = parse_cluster_file(data, source=str(path), folder=path.parent)
    if any(user.secret[0] == "command" for user in declared.users):
        refuse_if_others_write(path, status)
    return declared


def parse_cluster_file(data: bytes, *, source: str, folder: Path = Path()) -> DeclaredCluster:
    """Return what the bytes of a file declare. Schemas are files of `folder`."""
    try:
        document = tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{source}: not valid TOML: {error}") from None
    check_keys(document, _TOP, source)
    owner = document.get("owner")
    if owner is not None:
        text_of(owner, f"{source}: owner")
    return DeclaredCluster(
        topics={
            name: _topic(name, table, owner, place)
            for name, table, place in tables_of(document, "topics", source, example="[topics.orders]")
        },
        groups={
            name: _group(name, table, place)
            for name, table, place in tables_of(document, "groups", source, example="[groups.billing]")
        },
        acls=tuple(
            dict.fromkeys(acl for table, place in entries_of(document, "acls", source) for acl in acls_of(table, place))
        ),
        quotas=quotas_of(document, source),
        users=users_of(document, source),
        schemas={
            subject: _schema(table, folder, place)
            for subject, table, place in tables_of(document, "schemas", source, example="[schemas.orders-value]")
        },
        prune=_prune(document.get("prune", {}), f"{source}: prune"),
    )


def _topic(name: str, table: Mapping[str, Any], owner: str | None, place: str) -> DeclaredTopic:
    problem = topic_problem(name)
    if problem is not None:
        raise InputError(f"{place}: {problem}")
    deeper = next((key for key, value in table.items() if isinstance(value, dict) and key != "settings"), None)
    if deeper is not None:
        raise InputError(f'{place}: found a table {deeper!r}; a name with dots is quoted: [topics."{name}.{deeper}"]')
    check_keys(table, ("partitions", "replication_factor", "settings", "owner"), place)
    own = table.get("owner", owner)
    return DeclaredTopic(
        partitions=count_of(table.get("partitions"), f"{place}.partitions", _MOST_PARTITIONS),
        replication_factor=count_of(table.get("replication_factor"), f"{place}.replication_factor", 1_000),
        settings=settings_of(table.get("settings", {}), f"{place}.settings"),
        owner=None if own is None else text_of(own, f"{place}.owner"),
    )


def _group(name: str, table: Mapping[str, Any], place: str) -> Mapping[str, str]:
    text_of(name, place)
    check_keys(table, ("settings",), place)
    return settings_of(table.get("settings", {}), f"{place}.settings")


def _schema(table: Mapping[str, Any], folder: Path, place: str) -> DeclaredSchema:
    check_keys(table, ("file", "type", "references", "compatibility"), place)
    level = table.get("compatibility")
    if level is not None:
        where = f"{place}.compatibility"
        level = schema_changes.checked_level(text_of(level, where), where=where)
    if "file" not in table:
        if level is None:
            raise InputError(f"{place}: found neither, wanted file or compatibility")
        return DeclaredSchema(level=level)
    kind = table.get("type")
    if kind not in (None, *schema_files.TYPES):
        raise InputError(f"{place}.type: found {shown(kind)}, wanted one of {', '.join(schema_files.TYPES)}")
    where = f"{place}.references"
    references = texts_of(table.get("references", []), where)
    parsed = schema_files.parse_references(references, where=where)
    file = folder / text_of(table["file"], f"{place}.file")
    try:
        schema = schema_files.read_schema(file, type=kind, references=parsed)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    return DeclaredSchema(type=schema.type, text=schema.text, references=references, level=level)


def _prune(table: object, place: str) -> Prune:
    if not isinstance(table, dict):
        raise InputError(f"{place}: found {shown(table)}, wanted a table")
    check_keys(table, ("prefixes", "owners"), place)
    prefixes = texts_of(table.get("prefixes", []), f"{place}.prefixes")
    for prefix in prefixes:
        if prefix.startswith("_"):
            raise InputError(
                f"{place}.prefixes: found {prefix!r}, wanted no prefix of topics of Kafka and other tools, which begin"
                " with '_'"
            )
    return Prune(prefixes=prefixes, owners=texts_of(table.get("owners", []), f"{place}.owners"))
