"""Changes on top of an image: replay records, list the changes, apply them to get the next image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from broker_embedded.common.types import NO_LEADER, TopicPartition
from broker_embedded.metadata.image import BrokerImage, ClusterImage, ConfigKey, PartitionImage, TopicImage
from broker_embedded.metadata.records import (
    AccessControlEntry,
    BrokerRegistrationChange,
    ChangePartition,
    CreatePartition,
    CreateTopic,
    MetadataRecord,
    RegisterBroker,
    RemoveAccessControlEntry,
    RemoveTopic,
    RemoveUserScramCredential,
    ReserveProducerIds,
    ResourceType,
    SetClientQuota,
    SetConfig,
    SetFeatureLevel,
    UnregisterBroker,
    UserScramCredential,
)

K = TypeVar("K")
V = TypeVar("V")


class MetadataDelta:
    """Records replayed on top of `base`. Changes are kept by name, for listeners that handle changes only."""

    def __init__(self, base: ClusterImage) -> None:
        self.base = base
        self.changed_partitions: dict[TopicPartition, PartitionImage] = {}
        self.created_topics: set[str] = set()
        self.removed_topics: dict[str, TopicImage] = {}
        """Deleted topics of the base, by name.

        One that was made again in the same delta is in `created_topics` too.
        """
        self.removed_topic_ids: set[bytes] = set()
        """Every deleted topic, also one that was created in the same delta."""
        self.changed_configs: set[ConfigKey] = set()
        self.brokers_changed = False
        self._brokers = base.brokers
        self._topics = base.topics
        self._own_partitions: dict[str, dict[int, PartitionImage]] = {}
        self._topic_names = base.topic_names
        self._leader_counts = dict(base.leader_counts)
        self._configs = base.configs
        self._features = base.features
        self._next_producer_id = base.next_producer_id
        self._scram_credentials = base.scram_credentials
        self._client_quotas = base.client_quotas
        self._acls = base.acls

    def replay_all(self, records: Iterable[MetadataRecord]) -> None:
        for record in records:
            _REPLAY[type(record)](self, record)

    def apply(self, *, offset: int, epoch: int, controller_id: int) -> ClusterImage:
        """Return the image after everything replayed so far."""
        return replace(
            self.base,
            offset=offset,
            epoch=epoch,
            controller_id=controller_id,
            brokers=self._brokers,
            topics=self._topics,
            topic_names=self._topic_names,
            leader_counts=self._leader_counts,
            configs=self._configs,
            features=self._features,
            next_producer_id=self._next_producer_id,
            scram_credentials=self._scram_credentials,
            client_quotas=self._client_quotas,
            acls=self._acls,
        )

    # --- brokers

    def _register_broker(self, record: RegisterBroker) -> None:
        image = BrokerImage(
            broker_id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            host=record.host,
            port=record.port,
            rack=record.rack,
            log_dirs=record.log_dirs,
            features=record.features,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            cordoned_log_dirs=record.cordoned_log_dirs or (),
        )
        self._brokers = {**self._brokers, record.broker_id: image}
        self.brokers_changed = True

    def _unregister_broker(self, record: UnregisterBroker) -> None:
        self._brokers = {node: image for node, image in self._brokers.items() if node != record.broker_id}
        self.brokers_changed = True

    def _change_registration(self, record: BrokerRegistrationChange) -> None:
        changes: dict[str, Any] = {}
        if record.fenced is not None:
            changes["fenced"] = record.fenced
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = True
        if record.log_dirs is not None:
            changes["log_dirs"] = record.log_dirs
        if record.cordoned_log_dirs is not None:
            changes["cordoned_log_dirs"] = record.cordoned_log_dirs
        image = replace(self._brokers[record.broker_id], **changes)
        self._brokers = {**self._brokers, record.broker_id: image}
        self.brokers_changed = True

    # --- topics and partitions

    def _create_topic(self, record: CreateTopic) -> None:
        self._own_topics()[record.name] = TopicImage(name=record.name, topic_id=record.topic_id)
        self._own_partitions.pop(record.name, None)
        self._own_topic_names()[record.topic_id] = record.name
        self.created_topics.add(record.name)

    def _remove_topic(self, record: RemoveTopic) -> None:
        self.removed_topic_ids.add(record.topic_id)
        name = self._topic_names[record.topic_id]
        topic = self._own_topics().pop(name)
        self._own_partitions.pop(name, None)
        del self._own_topic_names()[record.topic_id]
        for state in topic.partitions.values():
            self._count_leader(state.leader, -1)
        if name in self.created_topics:
            self.created_topics.discard(name)
        else:
            self.removed_topics[name] = topic
        for topic_partition in topic.topic_partitions():
            self.changed_partitions.pop(topic_partition, None)
        self._set_config_of((ResourceType.TOPIC, name), {})

    def _create_partition(self, record: CreatePartition) -> None:
        self._put_partition(
            record.topic_id,
            PartitionImage(
                partition=record.partition,
                replicas=record.replicas,
                isr=record.isr,
                leader=record.leader,
                leader_epoch=record.leader_epoch,
                partition_epoch=record.partition_epoch,
                adding_replicas=record.adding_replicas,
                removing_replicas=record.removing_replicas,
                leader_recovery_state=record.leader_recovery_state,
                directories=record.directories,
            ),
        )

    def _change_partition(self, record: ChangePartition) -> None:
        before = self._topics[self._topic_names[record.topic_id]].partitions[record.partition]
        self._put_partition(record.topic_id, changed_partition(before, record))

    def _put_partition(self, topic_id: bytes, image: PartitionImage) -> None:
        name = self._topic_names[topic_id]
        partitions = self._own_partitions.get(name)
        if partitions is None:  # copied once per delta: a topic of a thousand partitions is not copied a thousand times
            topic = self._topics[name]
            partitions = self._own_partitions[name] = dict(topic.partitions)
            self._own_topics()[name] = replace(topic, partitions=partitions)
        before = partitions.get(image.partition)
        if before is not None:
            self._count_leader(before.leader, -1)
        self._count_leader(image.leader, 1)
        partitions[image.partition] = image
        self.changed_partitions[TopicPartition(name, image.partition)] = image

    def _own_topics(self) -> dict[str, TopicImage]:
        self._topics = own = _own(self._topics, self.base.topics)
        return own

    def _own_topic_names(self) -> dict[bytes, str]:
        self._topic_names = own = _own(self._topic_names, self.base.topic_names)
        return own

    def _count_leader(self, leader: int, change: int) -> None:
        if leader != NO_LEADER:
            self._leader_counts[leader] = max(0, self._leader_counts.get(leader, 0) + change)

    # --- settings, features, ids

    def _set_config(self, record: SetConfig) -> None:
        key = (record.resource_type, record.resource_name)
        values = dict(self._configs.get(key, {}))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        self._set_config_of(key, values)

    def _set_config_of(self, key: ConfigKey, values: dict[str, str]) -> None:
        if not values and key not in self._configs:
            return
        self._configs = own = _own(self._configs, self.base.configs)
        if values:
            own[key] = values
        else:
            own.pop(key, None)
        self.changed_configs.add(key)

    def _set_feature(self, record: SetFeatureLevel) -> None:
        self._features = {**self._features, record.name: record.level}

    def _reserve_producer_ids(self, record: ReserveProducerIds) -> None:
        self._next_producer_id = record.next_producer_id

    # --- users

    def _set_scram_credential(self, record: UserScramCredential) -> None:
        self._scram_credentials = own = _own(self._scram_credentials, self.base.scram_credentials)
        own[record.name, record.mechanism] = record

    def _remove_scram_credential(self, record: RemoveUserScramCredential) -> None:
        self._scram_credentials = own = _own(self._scram_credentials, self.base.scram_credentials)
        own.pop((record.name, record.mechanism), None)

    def _set_client_quota(self, record: SetClientQuota) -> None:
        values = {key: kept for key, kept in self._client_quotas.get(record.entity, {}).items() if key != record.key}
        if record.value is not None:
            values[record.key] = record.value
        self._client_quotas = own = _own(self._client_quotas, self.base.client_quotas)
        own.pop(record.entity, None)
        if values:
            own[record.entity] = values

    def _add_acl(self, record: AccessControlEntry) -> None:
        self._acls = own = _own(self._acls, self.base.acls)
        own[record.acl_id] = record.acl

    def _remove_acl(self, record: RemoveAccessControlEntry) -> None:
        self._acls = own = _own(self._acls, self.base.acls)
        own.pop(record.acl_id, None)


def _own(values: Mapping[K, V], of_base: Mapping[K, V]) -> dict[K, V]:
    """Return the values as a dictionary that a delta may change: copied once from the base."""
    if values is of_base:
        return dict(values)
    assert isinstance(values, dict)
    return values


_CHANGEABLE = ("isr", "replicas", "adding_replicas", "removing_replicas", "leader_recovery_state", "directories")

_REPLAY: dict[type, Callable[[MetadataDelta, Any], None]] = {
    RegisterBroker: MetadataDelta._register_broker,
    UnregisterBroker: MetadataDelta._unregister_broker,
    BrokerRegistrationChange: MetadataDelta._change_registration,
    CreateTopic: MetadataDelta._create_topic,
    RemoveTopic: MetadataDelta._remove_topic,
    CreatePartition: MetadataDelta._create_partition,
    ChangePartition: MetadataDelta._change_partition,
    SetConfig: MetadataDelta._set_config,
    ReserveProducerIds: MetadataDelta._reserve_producer_ids,
    SetFeatureLevel: MetadataDelta._set_feature,
    UserScramCredential: MetadataDelta._set_scram_credential,
    RemoveUserScramCredential: MetadataDelta._remove_scram_credential,
    SetClientQuota: MetadataDelta._set_client_quota,
    AccessControlEntry: MetadataDelta._add_acl,
    RemoveAccessControlEntry: MetadataDelta._remove_acl,
}


def changed_partition(before: PartitionImage, record: ChangePartition) -> PartitionImage:
    """Return a partition after a change. Every change moves the partition epoch, a leader given moves the leader
    epoch."""
    changes: dict[str, Any] = {"partition_epoch": before.partition_epoch + 1}
    if record.replicas is not None and before.directories:
        changes["directories"] = tuple(before.directory_of(node) for node in record.replicas)
    for name in _CHANGEABLE:
        value = getattr(record, name)
        if value is not None:
            changes[name] = value
    if record.leader is not None:
        changes["leader"] = record.leader
        changes["leader_epoch"] = before.leader_epoch + 1
    return replace(before, **changes)


def image_after(image: ClusterImage, records: Iterable[MetadataRecord], *, offset: int | None = None) -> ClusterImage:
    """Return the image with `records` applied: for callers that decide step by step.

    It stays at the same offset unless another is given.
    """
    delta = MetadataDelta(image)
    delta.replay_all(records)
    reached = image.offset if offset is None else offset
    return delta.apply(offset=reached, epoch=image.epoch, controller_id=image.controller_id)
