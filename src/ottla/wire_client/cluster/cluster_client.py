"""What a stateless client knows of a cluster: where the brokers are, who leads which partition, how far partitions go.

Connections are opened when first used and kept. Metadata is fetched when it is missing, too old, or when a broker says
that it no longer leads. Every loop that tries again ends at a deadline with an error that names the last reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from ottla.config.topic_presence import create_command
from ottla.errors import BrokerUnavailable, UnknownTopic
from ottla.patterns import Pattern
from ottla.retrying import try_again
from ottla.topics import TopicPartition, named_topics
from ottla.wire_client.client_settings import WireSettings
from ottla.wire_client.errors import BrokerRefused, Forbidden, PartitionUnavailable
from ottla.wire_client.net.broker_connection import Connection
from ottla_wire.facts import fact
from ottla_wire.protocol import ApiKey, ErrorCode

T = TypeVar("T")

EARLIEST = -2
"""In ListOffsets: the log start offset."""
LATEST = -1
"""In ListOffsets: the high watermark, or the last stable offset for a read_committed reader."""

LEADER_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Answers that mean: ask for the leader again, then ask the leader again."""


@dataclass(slots=True, kw_only=True)
class _Lent:
    """A connection with requests in flight, and its borrower. It is free when nothing is in flight."""

    connection: Connection
    borrower: object


@fact
class TopicMetadata:
    """One topic as a broker described it. `leaders[partition]` is a broker id, or -1 while there is none."""

    name: str
    """The topic's name."""
    topic_id: bytes | None
    leaders: Mapping[int, int]
    is_internal: bool
    """True for Kafka's own topics, as `__consumer_offsets`."""


