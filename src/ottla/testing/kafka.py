"""The Kafka that tests run against: embedded in the process, in a container, or wherever you point to.

The same test runs on all three; `--kafka` chooses. What differs is only who starts and stops it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from ottla.errors import BrokerUnavailable, ConfigError, UnknownTopic
from ottla.records import Headers, Record

if TYPE_CHECKING:
    from broker_embedded.cluster import EmbeddedCluster, Security
    from broker_embedded.cluster.time import VirtualClock
    from ottla.browse.topic_reader import TopicReader

EMBEDDED: Final = "embedded"
CONTAINER: Final = "container"
CONTAINER_IMAGE: Final = "confluentinc/cp-kafka:7.9.0"

_ADDRESS: Final = re.compile(r"[^\s:,]+:\d{1,5}(,[^\s:,]+:\d{1,5})*|\[[0-9a-fA-F:]+\]:\d{1,5}")
_TOPIC_NAME_LIMIT: Final = 249
_NOT_IN_TOPIC_NAMES: Final = re.compile(r"[^a-zA-Z0-9._-]+")


class Kafka:
    """A running Kafka for tests. `cluster` is the embedded cluster, for faults and time; None for another broker.
    `settings` holds what clients need beside the address: empty unless the cluster is secure (`ottla.testing.secure`).
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        kind: str,
        cluster: EmbeddedCluster | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.kind = kind
        """`embedded`, `container`, or `external` for one that was running already."""
        self.cluster = cluster
        self.settings = dict(settings or {})
        self._numbers = itertools.count(1)
        self._created: set[str] = set()

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic and return its name.

        `ConfigError` if it exists: one that an earlier test made is still there, unless that test used `clean_kafka` or
        `fresh_kafka`.
        """
        from ottla.testing.topics import create_topic

        create_topic(
            self.bootstrap_servers,
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            config=config,
            settings=self.settings,
        )
        self._created.add(name)
        return name

    async def create_topic_async(self, name: str, **options: Any) -> str:
        """Create a topic as `create_topic` does, for asyncio tests: the event loop runs meanwhile."""
        return await asyncio.to_thread(self.create_topic, name, **options)

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics. Those that are gone already are not missed."""
        from ottla.testing.topics import delete_topics

        with contextlib.suppress(UnknownTopic):
            delete_topics(self.bootstrap_servers, names, settings=self.settings)

    @contextlib.contextmanager
    def cleaned(self) -> Iterator[Self]:
        """Delete, when the block ends, the topics and groups that have come while it lasted.

        Of a Kafka that was running already (`kind` is `external`) only the topics that `create_topic` made are deleted:
        others may have made theirs meanwhile. Raises `GroupInUse` if an app still runs.
        """
        from ottla.admin import Admin

        with Admin(self.bootstrap_servers, settings=self.settings) as admin:
            if self.kind == "external":
                created, self._created = self._created, set()
                try:
                    yield self
                finally:
                    self.delete_topics(self._created)
                    self._created = created
                return
            topics = {topic.name for topic in admin.list_topics()}
            groups = {group.group_id for group in admin.list_groups()}
            try:
                yield self
            finally:
                admin.delete_groups(*({group.group_id for group in admin.list_groups()} - groups))
                admin.delete_topics(*({topic.name for topic in admin.list_topics()} - topics))

    def fresh_name(self, hint: str) -> str:
        """Return an unused topic or group name that begins with `hint`. Other test runs may share the cluster."""
        ending = f"-{next(self._numbers)}-{secrets.token_hex(3)}"
        return _NOT_IN_TOPIC_NAMES.sub("-", hint).strip("-.")[: _TOPIC_NAME_LIMIT - len(ending)] + ending

    def produce(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        value: Any = None,
        keys: Iterable[Any] | Callable[[Any], Any] | None = None,
        key: Any = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> int:
        """Send values and return how many, once every one is acknowledged.

        `value` and `key` are serdes (`Json(Order)`, `str`); without one, bytes, text and integers are sent as
        themselves and anything else as JSON. `keys` gives each value its key: one per value, or a function of it.
        """
        from ottla.browse.topic_writer import write_all

        return write_all(
            self.bootstrap_servers,
            topic,
            values,
            value=value,
            keys=keys,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
            settings=self.settings,
        )

    async def produce_async(self, topic: str, values: Iterable[Any], **options: Any) -> int:
        """Produce as `produce` does, for asyncio tests: the event loop, and an app on it, run meanwhile."""
        return await asyncio.to_thread(self.produce, topic, values, **options)

    def reader(self, topic: str, *, key: Any = None, value: Any = None, from_latest: bool = False) -> TopicReader:
        """Return a reader of the topic without a group. A context manager: close it."""
        from ottla.browse.topic_reader import TopicReader

        return TopicReader(
            self.bootstrap_servers, topic, key=key, value=value, from_latest=from_latest, settings=self.settings
        )

    def consume_all(
        self, topic: str, *, key: Any = None, value: Any = None, at_least: int = 0, timeout_s: float = 10.0
    ) -> list[Record[Any]]:
        """Return every record of the topic, by partition and offset, once there are `at_least` so many. With `at_least`
        the topic itself is waited for too: the first dead letter may create it."""
        deadline = time.monotonic() + timeout_s
        with self._reader_of(topic, key, value, deadline if at_least else 0.0) as reader:
            records = reader.take(at_least, timeout_s=deadline - time.monotonic()) if at_least else []
            records += reader.read_to_end(timeout_s=max(1.0, deadline - time.monotonic()))
        return sorted(records, key=lambda record: (record.partition, record.offset))

    async def consume_all_async(self, topic: str, **options: Any) -> list[Record[Any]]:
        """Consume as `consume_all` does, for asyncio tests: the event loop, and an app on it, run meanwhile."""
        return await asyncio.to_thread(self.consume_all, topic, **options)

    def _reader_of(self, topic: str, key: Any, value: Any, deadline: float) -> TopicReader:
        while True:
            try:
                return self.reader(topic, key=key, value=value)
            except UnknownTopic:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.02)

    def __repr__(self) -> str:
        return f"Kafka({self.kind}, {self.bootstrap_servers})"


