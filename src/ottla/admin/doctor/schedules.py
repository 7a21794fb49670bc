"""SCH: delayed messages that nobody delivers, or that a topic's settings would lose."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.admin.doctor.finding import Evidence, Severity
from ottla.admin.doctor.registry import Found, check
from ottla.admin.facts import Part, TopicFact
from ottla.schedule.headers import DEAD_LETTERS_SUFFIX, TOPIC_CONFIG, TOPIC_PREFIX
from ottla.schedule.wheel import WHEEL

_ABSENT = frozenset({"Empty", "Dead"})


@check(
    "SCH01",
    Severity.WARNING,
    "Delayed messages wait, and no scheduler runs",
    reads={Part.TOPICS, Part.OFFSETS, Part.GROUPS},
    why="A delayed message waits in its schedule's topic until a scheduler delivers it. Without a scheduler, no"
    " message is lost, but all are late.",
    fix="ottla scheduler run --name NAME, or App(scheduler=True) in a service",
)
def no_scheduler(seen: Evidence) -> Iterator[Found]:
    running = {group.group_id for group in seen.facts.groups if group.state not in _ABSENT}
    for topic in _schedules(seen):
        records = sum(partition.records or 0 for partition in topic.partitions)
        if records and topic.name not in running:
            name = topic.name.removeprefix(TOPIC_PREFIX)
            yield Found(
                subject=topic.name,
                message=f"{topic.name} has {records:,} records, and group {topic.name} has no member: no scheduler"
                " delivers what waits there",
                fix=f"ottla scheduler run --name {name}, or App(scheduler={name!r}) in a service",
            )


@check(
    "SCH02",
    Severity.ERROR,
    "A schedule's topic would lose delayed messages",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS},
    why="Retention and compaction may delete messages before they are due. `deliver_after` counts from the broker's"
    " timestamp. Partitions are the slots of the schedule: with another number of partitions, senders and"
    " schedulers disagree. A scheduler refuses such a topic when it starts.",
    fix="ottla topics set TOPIC NAME=VALUE",
)
def loses_messages(seen: Evidence) -> Iterator[Found]:
    for topic in _schedules(seen):
        for name, wanted in TOPIC_CONFIG.items():
            setting = topic.settings.get(name)
            if setting is not None and setting.value not in (None, wanted):
                yield Found(
                    subject=f"{topic.name} {name}",
                    message=f"{topic.name} has {name}={setting.value}, and delayed messages need {wanted}",
                    fix=f"ottla topics set {topic.name} {name}={wanted}",
                )
        if len(topic.partitions) != WHEEL.partitions:
            yield Found(
                subject=topic.name,
                message=f"{topic.name} has {len(topic.partitions)} partitions, and the wheel has {WHEEL.partitions}"
                " slots",
                fix=f"deliver or cancel what waits, delete {topic.name}, and let a scheduler create it",
            )


def _schedules(seen: Evidence) -> Iterator[TopicFact]:
    for name, topic in seen.facts.by_topic.items():
        if name.startswith(TOPIC_PREFIX) and not name.endswith(DEAD_LETTERS_SUFFIX):
            yield topic
