"""Requests for settings of topics, groups and brokers: DescribeConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla.admin.facts.admin_operation import AdminRequest
from ottla.admin.facts.protocol_names import BROKER
from ottla_wire.protocol import ApiKey

_SET: Final = 0
_DELETE: Final = 1


def describe_settings(
    kind: int, names: Sequence[str], settings: Iterable[str] | None, *, synonyms: bool = False
) -> AdminRequest:
    """Return the request for these settings (None: all) of resources of a kind. Not empty."""
    keys = None if settings is None else list(settings)
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys} for name in names]
    return AdminRequest(
        api=ApiKey.DESCRIBE_CONFIGS,
        body={"resources": resources, "include_synonyms": synonyms},
        broker=_server_of(kind, names[0]),
    )


def change_settings(kind: int, name: str, values: Mapping[str, str | None], *, dry_run: bool = False) -> AdminRequest:
    """Return the request that sets settings of one resource; None unsets one. With `dry_run` it is only checked."""
    configs = [
        {"name": setting, "config_operation": _DELETE if value is None else _SET, "value": value}
        for setting, value in values.items()
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return AdminRequest(
        api=ApiKey.INCREMENTAL_ALTER_CONFIGS,
        body={"resources": [resource], "validate_only": dry_run},
        broker=_server_of(kind, name),
    )


def _server_of(kind: int, name: str) -> int | None:
    """Return the broker to ask: a broker's settings are served by that broker alone."""
    return int(name) if kind == BROKER and name else None
