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

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.admin.declared.declared_cluster import (
    DeclaredCluster,
    DeclaredQuota,
    DeclaredSchema,
    DeclaredTopic,
    DeclaredUser,
    Prune,
)
from ottla.admin.facts.cluster_facts import AclInfo
from ottla.browse.human_amounts import setting_value
from ottla.browse.secret_sources import COMMAND, ENVIRONMENT, command_arguments, refuse_if_others_write
from ottla.errors import ConfigError, InputError
from ottla.lazy import LazyModule
from ottla.showing import shown
from ottla.topics import text_problem, topic_problem

if TYPE_CHECKING:
    import tomllib

    from ottla.browse import acl_options, schema_changes, schema_files
else:
    schema_changes = LazyModule("ottla.browse.schema_changes")
    schema_files = LazyModule("ottla.browse.schema_files")
    tomllib = LazyModule("tomllib")
    acl_options = LazyModule("ottla.browse.acl_options")

MOST_BYTES: Final = 16 * 1024 * 1024
_MOST_PARTITIONS: Final = 1_000_000
_TOP: Final = ("owner", "topics", "groups", "acls", "quotas", "users", "schemas", "prune")
_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_LEAST_ITERATIONS, _MOST_ITERATIONS, _ITERATIONS = 4_096, 16_384, 8_192
_ENTITIES: Final = {
    "user": ("user", True),
    "client_id": ("client-id", True),
    "ip": ("ip", True),
    "user_defaults": ("user", False),
    "client_defaults": ("client-id", False),
    "ip_defaults": ("ip", False),
}
"""Key of a quota → (kind of the entity, whether it has a name)."""
_QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)


def read_cluster_file(path: Path) -> DeclaredCluster:
    """Return what a file declares. InputError names the place of what is wrong, ConfigError a file that others may
    write and that names commands."""
    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno())
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise InputError(f"{path}: found more than {MOST_BYTES:,} bytes, wanted a file of declarations")
    declared = parse_cluster_file(data, source=str(path), folder=path.parent)
    if any(user.secret[0] == "command" for user in declared.users):
        refuse_if_others_write(path, mode)
    return declared