def check_choice(choice: str) -> None:
    """Check the value of `--kafka`. Raises `ConfigError` with the possible values."""
    if choice == CONTAINER:
        if importlib.util.find_spec("testcontainers") is None:
            raise ConfigError("--kafka=container needs testcontainers: pip install 'ottla[containers]'")
        return
    if choice != EMBEDDED and not _ADDRESS.fullmatch(choice):
        raise ConfigError(f"--kafka={choice}: give 'embedded', 'container' or HOST:PORT of a running Kafka")


def settings_of_clients(servers: str, pairs: Iterable[str]) -> dict[str, str]:
    """Return the settings of clients of `servers`, from `NAME=VALUE` texts and from OTTLA_CLIENT_* in the
    environment."""
    from ottla.config import admin_settings
    from ottla.config.pairs import parse_pairs

    given = parse_pairs(pairs, wanted="NAME=VALUE", example="security.protocol=SASL_SSL", option="--kafka-set")
    chosen = admin_settings(servers, settings=given)
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in chosen.items()
        if chosen.was_chosen(name) and name not in ("bootstrap.servers", "client.id")
    }


@contextlib.contextmanager
def running_kafka(
    choice: str,
    *,
    brokers: int = 1,
    config: Mapping[str, object] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Kafka]:
    """Start the chosen Kafka, or connect to it, for as long as the block lasts. `settings`: what clients need to
    connect to one that is running.

    Raises `BrokerUnavailable` when the chosen Kafka cannot be reached.
    """
    check_choice(choice)
    if choice == EMBEDDED:
        with embedded_cluster(brokers, config or {}) as cluster:
            yield Kafka(cluster.bootstrap_servers, kind=EMBEDDED, cluster=cluster)
    elif choice == CONTAINER:
        with _container(config or {}) as bootstrap_servers:
            yield Kafka(bootstrap_servers, kind=CONTAINER)
    else:
        from ottla.testing.topics import check_reachable

        try:
            check_reachable(choice, settings=settings)
        except BrokerUnavailable as error:
            raise BrokerUnavailable(
                f"--kafka={choice}: {error}. Is it running, and is this its advertised address?"
            ) from error
        yield Kafka(choice, kind="external", settings=settings)


def embedded_cluster(
    brokers: int, config: Mapping[str, object], security: Security | None = None, clock: VirtualClock | None = None
) -> EmbeddedCluster:
    """Return an embedded cluster with settings that suit tests: a group does not wait for members that may still
    join."""
    from broker_embedded.cluster import EmbeddedCluster

    settings = {"group.initial.rebalance.delay.ms": 0, **config}
    return EmbeddedCluster(brokers=brokers, config=settings, security=security, clock=clock)


@contextlib.contextmanager
def _container(config: Mapping[str, object]) -> Iterator[str]:
    try:
        from testcontainers.community.kafka import KafkaContainer
    except ModuleNotFoundError:  # before 4.15
        from testcontainers.kafka import KafkaContainer

    with contextlib.ExitStack() as stack:
        try:
            container = KafkaContainer(CONTAINER_IMAGE).with_kraft()
            for name, value in {"group.initial.rebalance.delay.ms": 0, **config}.items():
                container.with_env(f"KAFKA_{name.upper().replace('.', '_')}", str(value))
            stack.enter_context(container)
        except Exception as error:  # whatever the engine's client raises: none runs, no image, no right to use it
            raise BrokerUnavailable(
                f"--kafka=container: {CONTAINER_IMAGE} did not start: {type(error).__name__}: {error}. Does a "
                "container engine run here, and may you use it (`docker info`)? --kafka=embedded needs none"
            ) from error
        yield container.get_bootstrap_server()
