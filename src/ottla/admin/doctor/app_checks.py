"""MSG03, DLQ03, APP01: what a service declares, compared with the cluster it is to run on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.admin.doctor.check_registry import Check, CheckResult
from ottla.admin.doctor.finding import AppDeclaration, AppTopic, Evidence, QueueDeclaration, Severity
from ottla.admin.facts.cluster_facts import Part, SettingInfo, whole_number

if TYPE_CHECKING:
    from ottla.app import App

_LIMIT = "share.delivery.count.limit"
_RESET = "share.auto.offset.reset"
_LOCKS = "share.partition.max.record.locks"

_CREATE = "ottla topics create {name}"


def declaration_of(app: App, *, processes: int = 1) -> AppDeclaration:
    """Return the declarations of an `App`, without running it. `processes` is the number of its processes that will run
    at the same time."""
    from ottla.app.app import declarations_of
    from ottla.app.declaration.group_settings import group_settings
    from ottla.config import consumer_settings, producer_settings
    from ottla.config.assignors import offered

    groups: dict[str, tuple[str, ...]] = {}
    assignors: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    concurrency: dict[str, int] = {}
    topics: dict[tuple[str, str, str], AppTopic] = {}

    def use(topic: str, what: str, of: str = "") -> None:
        topics[topic, what, of] = AppTopic(topic=topic, use=what, of=of)

    parts = declarations_of(app)
    for group, routes in parts.routes_by_group().items():
        groups[group] = tuple(sorted({topic for route in routes for topic in route.subscribed}))
        if routes[0].queue is None:
            settings = group_settings(group, routes, app.bootstrap_servers, app.settings)
            assignors[group] = (offered(settings, on_asyncio=False), offered(settings, on_asyncio=True))
        concurrency[group] = max(route.concurrency for route in routes)
        for route in routes:
            for topic in sorted(route.topics):
                use(topic, "reads")
                if route.dead_letter_topic is not None:
                    use(route.dead_letter_topic, "dead letters", topic)
            for origin, names in route.retry_chains.items():
                for name in names:
                    use(name, "retries", origin)
    read = {topic for each in groups.values() for topic in each}
    for topic in parts.topics_to_create(app.create_topics):
        if topic not in read and topic not in parts.dead_letter_topics:
            use(topic, "writes")
    return AppDeclaration(
        name=app.group,
        groups=groups,
        concurrency=concurrency,
        topics=tuple(topics.values()),
        consumer=dict(consumer_settings(app.bootstrap_servers, group_id=app.group, settings=app.settings)),
        producer=dict(producer_settings(app.bootstrap_servers, settings=app.producer_settings)),
        processes=processes,
        assignors=assignors,
        queues={
            route.group: QueueDeclaration(max_attempts=route.queue.max_attempts, start=route.queue.start)
            for route in parts.queues
            if route.queue is not None
        },
    )


@Check(
    "MSG03",
    Severity.ERROR,
    "A producer sends more than its topic takes",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS},
    needs_app=True,
    why="A broker refuses a batch above the topic's limit as a whole. With batch.size above the limit, this happens"
    " only under load: the client splits the batch and sends it again, and its logs do not say why it is slow.",
    fix="max.request.size and batch.size of the producer, not above max.message.bytes of the topic",
)
def sends_too_much(seen: Evidence) -> Iterator[CheckResult]:
    if seen.app is None:
        return
    for used in seen.app.topics:
        topic = seen.facts.by_topic.get(used.topic)
        limit = None if topic is None else topic.number("max.message.bytes")
        if limit is None or used.use != "writes":
            continue
        for name in ("max.request.size", "batch.size"):
            value = seen.app.producer.get(name)
            if isinstance(value, int) and value > limit:
                yield CheckResult(
                    subject=used.topic,
                    message=f"{seen.app.name}: {name} is {value:,} and {used.topic} takes {limit:,} bytes"
                    " (max.message.bytes): the broker refuses whole batches",
                    fix=f"{name}={limit} in the service's producer_settings, or ottla topics set {used.topic}"
                    f" max.message.bytes={value}",
                )


@Check(
    "DLQ03",
    Severity.ERROR,
    "A declared dead letter or retry topic is missing",
    reads={Part.TOPICS},
    needs_app=True,
    why="The topic is written to when a record fails, perhaps months after the service started. An Ottla service"
    " checks before it starts, and does not start without the topic.",
    fix=_CREATE.format(name="TOPIC"),
)
def missing_letters(seen: Evidence) -> Iterator[CheckResult]:
    if seen.app is None:
        return
    for used in seen.app.topics:
        if used.use not in ("dead letters", "retries"):
            continue
        topic, origin = seen.facts.by_topic.get(used.topic), seen.facts.by_topic.get(used.of)
        if topic is None:
            partitions = f" -p {len(origin.partitions)}" if origin is not None and used.use == "retries" else ""
            yield CheckResult(
                subject=used.topic,
                message=f"{seen.app.name}: {used.topic} ({used.use} of {used.of}) does not exist",
                fix=_CREATE.format(name=used.topic) + partitions,
            )
        elif used.use == "retries" and origin is not None and len(topic.partitions) < len(origin.partitions):
            yield CheckResult(
                subject=used.topic,
                message=f"{seen.app.name}: {used.topic} has {len(topic.partitions)} partitions and {used.of}"
                f" {len(origin.partitions)}: a record keeps its partition on its way",
                fix=f"ottla topics add-partitions {used.topic} {len(origin.partitions)}",
            )


@Check(
    "APP01",
    Severity.WARNING,
    "A service and its cluster do not fit",
    reads={Part.TOPICS, Part.GROUPS, Part.GROUP_MEMBERS, Part.GROUP_SETTINGS, Part.BROKER_SETTINGS},
    needs_app=True,
    why="The declaration shows problems before the service runs: missing topics, more processes than partitions, or a"
    " group protocol that the cluster does not support.",
    fix=_CREATE.format(name="TOPIC"),
)
def fits(seen: Evidence) -> Iterator[CheckResult]:
    app = seen.app
    if app is None:
        return
    for used in app.topics:
        if used.use in ("reads", "writes") and used.topic not in seen.facts.by_topic:
            yield CheckResult(
                subject=used.topic,
                severity=Severity.ERROR,
                message=f"{app.name}: {used.topic}, which it {used.use}, does not exist",
                fix=_CREATE.format(name=used.topic),
            )
    for group, topics in app.groups.items():
        if group in app.queues:
            yield from _share_group(seen, app, group)
            continue
        there = [seen.facts.by_topic[topic] for topic in topics if topic in seen.facts.by_topic]
        partitions = sum(len(topic.partitions) for topic in there)
        if there and app.processes > partitions:
            yield CheckResult(
                subject=f"group {group}",
                message=f"{app.name}: {app.processes} processes of group {group} share {partitions} partitions:"
                f" {app.processes - partitions} have nothing to do",
                fix=f"at most {partitions} processes, or more partitions",
            )
        yield from _protocol(seen, app, group)


def _share_group(seen: Evidence, app: AppDeclaration, group: str) -> Iterator[CheckResult]:
    existing = next((each for each in seen.facts.groups if each.group_id == group), None)
    if existing is not None and existing.type not in ("Share", ""):
        yield CheckResult(
            subject=f"group {group}",
            severity=Severity.ERROR,
            message=f"{app.name}: group {group} is a {existing.type.lower()} group, and a queue needs a share group"
            " (INCONSISTENT_GROUP_PROTOCOL)",
            fix=f"group={group + '.queue'!r} in @app.queue",
        )
    elif existing is not None and existing.settings is not None:
        yield from _settings_of_queue(seen, app, group, existing.settings)


def _settings_of_queue(
    seen: Evidence, app: AppDeclaration, group: str, settings: Mapping[str, SettingInfo]
) -> Iterator[CheckResult]:
    """Yield how the settings of a share group that exists do not fit its queue."""
    queue = app.queues[group]
    limit, start = whole_number(settings.get(_LIMIT)), settings.get(_RESET)
    if limit is not None and queue.max_attempts >= limit:
        is_chosen = settings[_LIMIT].source == "DYNAMIC_GROUP_CONFIG"
        yield CheckResult(
            subject=f"group {group}",
            severity=Severity.ERROR if is_chosen else Severity.WARNING,
            message=f"{app.name}: max_attempts={queue.max_attempts} of the queue of group {group} is not below"
            f" {_LIMIT}={limit}: the broker gives a record up first, without a dead letter"
            + (
                "; the service does not start"
                if is_chosen
                else "; the service raises the limit at its start, if it may"
            ),
            fix=f"max_attempts={limit - 1} in @app.queue, or {_LIMIT}={queue.max_attempts + 1} of the group",
        )
    if start is not None and start.value == "latest" and queue.start == "earliest":
        yield CheckResult(
            subject=f"group {group}",
            message=f"{app.name}: the queue declares start='earliest', and group {group} has {_RESET}=latest:"
            " on a partition that it has not read yet it skips the records that are there",
            fix=f"{_RESET}=earliest of the group, or start='latest' in @app.queue",
        )
    most = whole_number(settings.get(_LOCKS))
    partitions = sum(
        len(seen.facts.by_topic[topic].partitions) for topic in app.groups[group] if topic in seen.facts.by_topic
    )
    at_once = app.concurrency[group] * app.processes
    if most is not None and partitions and at_once > most * partitions:
        yield CheckResult(
            subject=f"group {group}",
            message=f"{app.name}: {app.processes} processes of group {group} handle {at_once:,} jobs at the same time,"
            f" and {partitions} partitions have at most {most * partitions:,} in flight ({_LOCKS})",
            fix=f"a lower concurrency=, more partitions, or a higher {_LOCKS} of the group",
        )


def _protocol(seen: Evidence, app: AppDeclaration, group: str) -> Iterator[CheckResult]:
    wanted = str(app.consumer.get("group.protocol", "classic")).lower()
    existing = next((each for each in seen.facts.groups if each.group_id == group), None)
    served = [
        [name.strip() for name in (each.value or "").split(",")]
        for each in seen.broker_setting("group.coordinator.rebalance.protocols").values()
    ]
    if any(wanted not in names for names in served):
        yield CheckResult(
            subject=f"group {group}",
            severity=Severity.ERROR,
            message=f"{app.name}: group.protocol is {wanted}, and the cluster serves {', '.join(served[0])}",
            fix="group.protocol=classic in the service, or another group.coordinator.rebalance.protocols",
        )
    in_threads, on_asyncio = app.assignors.get(group, ((), ()))
    is_classic = existing is not None and existing.type == "Classic" and bool(existing.members)
    if existing is not None and is_classic and in_threads and existing.assignor not in ("", *in_threads, *on_asyncio):
        offers = ", ".join(dict.fromkeys((*in_threads, *on_asyncio)))
        yield CheckResult(
            subject=f"group {group}",
            severity=Severity.ERROR,
            message=f"{app.name}: its members offer the assignor {offers}, and those of group {group} that run"
            f" ({len(existing.members or ())}) use {existing.assignor}: new ones are refused"
            " (INCONSISTENT_GROUP_PROTOCOL)",
            fix="stop all members before the new version starts, or two rolling deploys: first group.protocol=consumer"
            " (in threads) or both assignors in partition.assignment.strategy (on asyncio), then the change",
        )
    if existing is not None and existing.type == "Share":
        yield CheckResult(
            subject=f"group {group}",
            severity=Severity.ERROR,
            message=f"{app.name}: group {group} is a share group, which a consumer cannot join",
            fix="another group id",
        )
