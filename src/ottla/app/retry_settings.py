"""What retry topics ask of a group's settings."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.app.app import App
from ottla.app.options import Route
from ottla.config import Settings, consumer_settings
from ottla.errors import ConfigError


def group_settings(app: App, group: str, routes: Sequence[Route]) -> Settings:
    """The consumer settings of one of the app's groups, checked against what its handlers declare.

    A key's order is kept by one member that has a partition and the partitions of the same number of its retry topics.
    Kafka's range assignor assigns them so, and no other one does.
    """
    settings = consumer_settings(app.bootstrap_servers, group_id=group, settings=app.settings)
    if not any(route.retry_lines for route in routes):
        return settings
    if settings["auto.offset.reset"] != "earliest":
        raise ConfigError(
            f"{group}: retry topics need auto.offset.reset=earliest, found {settings['auto.offset.reset']!r}: what is "
            "written to a retry topic before its first commit would be passed over"
        )
    if not any(route.plan().keeps_key_order for route in routes):
        return settings
    is_new_protocol = settings["group.protocol"] == "consumer"
    name = "group.remote.assignor" if is_new_protocol else "partition.assignment.strategy"
    if settings.was_chosen(name) and settings[name] != "range":
        raise ConfigError(
            f"{group}: RetryTopics(keep_key_order=True) needs {name}=range, found {settings[name]!r}: another assignor "
            "may give a partition and its retry partitions to different members"
        )
    chosen = {**app.settings, name: "range"}
    return consumer_settings(app.bootstrap_servers, group_id=group, settings=chosen)
