"""Assignors of a member of a classic group, and the error when its group uses another one.

A classic group has one assignor, which every member has to offer. The clients' defaults differ: aiokafka has no
cooperative one. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.config.clients import consumer_settings
from ottla.config.settings import Settings

STRATEGY: Final = "partition.assignment.strategy"
ASYNCIO_ASSIGNORS: Final = ("range", "roundrobin", "sticky")
"""Assignors of aiokafka; roundrobin by default."""


def assignor_setting(settings: Settings) -> str:
    """Return the name of the setting that has the assignor, under the group's protocol."""
    return "group.remote.assignor" if settings["group.protocol"] == "consumer" else STRATEGY


def with_range(
    settings: Settings, bootstrap_servers: str | Sequence[str] | None, group: str, given: Mapping[str, Any] | None
) -> Settings:
    """Return the settings with the range assignor, unless another one was chosen: it gives each member the partitions
    of the same numbers of all topics."""
    name = assignor_setting(settings)
    if settings.was_chosen(name):
        return settings
    return consumer_settings(bootstrap_servers, group_id=group, settings={**(given or {}), name: "range"})


def offered(settings: Settings, *, on_asyncio: bool) -> tuple[str, ...]:
    """Return the names that a member offers, the best first; none under group.protocol=consumer."""
    if settings.get("group.protocol") == "consumer":
        return ()
    names = tuple(name.strip() for name in str(settings[STRATEGY]).split(",") if name.strip())
    if not on_asyncio:
        return names
    return tuple(name for name in names if name in ASYNCIO_ASSIGNORS) or ("roundrobin",)


def conflict(
    settings: Settings,
    *,
    group: str,
    theirs: str,
    on_asyncio: bool,
    has_retry_topics: bool = False,
    because: str = "",
) -> str:
    """Return the message for a member that a coordinator refused because of its assignors. `theirs`: the group's
    assignor, empty if unknown. `because`: why the app uses its assignor."""
    mine = offered(settings, on_asyncio=on_asyncio)
    found = ", ".join(mine) or "group.protocol=consumer"
    used = f"the group's members use {theirs}" if theirs else "the group's members use another one"
    setting = settings.setting(STRATEGY)
    if not because and on_asyncio and (setting is None or mine != offered(settings, on_asyncio=False)):
        because = "a member on asyncio has no cooperative assignor, so a group runs either in threads or on asyncio"
    if not because:
        because = f"{STRATEGY} is {found} here ({'default' if setting is None else setting.origin})"
    ways = ways_out(mine, on_asyncio=on_asyncio, has_retry_topics=has_retry_topics)
    return (
        f"group {group!r}: this member offers the assignor {found}, and {used} (INCONSISTENT_GROUP_PROTOCOL): "
        f"{because}. Way out: {ways}. See 'Changing a live service' in the documentation"
    )


def ways_out(mine: Sequence[str], *, on_asyncio: bool, has_retry_topics: bool) -> str:
    """Return how to move a group from its assignor to `mine`."""
    ways = ["stop all members of the group, then start the new version"]
    if on_asyncio:
        ways.append(
            f"in two rolling deploys: first settings={{{STRATEGY!r}: '{mine[0]},roundrobin'}} and nothing else, then "
            "this change"
        )
    else:
        ways.append(
            "in two rolling deploys: first settings={'group.protocol': 'consumer'} and nothing else (Kafka 4 takes a "
            "running group over), then this change"
        )
    if has_retry_topics:
        ways.append("or RetryTopics(keep_key_order=False), which keeps the group's assignor")
    return "; ".join(ways)
