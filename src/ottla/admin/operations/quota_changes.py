"""Quotas of users, client ids and addresses (KIP-546). Any broker answers: it forwards changes to the controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ottla.admin.facts.admin_operation import AdminOperation, AdminRequest, changing, raise_problem, reading
from ottla.admin.facts.cluster_facts import QuotaInfo
from ottla.admin.facts.response_facts import quotas_of
from ottla_wire.protocol import ApiKey

_EXACT, _DEFAULT = 0, 1

Entity: TypeAlias = Mapping[str, str | None]
"""A name for each kind (`user`, `client-id`, `ip`); None is all that have no quota of their own."""


def find_quotas(wanted: Entity) -> AdminOperation[tuple[QuotaInfo, ...]]:
    """Return the quotas of entities that match; all quotas for an empty filter. Raises `BrokerRefused`."""
    components = [
        {"entity_type": kind, "match_type": _DEFAULT if name is None else _EXACT, "match": name}
        for kind, name in wanted.items()
    ]
    ask = AdminRequest(api=ApiKey.DESCRIBE_CLIENT_QUOTAS, body={"components": components, "strict": False})
    answer = yield from reading(ask)
    raise_problem("quotas", answer.error_code, answer.error_message)
    return tuple(sorted(quotas_of(answer), key=lambda quota: (_order(quota.entity), quota.name)))


def alter_quotas(entity: Entity, values: Mapping[str, float | None], *, dry_run: bool = False) -> AdminOperation[None]:
    """Set quotas of one entity, all of them or none; None removes one. Raises `BrokerRefused`."""
    ops: Sequence[Mapping[str, object]] = [
        {"key": name, "value": 0.0 if value is None else value, "remove": value is None}
        for name, value in values.items()
    ]
    entry = {"entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()], "ops": ops}
    body = {"entries": [entry], "validate_only": dry_run}
    answer = yield from changing(AdminRequest(api=ApiKey.ALTER_CLIENT_QUOTAS, body=body))
    for result in answer.entries:
        raise_problem("quotas", result.error_code, result.error_message)


def _order(entity: Entity) -> list[tuple[str, str]]:
    return [(kind, name or "") for kind, name in sorted(entity.items(), reverse=True)]
