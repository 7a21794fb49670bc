"""Declares recurring tasks to their schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.admin import Admin, PartlyDone
from ottla.admin.facts.cluster_facts import TopicInfo
from ottla.admin.operations.topic_changes import create_missing_topics
from ottla.config import TopicSpec, admin_settings
from ottla.errors import ConfigError, InputError, OttlaError, UnknownTopic
from ottla.schedule.tasks.reading import read_tasks
from ottla.schedule.tasks.task_records import (
    TOPIC_CONFIG,
    TOPIC_PREFIX,
    Definition,
    State,
    definition_record,
    tasks_topic,
)
from ottla.schedule.topics import tasks_spec
from ottla.sync.produce.producer import Producer
from ottla.telemetry import log_event
from ottla.wire_client.client_settings import connection_settings
from ottla.wire_client.cluster.cluster_client import Cluster
from ottla.wire_client.errors import BrokerRefused
from ottla.wire_client.ranges import Isolation

_ADMIN_S: Final = 30.0


def register_tasks(
    bootstrap_servers: Any, schedule: str, definitions: Sequence[Definition], *, settings: Mapping[str, Any]
) -> None:
    """Write the definitions, and create the topic if it is missing. The owner of the tasks applies those that are new,
    or changed.

    Raises `ConfigError` where the topic is missing and may not be created, or would lose tasks, and the errors of
    `Producer`.
    """
    topic = tasks_topic(schedule)
    own = admin_settings(bootstrap_servers, settings=settings)
    with Admin(settings=own, timeout_s=_ADMIN_S) as admin:
        _ensure(admin, topic, servers=own["bootstrap.servers"])
    with Producer(settings=own) as producer:
        deliveries = [producer.send(topic, value, key=key) for key, value in map(definition_record, definitions)]
        for delivery in deliveries:
            delivery.result()
    wire = connection_settings(own, isolation=Isolation.READ_COMMITTED, client_id="ottla-tasks")
    try:
        with Cluster(wire) as cluster:
            _log_differences(definitions, read_tasks(cluster, topic), topic)
    except OttlaError:
        pass  # the tasks are declared: only the log has to do without the differences


def _log_differences(definitions: Sequence[Definition], there: Mapping[str, State], topic: str) -> None:
    """Log which tasks have a later declaration, and which of the same groups are not declared here."""
    declared = {each.id: each for each in definitions}
    groups = {id.rpartition("/")[0] for id in declared}
    for id, state in there.items():
        own = declared.get(id)
        if own is not None and state.definition.version > own.version:
            found = ".".join(map(str, state.definition.version))
            version = ".".join(map(str, own.version))
            log_event("task_outdated", "warning", {"task": id, "version": version, "found_version": found})
        elif own is None and id.rpartition("/")[0] in groups:
            hint = f"ottla schedule remove {id} --name {topic.removeprefix(TOPIC_PREFIX)}"
            log_event("task_undeclared", "warning", {"task": id, "hint": hint})


def _ensure(admin: Admin, topic: str, *, servers: str) -> None:
    """Check the topic, or create it. Only the one who creates it needs the permission for that."""
    try:
        (found,) = admin.describe_topics(topic, parts=())
    except UnknownTopic:
        create_topics(admin, {topic: tasks_spec(brokers=len(admin.facts(()).brokers))}, servers=servers)
    except InputError as error:
        raise ConfigError(
            f"{error}: an app with recurring tasks needs DESCRIBE and WRITE on it, and CREATE where it is missing"
        ) from error
    else:
        _check(admin, found)


def create_topics(admin: Admin, specs: Mapping[str, TopicSpec], *, servers: str) -> None:
    """Create the topics of a schedule that are missing, and log them. Raises `ConfigError` if the cluster refuses."""
    try:
        created = admin.carry_out(create_missing_topics(specs))
    except (BrokerRefused, PartlyDone) as error:
        raise ConfigError(f"{next(iter(specs))} was not created at {servers}: {error}") from error
    for name in created:
        log_event("topic_created", "info", {"topic": name})


def _check(admin: Admin, found: TopicInfo) -> None:
    topic = found.name
    if len(found.partitions) != 1:
        raise ConfigError(f"{topic}: found {len(found.partitions)} partitions, wanted 1: it has one owner")
    try:
        settings = admin.topic_settings(topic)
    except BrokerRefused:
        return  # DESCRIBE_CONFIGS is not allowed
    for name in ("cleanup.policy", "message.timestamp.type"):
        value, wanted = settings[name].value, TOPIC_CONFIG[name]
        if value not in (None, wanted):
            raise ConfigError(f"{topic}: found {name}={value}, wanted {wanted}: recurring tasks would be lost or late")