def parse_cluster_file(data: bytes, *, source: str, folder: Path = Path()) -> DeclaredCluster:
    """Return what the bytes of a file declare. Schemas are files of `folder`."""
    try:
        document = tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{source}: not valid TOML: {error}") from None
    _known(document, _TOP, source)
    owner = document.get("owner")
    if owner is not None:
        _text(owner, f"{source}: owner")
    return DeclaredCluster(
        topics={
            name: _topic(name, table, owner, place)
            for name, table, place in _tables(document, "topics", source, example="[topics.orders]")
        },
        groups={
            name: _group(name, table, place)
            for name, table, place in _tables(document, "groups", source, example="[groups.billing]")
        },
        acls=tuple(
            dict.fromkeys(acl for table, place in _entries(document, "acls", source) for acl in _acls(table, place))
        ),
        quotas=_quotas(document, source),
        users=_users(document, source),
        schemas={
            subject: _schema(table, folder, place)
            for subject, table, place in _tables(document, "schemas", source, example="[schemas.orders-value]")
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
    _known(table, ("partitions", "replication_factor", "settings", "owner"), place)
    own = table.get("owner", owner)
    return DeclaredTopic(
        partitions=_count(table.get("partitions"), f"{place}.partitions", _MOST_PARTITIONS),
        replication_factor=_count(table.get("replication_factor"), f"{place}.replication_factor", 1_000),
        settings=_settings(table.get("settings", {}), f"{place}.settings"),
        owner=None if own is None else _text(own, f"{place}.owner"),
    )


def _group(name: str, table: Mapping[str, Any], place: str) -> Mapping[str, str]:
    _text(name, place)
    _known(table, ("settings",), place)
    return _settings(table.get("settings", {}), f"{place}.settings")


def _settings(table: object, place: str) -> dict[str, str]:
    """Return settings by their dotted names. TOML reads `retention.ms = ...` as a table in a table."""
    if not isinstance(table, dict):
        raise InputError(f"{place}: found {shown(table)}, wanted a table of settings")
    found: dict[str, str] = {}
    for name, value in _flat(table):
        where = f"{place}.{name}"
        if name in found:
            raise InputError(f"{where}: declared twice")
        found[name] = _setting(name, value, where)
    return found


def _setting(name: str, value: object, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        value = ",".join(value)
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(f"{where}: found {shown(value)}, wanted text, a number, true or false")
    text = str(value)
    problem = text_problem(text)
    if problem is not None:
        raise InputError(f"{where}: {problem}")
    try:
        return setting_value(name, text)
    except ConfigError as error:
        raise InputError(f"{where}: {error}") from None


def _acls(table: Mapping[str, Any], place: str) -> Iterator[AclInfo]:
    lists = ("allow", "deny", "topics", "groups", "transactional_ids", "hosts", "operations")
    flags = ("producer", "consumer", "idempotent", "cluster")
    _known(table, (*lists, *flags, "pattern"), place)
    texts = {name: _texts(table.get(name, []), f"{place}.{name}") for name in lists}
    for name in flags:
        if not isinstance(table.get(name, False), bool):
            raise InputError(f"{place}.{name}: found {shown(table[name])}, wanted true or false")
    pattern = table.get("pattern", "literal")
    if pattern not in ("literal", "prefixed"):
        raise InputError(f"{place}.pattern: found {shown(pattern)}, wanted 'literal' or 'prefixed'")
    _check_operations(texts["operations"], place)
    options = acl_options.Options(
        topics=texts["topics"],
        groups=texts["groups"],
        transactional_ids=texts["transactional_ids"],
        kafka_cluster=table.get("cluster", False),
        pattern=pattern,
        allowed=texts["allow"],
        denied=texts["deny"],
        allowed_hosts=texts["hosts"],
        denied_hosts=texts["hosts"],
        operations=texts["operations"],
        producer=table.get("producer", False),
        consumer=table.get("consumer", False),
        idempotent=table.get("idempotent", False),
    )
    try:
        created = acl_options.what_to_create(options)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    for acl in created:
        yield AclInfo(
            resource=acl.resource,
            name=acl.name or "",
            pattern=acl.pattern,
            principal=acl.principal or "",
            host=acl.host or "",
            operation=acl.operation,
            permission=acl.permission,
        )


def _check_operations(operations: tuple[str, ...], place: str) -> None:
    from ottla.admin.operations.acl_changes import OPERATIONS

    for each in operations:
        if each not in OPERATIONS:
            raise InputError(f"{place}.operations: found {each!r}, wanted one of {', '.join(OPERATIONS)}")


def _quotas(document: Mapping[str, Any], source: str) -> tuple[DeclaredQuota, ...]:
    found: dict[tuple[tuple[str, str | None], ...], DeclaredQuota] = {}
    for table, place in _entries(document, "quotas", source):
        _known(table, (*_ENTITIES, *_QUOTAS), place)
        entity: dict[str, str | None] = {}
        for key, (kind, has_name) in _ENTITIES.items():
            if key not in table:
                continue
            if kind in entity:
                raise InputError(f"{place}: found a name and the default of {kind}, wanted one of them")
            if not has_name and table[key] is not True:
                raise InputError(f"{place}.{key}: found {shown(table[key])}, wanted true")
            entity[kind] = _text(table[key], f"{place}.{key}") if has_name else None
        values = {name: _quota(name, table[name], f"{place}.{name}") for name in _QUOTAS if name in table}
        if not entity or not values:
            wanted = f"one of {', '.join(_QUOTAS)}" if entity else f"one of {', '.join(_ENTITIES)}"
            raise InputError(f"{place}: found none, wanted {wanted}")
        key_of = tuple(sorted(entity.items()))
        if key_of in found:
            raise InputError(f"{place}: the quotas of this entity are declared twice")
        found[key_of] = DeclaredQuota(entity=entity, values=values)
    return tuple(found.values())


def _quota(name: str, value: object, place: str) -> float:
    number = math.nan
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            number = float(setting_value(name, str(value)))
        except (ValueError, ConfigError, OverflowError):
            number = math.nan
    if not math.isfinite(number) or number < 0:
        size = ", or a size as 1MB" if name.endswith("_byte_rate") else ""
        raise InputError(f"{place}: found {shown(value)}, wanted a number{size}")
    return number


def _users(document: Mapping[str, Any], source: str) -> tuple[DeclaredUser, ...]:
    found: dict[tuple[str, str], DeclaredUser] = {}
    for table, place in _entries(document, "users", source):
        user = _user(table, place)
        if (user.user, user.mechanism) in found:
            raise InputError(f"{place}: {user.user}, {user.mechanism} is declared twice")
        found[user.user, user.mechanism] = user
    return tuple(found.values())


def _user(table: Mapping[str, Any], place: str) -> DeclaredUser:
    name = _text(table.get("name"), f"{place}.name")
    if "password" in table:
        raise InputError(
            f"{place}.password: a secret does not belong in this file; give password{COMMAND} or password{ENVIRONMENT}"
        )
    keys = (f"password{COMMAND}", f"password{ENVIRONMENT}")
    _known(table, ("name", "mechanism", "iterations", *keys), place)
    mechanism = table.get("mechanism", _MECHANISMS[1])
    if mechanism not in _MECHANISMS:
        raise InputError(f"{place}.mechanism: found {shown(mechanism)}, wanted {' or '.join(_MECHANISMS)}")
    iterations = table.get("iterations", _ITERATIONS)
    is_count = isinstance(iterations, int) and not isinstance(iterations, bool)
    if not is_count or not _LEAST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
        wanted = f"{_LEAST_ITERATIONS} to {_MOST_ITERATIONS}"
        raise InputError(f"{place}.iterations: found {shown(iterations)}, wanted {wanted}")
    given = [key for key in keys if key in table]
    if len(given) != 1:
        raise InputError(f"{place}: found {len(given)} sources of the password, wanted one of {' and '.join(keys)}")
    secret = _secret(table[given[0]], f"{place}.{given[0]}", is_command=given[0].endswith(COMMAND))
    return DeclaredUser(user=name, mechanism=mechanism, iterations=iterations, secret=secret)


def _schema(table: Mapping[str, Any], folder: Path, place: str) -> DeclaredSchema:
    _known(table, ("file", "type", "references", "compatibility"), place)
    level = table.get("compatibility")
    if level is not None:
        where = f"{place}.compatibility"
        level = schema_changes.checked_level(_text(level, where), where=where)
    if "file" not in table:
        if level is None:
            raise InputError(f"{place}: found neither, wanted file or compatibility")
        return DeclaredSchema(level=level)
    kind = table.get("type")
    if kind not in (None, *schema_files.TYPES):
        raise InputError(f"{place}.type: found {shown(kind)}, wanted one of {', '.join(schema_files.TYPES)}")
    where = f"{place}.references"
    references = _texts(table.get("references", []), where)
    parsed = schema_files.parse_references(references, where=where)
    file = folder / _text(table["file"], f"{place}.file")
    try:
        schema = schema_files.read_schema(file, type=kind, references=parsed)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    return DeclaredSchema(type=schema.type, text=schema.text, references=references, level=level)


def _secret(value: object, place: str, *, is_command: bool) -> tuple[str, ...]:
    if not is_command:
        return ("env", _text(value, place))
    try:
        return ("command", *command_arguments(value, place))
    except ConfigError as error:
        raise InputError(str(error)) from None


def _prune(table: object, place: str) -> Prune:
    if not isinstance(table, dict):
        raise InputError(f"{place}: found {shown(table)}, wanted a table")
    _known(table, ("prefixes", "owners"), place)
    prefixes = _texts(table.get("prefixes", []), f"{place}.prefixes")
    for prefix in prefixes:
        if prefix.startswith("_"):
            raise InputError(
                f"{place}.prefixes: found {prefix!r}, wanted no prefix of topics of Kafka and other tools, which begin"
                " with '_'"
            )
    return Prune(prefixes=prefixes, owners=_texts(table.get("owners", []), f"{place}.owners"))


def _tables(
    document: Mapping[str, Any], key: str, source: str, *, example: str
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    tables = document.get(key, {})
    if not isinstance(tables, dict):
        raise InputError(f"{source}: {key}: found {shown(tables)}, wanted tables, as in {example}")
    for name, table in tables.items():
        place = f"{source}: {key}.{name}"
        if not isinstance(table, dict):
            raise InputError(f"{place}: found {shown(table)}, wanted a table, as in {example}")
        yield name, table, place


def _entries(document: Mapping[str, Any], key: str, source: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    entries = document.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise InputError(f"{source}: {key}: wanted a list of tables, each begun with [[{key}]]")
    for number, table in enumerate(entries, start=1):
        yield table, f"{source}: {key} {number}"


def _known(table: Mapping[str, Any], names: tuple[str, ...], place: str) -> None:
    for key in table:
        if key not in names:
            raise InputError(f"{place}: found {key!r}, wanted one of {', '.join(names)}")


def _count(value: object, place: str, most: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise InputError(f"{place}: found {shown(value)}, wanted a whole number from 1 to {most:,}")
    return value


def _text(value: object, place: str) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"{place}: found {shown(value)}, wanted text")
    problem = text_problem(value)
    if problem is not None:
        raise InputError(f"{place}: {problem}")
    return value


def _texts(value: object, place: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InputError(f"{place}: found {shown(value)}, wanted a list of texts")
    return tuple(_text(each, place) for each in value)


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield above + key, value
