"""The subjects of a request: its topics and partitions, groups and transactional ids, wherever its version keeps them.

Kafka's requests name these things alike (a topic struct with a list of partitions; `group_id`; `transactional_id`), so
one walk over the decoded message finds them in every API, and a new API needs nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from ottla_wire.protocol import ZERO_UUID, ApiKey
from ottla_wire.protocol.message import Message

TOPIC_FIELDS = ("name", "topic", "topic_name")
PARTITION_FIELDS = ("partition_index", "partition", "index")
PARTITION_LISTS = ("partitions", "partition_data", "partition_indexes", "partition_responses", "results_by_partition")
TOPIC_NAME_LISTS = ("topic_names", "subscribed_topic_names")
GROUP_LISTS = ("groups", "groups_names", "group_ids")

BETWEEN_BROKERS = frozenset(
    {
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.ALTER_PARTITION,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.ENVELOPE,
    }
)
_GROUP, _TRANSACTION = 0, 1

Target = tuple[str, int | None]


class Subject:
    """One request, parsed lazily."""

    def __init__(
        self,
        *,
        api: ApiKey,
        broker: int,
        client_id: str | None,
        request: Message,
        topic_names: Mapping[bytes, str],
        session_targets: tuple[Target, ...] = (),
    ) -> None:
        """Describe a request. `session_targets`: what a fetch session remembers, so that the request need not name
        it."""
        self.api = api
        self.broker = broker
        self.client_id = client_id
        self.request = request
        self._topic_names = topic_names
        self._session_targets = session_targets

    @cached_property
    def is_from_broker(self) -> bool:
        """Sent by a broker on its own account: by its kind, or because it names a replica."""
        if self.api in BETWEEN_BROKERS:
            return True
        if self.api is ApiKey.FETCH:
            state = self.request.replica_state
            return bool(self.request.replica_id >= 0 or (state is not None and state.replica_id >= 0))
        if self.api is ApiKey.ADD_PARTITIONS_TO_TXN:
            return bool(self.request.transactions)
        if self.api in (ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH):
            return bool(self.request.replica_id >= 0)
        return False

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        """Topics and partitions; partition None where a topic is named as a whole."""
        return (*targets_of(self.request, self._topic_names), *self._session_targets)

    def mentions_partition(self, topic: str, partition: int | None) -> bool:
        if self.api is ApiKey.METADATA and not self.request.topics:
            return True  # asks for all topics
        return any(
            found == topic and (partition is None or number is None or number == partition)
            for found, number in self.targets
        )

    @cached_property
    def groups(self) -> frozenset[str]:
        return frozenset(self._keys(_GROUP)) | frozenset(_texts(self.request, "group_id", GROUP_LISTS))

    @cached_property
    def transactional_ids(self) -> frozenset[str]:
        found = {*_texts(self.request, "transactional_id", ("transactional_ids",)), *self._keys(_TRANSACTION)}
        if self.api is ApiKey.ADD_PARTITIONS_TO_TXN:
            found.add(self.request.v3_and_below_transactional_id)
        return frozenset(found)

    def _keys(self, key_type: int) -> list[str]:
        """Return the keys of FindCoordinator, which names both kinds alike."""
        request = self.request
        if self.api is not ApiKey.FIND_COORDINATOR or request.key_type != key_type:
            return []
        return [*(request.coordinator_keys or ()), *([request.key] if request.key else [])]


def targets_of(message: Message, topic_names: Mapping[bytes, str]) -> Iterator[Target]:
    """Yield every topic that a message names, with its partitions."""
    for field in message.FIELDS:
        value = getattr(message, field)
        if field in TOPIC_NAME_LISTS:
            yield from ((name, None) for name in value or ())
            continue
        for child in value if isinstance(value, (list, tuple)) else (value,):
            if not isinstance(child, Message):
                continue
            topic = topic_of(child, topic_names)
            partitions = partitions_of(child)
            if topic is not None and partitions is not None:
                yield from ((topic, number_of(each)) for each in partitions)
            elif topic is not None and field == "topics":
                yield (topic, None)
            else:
                yield from targets_of(child, topic_names)


def topic_of(entry: Any, topic_names: Mapping[bytes, str]) -> str | None:
    """Return the topic that a struct of a request or response is about, by name or by id."""
    for field in TOPIC_FIELDS:
        name = value_of(entry, field)
        if isinstance(name, str) and name:
            return name
    topic_id = value_of(entry, "topic_id")
    if isinstance(topic_id, (bytes, memoryview)) and topic_id != ZERO_UUID:
        return topic_names.get(bytes(topic_id))
    return None


def partitions_of(entry: Any) -> Any:
    """Return the list of partitions in a topic's struct, or None."""
    for field in PARTITION_LISTS:
        partitions = value_of(entry, field)
        if isinstance(partitions, (list, tuple)):
            return partitions
    return None


def number_of(partition: Any) -> int | None:
    """Return the number of a partition: the entry itself, or a field of it."""
    if isinstance(partition, int):
        return partition
    for field in PARTITION_FIELDS:
        number = value_of(partition, field)
        if isinstance(number, int):
            return number
    return None


def value_of(entry: Any, field: str) -> Any:
    """Return a field of a decoded message or of a response body."""
    if isinstance(entry, dict):
        return entry.get(field)
    if isinstance(entry, Message):
        return getattr(entry, field) if field in entry.FIELDS else None
    return None


def _texts(message: Message, field: str, lists: tuple[str, ...]) -> Iterator[str]:
    """Yield the values of a field and of lists of the same thing, at any depth."""
    for name in message.FIELDS:
        value = getattr(message, name)
        if name == field and isinstance(value, str):
            yield value
            continue
        for child in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(child, Message):
                yield from _texts(child, field, lists)
            elif isinstance(child, str) and name in lists:
                yield child
