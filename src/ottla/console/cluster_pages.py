"""Pages of the cluster and of topics, built from facts; only a topic's settings and groups are requested separately."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, Final

from ottla.admin.facts.cluster_facts import ClusterFacts
from ottla.browse.cluster_items import broker_items, cluster_item, disk_items
from ottla.browse.topic_items import group_items, partition_item, setting_items, topic_detail, topic_item
from ottla.console.query import Query
from ottla.console.state import ConsoleState, page_of, state_of
from ottla.console.watcher import WatchedFacts
from ottla.errors import UnknownTopic
from ottla.patterns import Pattern

_SORTS: Final = ("name", "partitions", "records", "bytes", "rate", "problems")
_FIELD: Final = {"rate": "bytes_per_second", "name": "topic"}
_MOST_GROUPS: Final = 500


def cluster(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return brokers, disks, and what flows in."""
    query.done()
    seen = console.seen()
    facts = seen.facts
    rates = {} if seen.rates is None else seen.rates.leader_bytes_in(facts)
    behind = _followers_behind(facts)
    brokers = [
        {
            **item,
            "bytes_per_second": None if seen.rates is None else round(rates.get(item["broker"], 0)),
            "behind": behind.get(item["broker"], 0),
            "history": [round(sample.by_broker.get(item["broker"], 0)) for sample in seen.samples[-60:]],
        }
        for item in broker_items(facts)
    ]
    return {
        "schema": "ottla.console.cluster/1",
        "state": state_of(seen),
        "cluster": cluster_item(facts),
        "bootstrap_servers": console.kafka.get("bootstrap.servers"),
        "brokers": brokers,
        "disks": disk_items(facts, seen.long_before),
        "moves": len(facts.moves),
    }


def topics(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return a page of topics. They are filtered and sorted here, because a cluster may have ten thousand."""
    wanted = matcher(query.text("match", most=300))
    sort = query.one_of("sort", _SORTS, "name")
    is_reversed = query.flag("reverse")
    with_internal = query.flag("internal")
    page, size = query.paging()
    query.done()
    seen = console.seen()
    rates = _topic_rates(seen)
    items = [
        {**topic_item(seen.facts, topic, "rate", rates), **topic_item(seen.facts, topic, "records")}
        for topic in seen.facts.topics
        if (with_internal or not (topic.is_internal or topic.name.startswith("__"))) and wanted(topic.name)
    ]
    items.sort(key=lambda item: item["topic"])
    if sort == "name":
        items.sort(key=lambda item: item["topic"], reverse=is_reversed)
    elif sort == "problems":
        items.sort(key=lambda item: (item["problems"] is None) != is_reversed)
    else:
        field = _FIELD.get(sort, sort)
        items.sort(key=lambda item: -1 if item.get(field) is None else item[field], reverse=not is_reversed)
    return {"schema": "ottla.console.topics/1", "state": state_of(seen), **page_of(items, page=page, size=size)}


def topic(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return one topic: settings with their origins, partitions, what flows in."""
    name = query.needed("name")
    page, size = query.paging()
    query.done()
    seen = console.seen()
    if name not in seen.facts.by_topic:
        seen = console.seen(fresh=True)  # it may have been created since
    fact = seen.facts.by_topic.get(name)
    if fact is None:
        raise UnknownTopic(f"{name}: the cluster has no such topic")
    asked = console.answers.of(("topic/settings", name), lambda: {"settings": setting_items(console.admin, name)})
    settings = asked["settings"]
    partitions = [partition_item(seen.facts, name, each) for each in fact.partitions]
    return {
        "schema": "ottla.console.topic/1",
        "state": state_of(seen),
        "topic": topic_detail(seen.facts, fact, settings),
        "bytes_per_second": (_topic_rates(seen) or {}).get(name),
        "history": [round(sample.by_topic.get(name, 0)) for sample in seen.samples[-60:]],
        "settings": settings,
        "partitions": page_of(partitions, page=page, size=size),
    }


def topic_groups(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return the groups that read a topic, and their lag. Asks the cluster for all groups' offsets: only when it is
    shown."""
    name = query.needed("name")
    query.done()
    return console.answers.of(("topic/groups", name), lambda: _topic_groups(console, name))


def _topic_groups(console: ConsoleState, name: str) -> dict[str, Any]:
    found = console.admin.list_groups()
    names = [group.group_id for group in found if group.type != "Share"]
    lags = console.admin.group_lag(*names[:_MOST_GROUPS]) if names else ()
    return {
        "schema": "ottla.topics.groups/1",
        "items": group_items(lags, name),
        "left_out": max(0, len(names) - _MOST_GROUPS),
    }


def matcher(pattern: str | None) -> Callable[[str], bool]:
    """Return a part of the name; with `*` or `?` a pattern of the whole; between slashes a regular expression."""
    if not pattern:
        return lambda name: True
    if len(pattern) > 2 and pattern.startswith("/") and pattern.endswith("/"):
        return Pattern(pattern[1:-1], name="match").is_in_text
    if "*" in pattern or "?" in pattern:
        return lambda name: fnmatchcase(name, pattern)
    part = pattern.casefold()
    return lambda name: part in name.casefold()


def _topic_rates(seen: WatchedFacts) -> dict[str, float] | None:
    return None if not seen.samples or seen.rates is None else seen.samples[-1].by_topic


def _followers_behind(facts: ClusterFacts) -> dict[int, int]:
    """Return broker -> replicas on it that are not in sync."""
    found: dict[int, int] = {}
    for each in facts.by_partition.values():
        for broker in set(each.replicas) - set(each.in_sync):
            found[broker] = found.get(broker, 0) + 1
    return found
