"""Requests of `ottla quotas`, which neither confluent-kafka nor aiokafka can send. Any broker serves them: it forwards
changes to the controller, and knows all quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.cli.access.any_broker import any_broker, refuse_error
from ottla_wire.protocol import ApiKey

EXACT, DEFAULT = 0, 1

Entity = Mapping[str, str | None]
"""A name for each kind (`user`, `client-id`, `ip`); None is all that have no quota of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One quota in force."""

    entity: Entity
    name: str
    value: float


def describe(settings: Mapping[str, object], wanted: Entity) -> list[Quota]:
    """Return the quotas of entities that match the wanted ones; all quotas if none is wanted."""
    components = [
        {"entity_type": kind, "match_type": DEFAULT if name is None else EXACT, "match": name}
        for kind, name in wanted.items()
    ]
    with any_broker(settings) as connection:
        answer = connection.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": components, "strict": False})
    refuse_error(answer.error_code, answer.error_message)
    quotas = [
        Quota(entity={each.entity_type: each.entity_name for each in entry.entity}, name=quota.key, value=quota.value)
        for entry in answer.entries
        for quota in entry.values
    ]
    return sorted(quotas, key=lambda quota: (_order(quota.entity), quota.name))


def alter(
    settings: Mapping[str, object],
    entity: Entity,
    *,
    values: Mapping[str, float],
    removed: Sequence[str] = (),
    validate_only: bool = False,
) -> None:
    """Set and remove quotas of one entity, all of them or none. Raises BrokerRefused."""
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            *({"key": name, "value": value, "remove": False} for name, value in values.items()),
            *({"key": name, "value": 0.0, "remove": True} for name in removed),
        ],
    }
    with any_broker(settings) as connection:
        answer = connection.call(ApiKey.ALTER_CLIENT_QUOTAS, {"entries": [entry], "validate_only": validate_only})
    for result in answer.entries:
        refuse_error(result.error_code, result.error_message)


def _order(entity: Entity) -> list[tuple[str, Any]]:
    return [(kind, name or "") for kind, name in sorted(entity.items(), reverse=True)]
