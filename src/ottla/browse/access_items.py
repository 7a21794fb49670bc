"""Quotas and SCRAM users before and after a change: what commands and pages show, and what they refuse alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.browse.human_amounts import setting_value
from ottla.errors import ConfigError, InputError
from ottla.topics import text_problem

if TYPE_CHECKING:
    from ottla.admin import Admin
    from ottla.admin.facts.cluster_facts import QuotaInfo
    from ottla.admin.operations.scram_changes import ScramUser

DEFAULT_ENTITY: Final = "<default>"
KINDS: Final = ("user", "client-id", "ip")
LONGEST_PASSWORD: Final = 1_024


def quota_number(name: str, text: str) -> float:
    """Return the value of a quota, as `1MB` or `50`. Raises `InputError`; Kafka has no quota that is not finite."""
    try:
        value = float(setting_value(name, text))
    except (ValueError, ConfigError):
        value = math.nan
    if not math.isfinite(value):
        size = ", or a size as 1MB" if name.endswith("_byte_rate") else ""
        raise InputError(f"{name}: found {text!r}, wanted a number{size}")
    return value


def plain_number(value: float | None) -> float | int | None:
    """Return a number as people write it: whole where it is."""
    return int(value) if value is not None and value.is_integer() else value


def quota_item(quota: QuotaInfo) -> dict[str, Any]:
    """Return an item of `quotas.list/1`."""
    entity = {kind: quota.entity[kind] or DEFAULT_ENTITY for kind in KINDS if kind in quota.entity}
    return {**entity, "quota": quota.name, "value": plain_number(quota.value)}


def user_item(user: ScramUser) -> dict[str, Any]:
    """Return an item of `users.list/1`."""
    return {"user": user.user, "mechanism": user.mechanism, "iterations": user.iterations}


def entity_text(entity: Mapping[str, str | None]) -> str:
    """Return an entity, such as `user billing, client-id <default>`."""
    return ", ".join(f"{kind} {name or DEFAULT_ENTITY}" for kind, name in entity.items())


def quota_changes(
    admin: Admin, entity: Mapping[str, str | None], wanted: Mapping[str, float | None]
) -> list[dict[str, Any]]:
    """Return the items of `quotas.set/1`: each quota that would change. The cluster has checked them; None removes."""
    admin.alter_quotas(entity, wanted, dry_run=True)
    there = {quota.name: quota.value for quota in admin.find_quotas(entity) if quota.entity == entity}
    return [
        {"quota": name, "old": plain_number(there.get(name)), "new": plain_number(new)}
        for name, new in wanted.items()
        if there.get(name) != new
    ]


def found_user(admin: Admin, user: str, mechanism: str) -> ScramUser | None:
    """Return the user's credential for a mechanism. Raises `InputError` for a name that is none."""
    if not user or (problem := text_problem(user)) is not None:
        raise InputError(f"USER: {problem if user else 'found no text, wanted the name of a user'}")
    there = admin.find_scram_users()
    return next((each for each in there if (each.user, each.mechanism) == (user, mechanism)), None)


def existing_user(admin: Admin, user: str, mechanism: str) -> ScramUser:
    """Return the user's credential for a mechanism. Raises `InputError` if there is none."""
    found = found_user(admin, user, mechanism)
    if found is None:
        raise InputError(f"{user}: found no password for {mechanism}; `ottla users list` shows which there are")
    return found


def checked_password(given: str) -> str:
    """Return a password. Raises `InputError` for one that cannot be; it is in no message."""
    if not given or len(given) > LONGEST_PASSWORD or text_problem(given) is not None:
        raise InputError(f"found a password of {len(given)} characters, wanted 1 to {LONGEST_PASSWORD:,} of valid text")
    return given
