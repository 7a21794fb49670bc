"""SCH: delayed messages and recurring tasks without a scheduler, and messages that a topic's settings would lose."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.admin.doctor.check_registry import Check, CheckResult
from ottla.admin.doctor.finding import Evidence, Severity
from ottla.admin.facts.cluster_facts import Part, TopicInfo
from ottla.admin.operations.schedule_waits import is_schedule, running_groups, unserved_schedules
from ottla.schedule.headers import TOPIC_CONFIG, TOPIC_PREFIX, schedule_topic
from ottla.schedule.tasks.task_records import tasks_topic
from ottla.schedule.wheel import WHEEL


@Check(
    "SCH01",
    Severity.WARNING,
    "Delayed messages wait, and no scheduler runs",
    reads={Part.TOPICS, Part.OFFSETS, Part.GROUPS, Part.SCHEDULES},
    why="A delayed message waits in its schedule's topic until a scheduler delivers it. Without a scheduler, no"
    " message is lost, but all are late.",
    fix="ottla schedule run --name NAME, or App(scheduler=True) in a service",
)
def no_scheduler(seen: Evidence) -> Iterator[CheckResult]:
    for topic in unserved_schedules(seen.facts):
        if topic.waiting == 0:  # what it has is delivered or cancelled
            continue
        records = sum(partition.records or 0 for partition in topic.partitions)
        waiting = f"up to {records:,}" if topic.waiting is None else f"{topic.waiting:,}"
        name = topic.name.removeprefix(TOPIC_PREFIX)
        yield CheckResult(
            subject=topic.name,
            message=f"{waiting} delayed messages wait in {topic.name}, and group {topic.name} has no member: no"
            " scheduler delivers them",
            fix=f"ottla schedule run --name {name}, or App(scheduler={name!r}) in a service",
        )


@Check(
    "SCH02",
    Severity.ERROR,
    "A schedule's topic would lose delayed messages",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS},
    why="Retention and compaction may delete messages before they are due. `deliver_after` counts from the broker's"
    " timestamp. Partitions are the slots of the schedule: with another number of partitions, senders and"
    " schedulers disagree. A scheduler refuses such a topic when it starts.",
    fix="ottla topics set TOPIC NAME=VALUE",
)
def loses_messages(seen: Evidence) -> Iterator[CheckResult]:
    for topic in _schedules(seen):
        for name, wanted in TOPIC_CONFIG.items():
            setting = topic.settings.get(name)
            if setting is not None and setting.value not in (None, wanted):
                yield CheckResult(
                    subject=f"{topic.name} {name}",
                    message=f"{topic.name} has {name}={setting.value}, and delayed messages need {wanted}",
                    fix=f"ottla topics set {topic.name} {name}={wanted}",
                )
        if len(topic.partitions) != WHEEL.partitions:
            yield CheckResult(
                subject=topic.name,
                message=f"{topic.name} has {len(topic.partitions)} partitions, and the wheel has {WHEEL.partitions}"
                " slots",
                fix=f"deliver or cancel what waits, delete {topic.name}, and let a scheduler create it",
            )


@Check(
    "SCH03",
    Severity.WARNING,
    "Recurring tasks are declared, and no scheduler runs",
    reads={Part.TOPICS, Part.OFFSETS, Part.GROUPS},
    why="A scheduler dispatches the runs of recurring tasks. Without one, no task runs; what is made up for later, each"
    " task says (`missed=`).",
    fix="ottla schedule run --name NAME, or App(scheduler=True) in a service",
)
def no_scheduler_of_tasks(seen: Evidence) -> Iterator[CheckResult]:
    running = running_groups(seen.facts)
    for topic in seen.facts.topics:
        name = topic.name.removeprefix(tasks_topic(""))
        has_tasks = topic.name != name and any(each.records for each in topic.partitions)
        if has_tasks and schedule_topic(name) not in running:
            yield CheckResult(
                subject=topic.name,
                message=f"{topic.name} has recurring tasks, and group {schedule_topic(name)} has no member: no task"
                " runs",
                fix=f"ottla schedule run --name {name}, or App(scheduler={name!r}) in a service",
            )


def _schedules(seen: Evidence) -> Iterator[TopicInfo]:
    return (topic for topic in seen.facts.topics if is_schedule(topic.name))
