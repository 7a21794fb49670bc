"""Topics: create, change settings, add partitions, delete, each shown before it is done."""

from __future__ import annotations

from typing import Final

from ottla.admin import TopicSpec
from ottla.browse.doomed_topics import doomed_item, read_doomed
from ottla.browse.human_amounts import bytes_text, parse_settings
from ottla.console.change_plans import Planner, ShownChange, ShownRow, lines_of, row
from ottla.console.query import Query
from ottla.console.state import ConsoleState
from ottla.errors import InputError, UnknownTopic
from ottla.topics import topic_problem

_MOST_PARTITIONS: Final = 100_000
_MOST_REPLICAS: Final = 1_000
_EXAMPLE: Final = "retention.ms=7d"


def create(console: ConsoleState, query: Query) -> ShownChange:
    """Plan a topic that does not exist."""
    name = query.needed("topic")
    partitions = query.number("partitions", None, least=1, most=_MOST_PARTITIONS)
    replicas = query.number("replicas", None, least=1, most=_MOST_REPLICAS)
    config = parse_settings(lines_of(query.text("settings")), example=_EXAMPLE)
    query.done()
    problem = topic_problem(name)
    if problem is not None:
        raise InputError(problem)
    spec = {name: TopicSpec(partitions=partitions, replication_factor=replicas, config=config)}

    def rows() -> tuple[ShownRow, ...]:
        if name in {each.name for each in console.admin.list_topics(internal=True)}:
            raise InputError(f"{name}: the cluster has this topic already")
        ((count, factor),) = console.admin.create_topics(spec, dry_run=True).values()
        settings = [row(setting, None, value) for setting, value in sorted(config.items())]
        return row("topic", None, name), row("partitions", None, count), row("replicas", None, factor), *settings

    return ShownChange(
        what="topics.create",
        subject=name,
        rows=rows(),
        check=rows,
        run=lambda: console.admin.create_topics(spec),
        done=f"{name} is created.",
    )


def set_settings(console: ConsoleState, query: Query) -> ShownChange:
    """Plan settings to set (`settings`: lines NAME=VALUE) and to remove (`unset`: lines NAME)."""
    name = query.needed("topic")
    setting = parse_settings(lines_of(query.text("settings")), example=_EXAMPLE)
    unset = lines_of(query.text("unset"))
    query.done()
    both = sorted(set(setting) & set(unset))
    if both:
        raise InputError(f"{both[0]}: found it to be set and to be removed, wanted one of them")
    values: dict[str, object | None] = {**setting, **dict.fromkeys(unset)}
    if not values:
        raise InputError(f"found nothing to change, wanted a line as {_EXAMPLE}, or a setting to remove")

    def rows() -> tuple[ShownRow, ...]:
        planned = console.admin.alter_topic_settings(name, values, dry_run=True)
        return tuple(
            row(each.name, f"{each.old} ({each.old_source})", f"{each.new} ({each.new_source})")
            for each in planned
            if each.is_change
        )

    return ShownChange(
        what="topics.set",
        subject=name,
        rows=rows(),
        check=rows,
        run=lambda: console.admin.alter_topic_settings(name, values),
        done=f"The settings of {name} are changed.",
        forgets=(("topic/settings", name),),
    )


def add_partitions(console: ConsoleState, query: Query) -> ShownChange:
    """Plan more partitions: `total` in all."""
    name = query.needed("topic")
    total = query.number("total", None, least=1, most=_MOST_PARTITIONS)
    query.done()
    if total is None:
        raise InputError("total: found nothing, wanted the number of partitions in all")

    def rows() -> tuple[ShownRow, ...]:
        (fact,) = console.admin.describe_topics(name, parts=())
        if total == len(fact.partitions):
            return ()
        console.admin.add_partitions(name, total, dry_run=True)
        return (row("partitions", len(fact.partitions), total),)

    return ShownChange(
        what="topics.add-partitions",
        subject=name,
        rows=rows(),
        check=rows,
        run=lambda: console.admin.add_partitions(name, total),
        notes=(
            "Partitions cannot be removed again.",
            "Records of a key may go to another partition from then on, out of order with earlier ones.",
        ),
        done=f"{name} has {total} partitions.",
    )


def delete(console: ConsoleState, query: Query) -> ShownChange:
    """Plan the deletion of a topic. Its name has to be typed."""
    name = query.needed("topic")
    query.done()
    if name.startswith("__"):
        raise InputError(f"{name} is an internal topic of Kafka: `ottla topics delete --internal` deletes it")
    facts = read_doomed(console.admin, [name])
    if name not in facts.by_topic:
        raise UnknownTopic(f"{name}: the cluster has no such topic")
    found = doomed_item(facts, name)
    size = "unknown" if found["bytes"] is None else bytes_text(found["bytes"])
    records = "unknown" if found["records"] is None else f"{found['records']:,}"

    def rows() -> tuple[ShownRow, ...]:
        """Return what is lost. Records that came since it was shown are no reason to refuse; another topic is."""
        now = console.admin.describe_topics(name, parts=())[0]
        shown = (("id", now.topic_id), ("partitions", len(now.partitions)), ("records", records), ("bytes", size))
        return tuple(row(what, there, None) for what, there in shown)

    groups = found["groups"]
    return ShownChange(
        what="topics.delete",
        subject=name,
        rows=rows(),
        check=rows,
        run=lambda: console.admin.delete_topics(name),
        typed=name,
        notes=(
            "All records are deleted. There is no undo.",
            *((f"Groups that have committed for it: {', '.join(groups[:5])}.",) if groups else ()),
            *((f"And {len(groups) - 5} groups more.",) if len(groups) > 5 else ()),
        ),
        done=f"{name} is deleted.",
        forgets=(("topic/settings", name), ("topic/groups", name)),
    )


TOPIC_PLANNERS: Final[dict[str, Planner]] = {
    "topics.create": create,
    "topics.set": set_settings,
    "topics.add-partitions": add_partitions,
    "topics.delete": delete,
}
