"""Creates the topics that a service declares, where they are missing."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Literal

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from ottla.config import Settings, for_admin
from ottla.config.topic_specs import ANSWER_S, CLUSTERS_CHOICE, TopicSpec
from ottla.errors import BrokerUnavailable, ConfigError
from ottla.sync.client.client_errors import error_of
from ottla.sync.client.guarded import AdminClient
from ottla.sync.client.reachable import metadata_of
from ottla.telemetry import log_event


def ensure_topics(settings: Settings, declared: Mapping[str, TopicSpec]) -> dict[str, int | None]:
    """Create those that are missing. Returns each name with the partitions it had before, None if it is new.

    A topic that exists stays as it is. Raises `ConfigError` when the cluster does not create one.
    """
    servers = settings["bootstrap.servers"]
    admin = AdminClient({**for_admin(settings).to_confluent(), "log_level": 0})
    before: dict[str, int | None] = dict.fromkeys(declared)
    try:
        found = metadata_of(admin, ANSWER_S).topics
        before |= {name: len(found[name].partitions) for name in declared if name in found and not found[name].error}
    except KafkaException as error:
        raise error_of(error.args[0], servers) from error
    missing = {name: spec for name, spec in declared.items() if before[name] is None}
    create_topics(admin, missing, servers=servers, timeout_s=ANSWER_S)
    return before


def create_topics(admin: AdminClient, declared: Mapping[str, TopicSpec], *, servers: str, timeout_s: float) -> None:
    """Create these topics. One that exists stays as it is. Raises `ConfigError` when the cluster does not create one,
    and `BrokerUnavailable` when it does not say so in time."""
    new = [
        NewTopic(
            name,
            num_partitions=spec.partitions or CLUSTERS_CHOICE,
            replication_factor=spec.replication_factor or CLUSTERS_CHOICE,
            config=spec.config_texts,
        )
        for name, spec in declared.items()
    ]
    try:
        futures = admin.create_topics(new, request_timeout=timeout_s) if new else {}
    except KafkaException as error:
        raise error_of(error.args[0], servers) from error
    await_created(futures, servers=servers, timeout_s=timeout_s)


def await_created(
    futures: Mapping[str, Future[None]],
    *,
    servers: str,
    timeout_s: float,
    what: Literal["topic", "retry topic"] = "topic",
) -> None:
    """Wait until the cluster has created each topic, and log it. A topic that another member created meanwhile is
    unchanged. Raises as `create_topics` does."""
    event = "topic_created" if what == "topic" else "retry_topic_created"
    for name, future in futures.items():
        try:
            future.result(timeout_s)
        except KafkaException as error:
            problem: KafkaError = error.args[0]
            if problem.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                said = f"{what} {name} was not created at {servers}: {problem.str()}; create it yourself"
                raise ConfigError(said) from error
        except TimeoutError:
            raise BrokerUnavailable(f"{what} {name}: {servers} did not create it within {timeout_s:g} s") from None
        else:
            log_event(event, "info", {"topic": name})