class Cluster:
    """A client of one cluster. Not thread-safe: one per thread, and never across a fork."""

    def __init__(
        self,
        settings: WireSettings,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings = settings
        self.now = now
        self._sleep = sleep
        self._asked: dict[tuple[str, int], Connection] = {}
        self._lent: dict[tuple[str, int], list[_Lent]] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._fetched_at: dict[str, float] = {}
        self.coordinators: dict[tuple[int, str], tuple[str, int]] = {}
        """Last known coordinators, by their kind (`Coordinates`) and the coordinated name."""
        self.refusals: dict[str, ErrorCode] = {}
        """Why the last question about topics was not answered for some of them."""

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. The cluster can be used again; it will reconnect."""
        lent = [each.connection for several in self._lent.values() for each in several]
        for connection in [*self._asked.values(), *lent]:
            connection.close()
        self._asked.clear()
        self._lent.clear()
        self.coordinators.clear()

    # Topics and leaders

    def topic(self, name: str, *, missing_for_s: float = 0.0) -> TopicMetadata:
        """Return this topic, from memory if young enough. Raises `UnknownTopic` for one that is still missing after
        `missing_for_s` seconds: a new one is not known to all brokers at once."""
        known = self._topics.get(name)
        if known is not None and self.now() - self._fetched_at[name] < self.settings.metadata_max_age_ms / 1000:
            return known
        deadline = self.now() + missing_for_s
        while True:
            try:
                return self.until(lambda: self._require(name), what=f"metadata of {name}")
            except UnknownTopic:
                if self.now() >= deadline:
                    raise
            self.pause()

    def topics_matching(self, pattern: str) -> list[str]:
        """Return the names of all topics that match the regular expression as a whole, internal ones left out."""
        matches = Pattern(pattern, name="the pattern of topics").is_whole
        return [name for name in self.topic_names() if matches(name)]

    def topic_names(self) -> list[str]:
        """Return the names of all topics, internal ones left out."""
        self._refresh(None)
        return sorted(t.name for t in self._topics.values() if not t.is_internal)

    def refresh(self, names: Iterable[str]) -> None:
        """Ask for these topics now, whatever is remembered. Topics that are gone are forgotten."""
        self._refresh(list(names))

    def known(self, name: str) -> TopicMetadata | None:
        """Return the topic's metadata from the last response; None if it is missing or was never requested."""
        return self._topics.get(name)

    def leader(self, partition: TopicPartition) -> int:
        """Return the broker that leads this partition, or -1."""
        topic = self._topics.get(partition.topic)
        return -1 if topic is None else topic.leaders.get(partition.partition, -1)

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Return the partitions under the broker that leads each; waits for leaders until the API timeout.

        Raises `PartitionUnavailable` after that.
        """
        wanted = list(partitions)

        def grouped() -> dict[int, list[TopicPartition]]:
            groups: dict[int, list[TopicPartition]] = {}
            for partition in wanted:
                self.topic(partition.topic)
                leader = self.leader(partition)
                if leader < 0:
                    self._forget(partition.topic)
                    raise PartitionUnavailable(f"{partition} has no leader")
                groups.setdefault(leader, []).append(partition)
            return groups

        return self.until(grouped, what="leaders")

    # Connections

    @property
    def ids(self) -> dict[str, int]:
        """The ids of the brokers that the last answer named, by address as connections name them."""
        return {f"{host}:{port}": node_id for node_id, (host, port) in self._brokers.items()}

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """The (host, port) of the brokers that the last answer named, by their ids."""
        return dict(self._brokers)

    def broker(self, node_id: int, *, borrower: object) -> Connection:
        """Return a connection to this broker for requests in flight, such as fetches and produces, for whoever sends
        them.

        Responses come in the order of requests. So while one is due to `borrower`, nobody else is given this
        connection: another borrower gets one of its own. Send at once on what is returned, or ask for it again.
        """
        address = self._address(node_id)
        lent = self._lent.setdefault(address, [])
        if lent and lent[0].borrower is borrower and lent[0].connection.is_open:  # who asks again and again
            return lent[0].connection
        lent[:] = [each for each in lent if each.connection.is_open]
        for each in sorted(lent, key=lambda each: each.borrower is not borrower):
            if each.borrower is borrower or not each.connection.in_flight:
                each.borrower = borrower
                return each.connection
        lent.append(_Lent(connection=Connection(*address, self.settings), borrower=borrower))
        return lent[-1].connection

    def ask(self, host: str, port: int) -> Connection:
        """Return a connection for single questions to this address. Nothing is ever in flight on it between two of
        them, and none of them waits behind a long fetch."""
        connection = self._asked.get((host, port))
        if connection is None or not connection.is_open:
            connection = self._asked[host, port] = Connection(host, port, self.settings)
        return connection

    def ask_broker(self, node_id: int) -> Connection:
        """Ask a broker by its id, as `ask` does."""
        return self.ask(*self._address(node_id))

    def _address(self, node_id: int) -> tuple[str, int]:
        if node_id not in self._brokers:
            self._refresh([])
        if node_id not in self._brokers:
            raise BrokerUnavailable(f"broker {node_id} is not in the cluster's metadata")
        return self._brokers[node_id]

    def any_broker(self) -> Connection:
        """Return a connection to any broker: an open one, a known broker, or a bootstrap server. Raises
        `BrokerUnavailable` if none responds."""
        for connection in self._asked.values():
            if connection.is_open:
                return connection
        failures: list[str] = []
        for host, port in dict.fromkeys([*self._brokers.values(), *self.settings.bootstrap_servers]):
            try:
                return self.ask(host, port)
            except BrokerUnavailable as error:
                failures.append(str(error))
        raise BrokerUnavailable("; ".join(failures) + "; is bootstrap.servers right, and does the broker run?")

    # Offsets

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """Return for each partition the (offset, timestamp) of EARLIEST, LATEST, or of the first record at or after a
        time in milliseconds; offset -1 when no record is that young. Raises `PartitionUnavailable` when a leader does
        not answer in time.
        """
        answers: dict[TopicPartition, tuple[int, int]] = {}

        def ask() -> dict[TopicPartition, tuple[int, int]]:
            left = [partition for partition in wanted if partition not in answers]
            for node_id, partitions in self.by_leader(left).items():
                self._list_offsets_of(node_id, partitions, wanted, answers)
            missing = [str(partition) for partition in wanted if partition not in answers]
            if missing:
                raise PartitionUnavailable(f"no offsets for {', '.join(missing[:5])}")
            return answers

        return self.until(ask, what="offsets")

    def _list_offsets_of(
        self,
        node_id: int,
        partitions: list[TopicPartition],
        wanted: Mapping[TopicPartition, int],
        answers: dict[TopicPartition, tuple[int, int]],
    ) -> None:
        topics = named_topics(
            (each, {"partition_index": each.partition, "timestamp": wanted[each]}) for each in partitions
        )
        body = {"replica_id": -1, "isolation_level": self.settings.isolation.value, "topics": topics}
        response = self.ask_broker(node_id).call(ApiKey.LIST_OFFSETS, body)
        for topic in response.topics:
            for entry in topic.partitions:
                code = ErrorCode.of(entry.error_code)
                if code in LEADER_MOVED:
                    self._forget(topic.name)
                elif code is ErrorCode.NONE:
                    place = TopicPartition(topic.name, entry.partition_index)
                    if place in wanted:
                        answers[place] = (entry.offset, entry.timestamp)
                else:
                    raise refused(f"offsets of {topic.name}-{entry.partition_index}", code)

    # Waiting

    def pause(self) -> None:
        """Wait as long as one try should stay behind the one before it (`retry.backoff.ms`)."""
        self._sleep(self.settings.retry_backoff_ms / 1000)

    def until(self, attempt: Callable[[], T], *, what: str) -> T:
        """Repeat `attempt` while it fails retriably, until `default.api.timeout.ms` has passed."""
        seconds = self.settings.api_timeout_ms / 1000

        def ask() -> T:
            try:
                return attempt()
            except BrokerUnavailable:
                self._topics.clear()
                raise

        try:
            return try_again(
                ask,
                what=what,
                errors=(BrokerUnavailable, PartitionUnavailable),
                first_s=self.settings.retry_backoff_ms / 1000,
                until_s=self.now() + seconds,
                now_s=self.now,
                sleep=self._sleep,
            )
        except (BrokerUnavailable, PartitionUnavailable) as error:
            raise type(error)(f"{what}: gave up after {seconds:g} s (default.api.timeout.ms): {error}") from error

    def _require(self, name: str) -> TopicMetadata:
        errors = self._refresh([name])
        found = self._topics.get(name)
        if found is not None and found.leaders:
            return found
        code = errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            command = create_command(
                [name], ",".join(f"{host}:{port}" for host, port in self.settings.bootstrap_servers)
            )
            raise UnknownTopic(f"{name}: the cluster has no such topic; create it with `{command}`, or fix the name")
        if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise UnknownTopic(f"{name}: not a valid topic name")
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise refused(f"metadata of {name}", code)
        raise PartitionUnavailable(f"{name}: {code.name}")

    def _refresh(self, names: list[str] | None) -> dict[str, ErrorCode]:
        """Fetch metadata of these topics (None: all); answer the errors by topic."""
        response = self.any_broker().call(
            ApiKey.METADATA,
            {
                "topics": None if names is None else [{"name": name} for name in names],
                "allow_auto_topic_creation": False,
            },
        )
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        errors: dict[str, ErrorCode] = {}
        for topic in response.topics:
            if topic.name is None:
                continue  # allowed only where a topic was asked for by its id, which is not done here
            code = ErrorCode.of(topic.error_code)
            if code is not ErrorCode.NONE:
                errors[topic.name] = code
                self._forget(topic.name)
                continue
            topic_id = getattr(topic, "topic_id", None)
            self._topics[topic.name] = TopicMetadata(
                name=topic.name,
                topic_id=bytes(topic_id) if topic_id and any(topic_id) else None,
                leaders={p.partition_index: p.leader_id for p in topic.partitions},
                is_internal=bool(topic.is_internal),
            )
            self._fetched_at[topic.name] = self.now()
        self.refusals = errors
        if names is None:
            for deleted in self._topics.keys() - {topic.name for topic in response.topics}:
                self._forget(deleted)
        return errors

    def _forget(self, topic: str) -> None:
        self._topics.pop(topic, None)

    def forget_leaders(self, topic: str) -> None:
        """Forget a topic's leaders, which have moved: ask again before the next use."""
        self._forget(topic)


def refused(what: str, code: ErrorCode) -> BrokerRefused:
    """Return the error for an answer that a retry will not change: `Forbidden` where an ACL is missing."""
    kind = Forbidden if code.name.endswith("_AUTHORIZATION_FAILED") else BrokerRefused
    return kind(f"{what}: the broker returned {code.name}")
