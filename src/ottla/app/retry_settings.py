"""Changes to a group's settings for retry topics and priorities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.config import Settings, consumer_settings
from ottla.config.defaults import PRIORITY_DEFAULTS
from ottla.errors import ConfigError

if TYPE_CHECKING:
    from ottla.app.app import App
    from ottla.app.route import Route


def for_priorities(settings: Settings) -> Settings:
    """Return the settings of a group whose topics have priorities: small fetches, unless the user chose
    larger ones."""
    return settings.with_defaults(*PRIORITY_DEFAULTS.values())


def with_range(
    settings: Settings, bootstrap_servers: str | Sequence[str] | None, group: str, given: Mapping[str, Any] | None
) -> Settings:
    """Return the settings with the range assignor, unless another one was chosen: it gives each member the partitions
    of the same numbers of all topics, and so a share of each priority."""
    name = _assignor(settings)
    if settings.was_chosen(name):
        return settings
    return consumer_settings(bootstrap_servers, group_id=group, settings={**(given or {}), name: "range"})


def _assignor(settings: Settings) -> str:
    is_new_protocol = settings["group.protocol"] == "consumer"
    return "group.remote.assignor" if is_new_protocol else "partition.assignment.strategy"


def group_settings(app: App, group: str, routes: Sequence[Route]) -> Settings:
    """Return the consumer settings of one of the app's groups, checked against what its handlers declare.

    A key's order is kept by one member that has a partition and the partitions of the same number of its retry topics.
    Kafka's range assignor assigns them so, and no other one does.
    """
    settings = _assigned(app, group, routes)
    return for_priorities(settings) if any(route.priorities for route in routes) else settings


def _assigned(app: App, group: str, routes: Sequence[Route]) -> Settings:
    settings = consumer_settings(app.bootstrap_servers, group_id=group, settings=app.settings)
    name = _assignor(settings)
    if any(route.priorities for route in routes):
        settings = with_range(settings, app.bootstrap_servers, group, app.settings)
    if not any(route.retry_chains for route in routes):
        return settings
    if settings["auto.offset.reset"] != "earliest":
        raise ConfigError(
            f"{group}: retry topics need auto.offset.reset=earliest, found {settings['auto.offset.reset']!r}: "
            "records written to a retry topic before its first commit would be skipped"
        )
    if not any(route.plan().keeps_key_order for route in routes):
        return settings
    if settings.was_chosen(name) and settings[name] != "range":
        raise ConfigError(
            f"{group}: RetryTopics(keep_key_order=True) needs {name}=range, found {settings[name]!r}: another assignor "
            "may give a partition and its retry partitions to different members"
        )
    chosen = {**app.settings, name: "range"}
    return consumer_settings(app.bootstrap_servers, group_id=group, settings=chosen)
