"""Creating, growing and deleting topics: requests in, records out, nothing changed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.config import topic_config
from broker_embedded.common.config_definition import InvalidConfig
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.topic_settings import TOPIC_SETTINGS
from broker_embedded.controller import placement, topic_names
from broker_embedded.controller.requests import UNSET, NewPartitions, NewTopic, TopicResult
from broker_embedded.metadata.image import ClusterImage, TopicImage
from broker_embedded.metadata.records import (
    CreatePartition,
    CreateTopic,
    MetadataRecord,
    RemoveTopic,
    ResourceType,
    SetConfig,
)
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.primitives import random_uuid

MAX_PARTITIONS_PER_REQUEST = 10_000
"""As in Kafka: a typing error must not allocate a million logs."""


def create_topic(
    image: ClusterImage, wanted: NewTopic, *, config: BrokerConfig, random: Random
) -> tuple[list[MetadataRecord], TopicResult]:
    """Return the records that create `wanted`; BrokerError if it cannot be."""
    _check_name(image, wanted.name)
    configs = {name: value for name, value in wanted.configs.items() if value is not None}
    missing = [name for name in wanted.configs if name not in configs]
    if missing:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(missing)}")
    try:
        topic_config(config, configs)
    except InvalidConfig as error:
        is_unknown = error.name not in TOPIC_SETTINGS
        text = f"Unknown topic config name: {error.name}" if is_unknown else error.told()
        raise BrokerError(ErrorCode.INVALID_CONFIG, text) from None
    replicas = _assigned(image, wanted) if wanted.assignments else _placed(image, wanted, config)
    topic_id = random_uuid(random)
    records: list[MetadataRecord] = [CreateTopic(name=wanted.name, topic_id=topic_id)]
    records += [
        SetConfig(resource_type=ResourceType.TOPIC, resource_name=wanted.name, name=name, value=value)
        for name, value in configs.items()
    ]
    records += [new_partition(image, topic_id, number, brokers) for number, brokers in enumerate(replicas)]
    result = TopicResult(
        name=wanted.name,
        topic_id=topic_id,
        partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=configs,
    )
    return records, result


def new_partition(image: ClusterImage, topic_id: bytes, number: int, replicas: Sequence[int]) -> CreatePartition:
    """Return the record of a new partition: every live replica is in sync, and the first one leads."""
    isr = tuple(node for node in replicas if image.is_active(node))
    if not isr:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"partition {number}: all brokers of {list(replicas)} are fenced or shutting down",
        )
    return CreatePartition(topic_id=topic_id, partition=number, replicas=tuple(replicas), isr=isr, leader=isr[0])


def grow_topic(image: ClusterImage, wanted: NewPartitions) -> list[MetadataRecord]:
    """Return the records that add partitions; BrokerError if they cannot be added."""
    topic = image.topic(wanted.name)
    if topic is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wanted.name}")
    present = len(topic.partitions)
    added = wanted.count - present
    if added <= 0:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {wanted.name} has {present} partitions; wanted more than that, found {wanted.count}",
        )
    _check_partition_count(added)
    if wanted.assignments is not None:
        if len(wanted.assignments) != added:
            raise BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{added} partitions would be added, the request assigns {len(wanted.assignments)}",
            )
        replicas = [check_replicas(image, each) for each in wanted.assignments]
    else:
        first = topic.partitions[0]
        replication_factor = len(first.replicas) - len(first.adding_replicas)
        replicas = placement.place(image, partitions=added, replication_factor=replication_factor)
    return [new_partition(image, topic.topic_id, present + index, each) for index, each in enumerate(replicas)]


def delete_topic(topic: TopicImage, *, config: BrokerConfig) -> list[MetadataRecord]:
    """Return the record that deletes a topic."""
    if not config.delete_topic_enable:
        raise BrokerError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    return [RemoveTopic(topic_id=topic.topic_id)]


def _check_name(image: ClusterImage, name: str) -> None:
    problem = topic_names.problem_with(name)
    if problem is not None:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name in image.topics:
        raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = topic_names.collision_with(name, image.topics)
    if other is not None:
        raise BrokerError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other} ('.' and '_' count as the same)",
        )


def _placed(image: ClusterImage, wanted: NewTopic, config: BrokerConfig) -> list[tuple[int, ...]]:
    partitions = config.num_partitions if wanted.partitions == UNSET else wanted.partitions
    if partitions < 1:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions was set to an invalid non-positive value. Found {partitions}, wanted at least 1",
        )
    _check_partition_count(partitions)
    factor = config.default_replication_factor if wanted.replication_factor == UNSET else wanted.replication_factor
    if factor < 1:
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor must be larger than 0, or -1 to use the default value. Found {factor}",
        )
    return placement.place(image, partitions=partitions, replication_factor=factor)


def _assigned(image: ClusterImage, wanted: NewTopic) -> list[tuple[int, ...]]:
    for what, found in (("replication factor", wanted.replication_factor), ("numPartitions", wanted.partitions)):
        if found != UNSET:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1. Found {found}",
            )
    assignments: Mapping[int, Sequence[int]] = wanted.assignments
    if sorted(assignments) != list(range(len(assignments))):
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"partitions should be a consecutive 0-based integer sequence, found {sorted(assignments)}",
        )
    _check_partition_count(len(assignments))
    replicas = [check_replicas(image, assignments[number]) for number in range(len(assignments))]
    factors = {len(each) for each in replicas}
    if len(factors) > 1:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"partitions have different numbers of replicas: {sorted(factors)}",
        )
    return replicas


def check_replicas(image: ClusterImage, replicas: Sequence[int]) -> tuple[int, ...]:
    problem = _problem_with(image, replicas)
    if problem is not None:
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {problem}")
    return tuple(replicas)


def _problem_with(image: ClusterImage, replicas: Sequence[int]) -> str | None:
    if not replicas:
        return "an empty replica list."
    for index, broker in enumerate(replicas):
        if broker not in image.brokers:
            return f"broker {broker}, but no such broker is registered."
        if not image.brokers[broker].takes_replicas:
            return f"broker {broker}, but all its log directories are cordoned."
        if broker in replicas[:index]:
            return f"the broker {broker} more than once."
    return None


def _check_partition_count(count: int) -> None:
    if count > MAX_PARTITIONS_PER_REQUEST:
        raise BrokerError(
            ErrorCode.POLICY_VIOLATION,
            f"found {count} partitions in one request, at most {MAX_PARTITIONS_PER_REQUEST} are possible",
        )
