"""Create and delete topics, and wait until the cluster says so. Small on purpose: `ottla.admin` has the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from ottla.config import Settings
from ottla.errors import BrokerUnavailable, ConfigError, UnknownTopic
from ottla.sync.client.client_errors import error_of
from ottla.sync.client.guarded import AdminClient
from ottla.sync.client.reachable import brokers_of, metadata_of
from ottla.tokens.confluent import with_tokens
from ottla.wire_client.net.reachability import addresses_of, require_reachable


def create_topic(
    bootstrap_servers: str,
    name: str,
    *,
    partitions: int = 1,
    replication_factor: int = 1,
    config: Mapping[str, object] | None = None,
    exist_ok: bool = False,
    timeout_s: float = 10.0,
    settings: Mapping[str, str] | None = None,
) -> bool:
    """Create a topic. False when it existed already and `exist_ok` says that is fine. `settings`: of the client."""
    new = NewTopic(
        name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        config={setting: _text(value) for setting, value in (config or {}).items()},
    )
    admin = _admin(bootstrap_servers, timeout_s, settings)
    try:
        _result(admin.create_topics([new], request_timeout=timeout_s), timeout_s)
    except KafkaException as error:
        problem: KafkaError = error.args[0]
        if problem.code() == KafkaError.TOPIC_ALREADY_EXISTS and exist_ok:
            return False
        raise ConfigError(f"topic {name} was not created: {problem.str()}") from error
    except TimeoutError:
        raise BrokerUnavailable(
            f"topic {name} was not created: {bootstrap_servers} did not answer in {timeout_s} s"
        ) from None
    return True


def delete_topics(
    bootstrap_servers: str,
    names: Iterable[str],
    *,
    timeout_s: float = 10.0,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Delete topics. One that does not exist is `UnknownTopic`; the others are deleted all the same."""
    wanted = list(names)
    if not wanted:
        return
    admin = _admin(bootstrap_servers, timeout_s, settings)
    missing = []
    for name, future in admin.delete_topics(wanted, request_timeout=timeout_s).items():
        try:
            future.result(timeout_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            missing.append(name)
    if missing:
        raise UnknownTopic(f"no such topic to delete: {', '.join(missing)}")


def topic_shapes(settings: Settings, *, timeout_s: float = 10.0) -> dict[str, tuple[int, int]]:
    """Each topic that the client may see, with its partitions and replicas."""
    admin = AdminClient({**settings.to_confluent(), "log_level": 0})
    try:
        found = metadata_of(admin, timeout_s).topics
    except KafkaException as error:
        raise error_of(error.args[0], settings["bootstrap.servers"]) from error
    return {
        name: (len(topic.partitions), max((len(each.replicas) for each in topic.partitions.values()), default=0))
        for name, topic in found.items()
    }


def check_reachable(
    bootstrap_servers: str, *, timeout_s: float = 5.0, settings: Mapping[str, str] | None = None
) -> int:
    """The number of brokers that the cluster at this address has. Raises `BrokerUnavailable` when none answers, and
    `AuthenticationError` or `ConfigError` when something answers that does not take these settings."""
    require_reachable(bootstrap_servers, settings or {}, timeout_s=timeout_s)
    try:
        return len(brokers_of(_admin(bootstrap_servers, timeout_s, settings), timeout_s))
    except KafkaException as error:
        raise BrokerUnavailable(
            f"no Kafka broker answered at {bootstrap_servers} within {timeout_s} s ({error.args[0].str()})"
        ) from error


def _admin(bootstrap_servers: str, timeout_s: float, settings: Mapping[str, str] | None = None) -> AdminClient:
    if settings:  # a login is what goes wrong, and librdkafka tries a wrong one for ever
        require_reachable(bootstrap_servers, settings, timeout_s=timeout_s)
    addresses_of(bootstrap_servers)
    return AdminClient(
        {
            "bootstrap.servers": bootstrap_servers,
            "socket.timeout.ms": max(10, int(timeout_s * 1000)),
            # librdkafka logs each refused connection to stderr; the error that is raised in the end says it once.
            "log_level": 0,
            **with_tokens(settings or {}),
        }
    )


def _result(futures: dict[str, Future[Any]], timeout_s: float) -> None:
    for future in futures.values():
        future.result(timeout_s)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
