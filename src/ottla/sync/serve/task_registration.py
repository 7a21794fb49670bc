"""Declares recurring tasks to their schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.admin import Admin, PartlyDone
from ottla.admin.operations.topic_changes import create_missing_topics
from ottla.config import admin_settings
from ottla.errors import ConfigError
from ottla.schedule.tasks.task_records import Definition, definition_record, tasks_topic
from ottla.schedule.topics import tasks_spec
from ottla.sync.produce.producer import Producer
from ottla.telemetry import log_event
from ottla.wire_client.errors import BrokerRefused

_ADMIN_S: Final = 30.0


def register_tasks(
    bootstrap_servers: Any, schedule: str, definitions: Sequence[Definition], *, settings: Mapping[str, Any]
) -> None:
    """Write the definitions, and create the topic if it is missing. The owner of the tasks applies those that are new,
    or changed.

    Raises `ConfigError` where the topic is missing and may not be created, and the errors of `Producer`.
    """
    topic = tasks_topic(schedule)
    own = admin_settings(bootstrap_servers, settings=settings)
    with Admin(settings=own, timeout_s=_ADMIN_S) as admin:
        _ensure(admin, topic)
    with Producer(settings=own) as producer:
        deliveries = [producer.send(topic, value, key=key) for key, value in map(definition_record, definitions)]
        for delivery in deliveries:
            delivery.result()


def _ensure(admin: Admin, topic: str) -> None:
    facts = admin.facts(())
    try:
        created = admin.carry_out(create_missing_topics({topic: tasks_spec(brokers=len(facts.brokers))}))
    except (BrokerRefused, PartlyDone) as error:
        raise ConfigError(f"{topic} was not created: {error}") from error
    for name in created:
        log_event("topic_created", "info", {"topic": name})
