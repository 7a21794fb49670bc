"""Creates the topics that a service declares, where they are missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from ottla.aio.client.client_errors import error_of
from ottla.aio.client.reachable import start_client
from ottla.config import Settings, for_admin
from ottla.config.topic_specs import ANSWER_S, CLUSTERS_CHOICE, TopicSpec
from ottla.errors import ConfigError
from ottla.telemetry import log_event


async def ensure_topics(settings: Settings, declared: Mapping[str, TopicSpec]) -> dict[str, int | None]:
    """Create those that are missing. Returns each name with the partitions it had before, None if it is new.

    A topic that exists stays as it is. Raises `ConfigError` when the cluster does not create one.
    """
    servers = settings["bootstrap.servers"]
    admin = AIOKafkaAdminClient(**for_admin(settings).to_aiokafka())
    before: dict[str, int | None] = dict.fromkeys(declared)
    try:
        await start_client(admin)
        found = {topic["topic"]: topic for topic in await admin.describe_topics()}
        before |= {name: len(found[name]["partitions"]) for name in declared if name in found}
        missing = {name: spec for name, spec in declared.items() if before[name] is None}
        await create_topics(admin, missing, servers=servers, timeout_s=ANSWER_S)
    except KafkaError as error:
        raise error_of(error, servers) from error
    finally:
        await admin.close()
    return before


async def create_topics(
    admin: AIOKafkaAdminClient, declared: Mapping[str, TopicSpec], *, servers: str, timeout_s: float
) -> None:
    """Create these topics. One that exists stays as it is. Raises `ConfigError` when the cluster does not create one,
    and aiokafka's errors."""
    for name, spec in declared.items():
        answer = await admin.create_topics([_new_topic(name, spec)], timeout_ms=round(timeout_s * 1_000))
        check_created(name, answer, servers)


def _new_topic(name: str, spec: TopicSpec) -> NewTopic:
    partitions = spec.partitions or CLUSTERS_CHOICE
    factor = spec.replication_factor or CLUSTERS_CHOICE
    # aiokafka lets the cluster choose only where replicas are assigned, if only none at all.
    assignments: dict[int, list[int]] | None = {} if CLUSTERS_CHOICE in (partitions, factor) else None
    return NewTopic(name, partitions, factor, replica_assignments=assignments, topic_configs=spec.config_texts)


def check_created(
    name: str, response: object, servers: str, *, what: Literal["topic", "retry topic"] = "topic"
) -> None:
    """Log that the cluster created the topic. A topic that another member created meanwhile is unchanged. Raises
    `ConfigError` if the cluster refused."""
    event = "topic_created" if what == "topic" else "retry_topic_created"
    for _, code, *rest in getattr(response, "topic_errors", None) or getattr(response, "topic_error_codes", None) or ():
        error = for_code(code)
        if error is TopicAlreadyExistsError:
            return
        if code:
            detail = rest[0] if rest and rest[0] else error.__name__
            raise ConfigError(f"{what} {name} was not created at {servers}: {detail}; create it yourself")
    log_event(event, "info", {"topic": name})
