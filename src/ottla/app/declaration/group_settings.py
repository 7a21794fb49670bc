"""Consumer settings of a group, as its handlers need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.app.declaration.route import Route
from ottla.config import Settings, consumer_settings
from ottla.config.assignors import assignor_setting, with_range
from ottla.config.defaults import PRIORITY_DEFAULTS
from ottla.errors import ConfigError


def group_settings(
    group: str, routes: Sequence[Route], bootstrap_servers: str | Sequence[str] | None, given: Mapping[str, Any]
) -> Settings:
    """Return the consumer settings of a group, checked against what its handlers declare.

    A key's order is kept by one member that has a partition and the partitions of the same number of its retry topics.
    Kafka's range assignor assigns them so, and no other one does. With priorities it gives each member a share of each.
    """
    has_priorities = any(route.priorities for route in routes)
    keeps_key_order = any(route.plan().keeps_key_order for route in routes)
    settings = consumer_settings(bootstrap_servers, group_id=group, settings=given)
    if settings["auto.offset.reset"] != "earliest" and any(route.retry_chains for route in routes):
        raise ConfigError(
            f"{group}: retry topics need auto.offset.reset=earliest, found {settings['auto.offset.reset']!r}: "
            "records written to a retry topic before its first commit would be skipped"
        )
    name = assignor_setting(settings)
    if keeps_key_order and settings.was_chosen(name) and settings[name] != "range":
        raise ConfigError(
            f"{group}: RetryTopics(keep_key_order=True) needs {name}=range, found {settings[name]!r}: another assignor "
            "may give a partition and its retry partitions to different members"
        )
    if has_priorities or keeps_key_order:
        settings = with_range(settings, bootstrap_servers, group, given)
    return settings.with_defaults(*PRIORITY_DEFAULTS.values()) if has_priorities else settings
