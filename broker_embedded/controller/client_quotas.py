"""Quotas of clients (KIP-546): which alterations are possible, as records. As Kafka's ClientQuotaControlManager."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from broker_embedded.common.errors import BrokerError
from broker_embedded.controller.partition_requests import Outcome
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import MetadataRecord, QuotaEntity, SetClientQuota
from broker_embedded.quotas.names import CLIENT_ID, IP, OF_ADDRESSES, OF_CLIENTS, USER
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

_KINDS = (USER, CLIENT_ID, IP)
_WHOLE = 1e-6
"""How far from a whole number a value may be that has to be one."""


@fact
class QuotaAlteration:
    """The new quotas of one entity. A value of None removes the quota."""

    entity: QuotaEntity
    ops: Sequence[tuple[str, float | None]]


def alter(
    image: ClusterImage, alterations: Sequence[QuotaAlteration]
) -> tuple[list[MetadataRecord], dict[QuotaEntity, Outcome]]:
    """Return the records of the alterations that are valid, and the outcome of every entity. An entity is altered
    completely or not at all; unchanged quotas are not recorded.
    """
    records: list[MetadataRecord] = []
    outcomes: dict[QuotaEntity, Outcome] = {}
    for alteration in alterations:
        entity = alteration.entity
        if entity in outcomes:
            outcomes[entity] = _invalid(f"Ignoring duplicate entity {_format_entity(entity)}")
            continue
        try:
            records += _records_of(image.client_quotas.get(entity, {}), alteration)
            outcomes[entity] = None
        except BrokerError as error:
            outcomes[entity] = error
    return records, outcomes


def _records_of(current: Mapping[str, float], alteration: QuotaAlteration) -> list[MetadataRecord]:
    entity = alteration.entity
    wanted: dict[str, float | None] = {}
    for key, value in alteration.ops:
        if key in wanted:
            raise _invalid(f"Duplicate quota key {key} not updating quota for this entity {_format_entity(entity)}")
        wanted[key] = value
    keys = _keys_of(entity)
    for key, value in wanted.items():
        if value is not None:
            _check(keys, key, value)
    return [
        SetClientQuota(entity=entity, key=key, value=value)
        for key, value in wanted.items()
        if current.get(key) != value
    ]


def _keys_of(entity: QuotaEntity) -> Mapping[str, int | None]:
    """Return the quotas that an entity may have."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in _KINDS:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    names = dict(entity)
    if IP not in names:
        return OF_CLIENTS
    if len(names) > 1:
        raise _invalid("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    if not _is_address(names[IP]):
        raise _invalid(f"{names[IP]} is not a valid IP or resolvable host.")
    return OF_ADDRESSES


def _check(keys: Mapping[str, int | None], key: str, value: float) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    most = keys[key]
    if most is None:
        return
    if value > most:
        raise _invalid(f"Proposed value for {key} is too large: at most {most}.")
    if abs(value % 1.0) > _WHOLE:
        raise _invalid(f"{key} cannot be a fractional value.")


def _is_address(name: str | None) -> bool:
    """Return whether it is an IP address. Kafka also accepts host names, and would resolve them here."""
    if name is None:
        return True
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    try:
        socket.inet_pton(family, name)
    except (OSError, ValueError):
        return False
    return True


def _format_entity(entity: QuotaEntity) -> str:
    return "ClientQuotaEntity(entries={" + ", ".join(f"{kind}={name}" for kind, name in entity) + "})"


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)
