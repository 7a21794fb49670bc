"""ACLs, quotas and SCRAM users of the file of `ottla apply`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.admin.declared.declared_cluster import DeclaredQuota, DeclaredUser
from ottla.admin.facts.cluster_facts import AclInfo
from ottla.browse.cluster_file_values import check_keys, entries_of, text_of, texts_of
from ottla.browse.human_amounts import setting_value
from ottla.browse.secret_sources import COMMAND, ENVIRONMENT, command_arguments
from ottla.errors import ConfigError, InputError
from ottla.lazy import LazyModule
from ottla.showing import shown

if TYPE_CHECKING:
    from ottla.browse import acl_options
else:
    acl_options = LazyModule("ottla.browse.acl_options")

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


def acls_of(table: Mapping[str, Any], place: str) -> Iterator[AclInfo]:
    """Yield the ACLs of one entry."""
    from ottla.admin.operations.acl_changes import acl_info

    lists = ("allow", "deny", "topics", "groups", "transactional_ids", "hosts", "operations")
    flags = ("producer", "consumer", "idempotent", "cluster")
    check_keys(table, (*lists, *flags, "pattern"), place)
    texts = {name: texts_of(table.get(name, []), f"{place}.{name}") for name in lists}
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
    yield from map(acl_info, created)


def _check_operations(operations: tuple[str, ...], place: str) -> None:
    from ottla.admin.operations.acl_changes import OPERATIONS

    for each in operations:
        if each not in OPERATIONS:
            raise InputError(f"{place}.operations: found {each!r}, wanted one of {', '.join(OPERATIONS)}")


def quotas_of(document: Mapping[str, Any], source: str) -> tuple[DeclaredQuota, ...]:
    """Return the quotas, those of an entity in one."""
    found: dict[tuple[tuple[str, str | None], ...], DeclaredQuota] = {}
    for table, place in entries_of(document, "quotas", source):
        check_keys(table, (*_ENTITIES, *_QUOTAS), place)
        entity: dict[str, str | None] = {}
        for key, (kind, has_name) in _ENTITIES.items():
            if key not in table:
                continue
            if kind in entity:
                raise InputError(f"{place}: found a name and the default of {kind}, wanted one of them")
            if not has_name and table[key] is not True:
                raise InputError(f"{place}.{key}: found {shown(table[key])}, wanted true")
            entity[kind] = text_of(table[key], f"{place}.{key}") if has_name else None
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


def users_of(document: Mapping[str, Any], source: str) -> tuple[DeclaredUser, ...]:
    """Return the SCRAM users."""
    found: dict[tuple[str, str], DeclaredUser] = {}
    for table, place in entries_of(document, "users", source):
        user = _user(table, place)
        if (user.user, user.mechanism) in found:
            raise InputError(f"{place}: {user.user}, {user.mechanism} is declared twice")
        found[user.user, user.mechanism] = user
    return tuple(found.values())


def _user(table: Mapping[str, Any], place: str) -> DeclaredUser:
    name = text_of(table.get("name"), f"{place}.name")
    if "password" in table:
        raise InputError(
            f"{place}.password: a secret does not belong in this file; give password{COMMAND} or password{ENVIRONMENT}"
        )
    keys = (f"password{COMMAND}", f"password{ENVIRONMENT}")
    check_keys(table, ("name", "mechanism", "iterations", *keys), place)
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


def _secret(value: object, place: str, *, is_command: bool) -> tuple[str, ...]:
    if not is_command:
        return ("env", text_of(value, place))
    try:
        return ("command", *command_arguments(value, place))
    except ConfigError as error:
        raise InputError(str(error)) from None
