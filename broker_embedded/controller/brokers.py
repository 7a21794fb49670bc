"""Broker registration, fencing, unfencing, shutdown and removal, with their effect on partitions.

A broker starts fenced and gets into the cluster by a heartbeat that shows it has caught up with the metadata. Each
function takes the image and gives the records; `sessions` knows which brokers are alive.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import NO_LEADER
from broker_embedded.controller import elections, features
from broker_embedded.metadata.delta import image_after
from broker_embedded.metadata.image import (
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    ClusterImage,
    PartitionImage,
)
from broker_embedded.metadata.records import (
    BrokerRegistrationChange,
    ChangePartition,
    MetadataRecord,
    RegisterBroker,
    UnregisterBroker,
)
from ottla_wire.protocol import ErrorCode


def check_epoch(image: ClusterImage, node: int, epoch: int) -> BrokerImage:
    """Return the registered broker. Raises STALE_BROKER_EPOCH for any other incarnation."""
    broker = image.brokers.get(node)
    if broker is None:
        raise BrokerError(ErrorCode.STALE_BROKER_EPOCH, f"broker {node} is not registered")
    if broker.epoch != epoch:
        raise BrokerError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {node} is registered with epoch {broker.epoch}, found {epoch}"
        )
    return broker


def register(
    image: ClusterImage, wanted: RegisterBroker, *, has_session: bool, config: BrokerConfig
) -> list[MetadataRecord]:
    """Return the records of a registration. A repeated request of the same incarnation keeps its state and epoch.

    A new incarnation has restarted: what the old one led is led by others until the new one has caught up. It is
    refused while the old one is alive (`has_session`), unless that is shutting down.
    """
    features.check_supported(image, wanted)
    before = image.brokers.get(wanted.broker_id)
    if before is None:
        return [replace(wanted, fenced=True)]
    if before.incarnation_id == wanted.incarnation_id:
        again = replace(
            wanted,
            broker_epoch=before.epoch,
            fenced=before.fenced,
            in_controlled_shutdown=before.in_controlled_shutdown,
            cordoned_log_dirs=before.cordoned_log_dirs or None,
        )
        return [again]
    if has_session and not before.in_controlled_shutdown:
        raise BrokerError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {wanted.broker_id} is registered by another process that is alive ({before.host}:{before.port})",
        )
    records: list[MetadataRecord] = [replace(wanted, fenced=True)]
    lost = _lost_directories(image, before, wanted)
    after = image_after(image, [*records, *lost])
    return [*records, *lost, *elections.remove_from_isr(after, wanted.broker_id, config=config)]


def _lost_directories(image: ClusterImage, before: BrokerImage, now: RegisterBroker) -> list[MetadataRecord]:
    """Return marks for replicas whose log directory is missing after a restart (KAFKA-3410), whether or not it had
    failed before.

    Such a broker has an empty log. It may be the last member of an ISR; led by it, the other replicas would delete what
    they have. A partition without another replica is left alone: there is nothing to protect.
    """
    if not before.log_dirs or not now.log_dirs:
        return []
    came_back = set(now.log_dirs)
    knows_none = came_back.isdisjoint(before.log_dirs)

    def is_lost(state: PartitionImage) -> bool:
        directory = state.directory_of(now.broker_id)
        return knows_none or directory not in (came_back | {UNASSIGNED_DIRECTORY, LOST_DIRECTORY})

    return [
        ChangePartition(
            topic_id=topic.topic_id,
            partition=state.partition,
            directories=tuple(
                LOST_DIRECTORY if node == now.broker_id else state.directory_of(node) for node in state.replicas
            ),
        )
        for topic in image.topics.values()
        for state in topic.partitions.values()
        if now.broker_id in state.replicas and len(state.replicas) > 1 and is_lost(state)
    ]


def fence(image: ClusterImage, nodes: Collection[int], *, config: BrokerConfig) -> list[MetadataRecord]:
    """Fence brokers. An in-sync replica elsewhere is elected; without one the partition stays leaderless until a broker
    returns.
    """
    records: list[MetadataRecord] = []
    for node in sorted(nodes):
        broker = image.brokers[node]
        if not broker.fenced:
            records.append(BrokerRegistrationChange(broker_id=node, broker_epoch=broker.epoch, fenced=True))
    after = image_after(image, records)
    for node in sorted(nodes):
        changes = elections.remove_from_isr(after, node, config=config)
        records += changes
        after = image_after(after, changes)
    return records


def replace_dead(image: ClusterImage, node: int, *, config: BrokerConfig) -> list[MetadataRecord]:
    """Replace a broker that has died and is not fenced yet. In-sync replicas elsewhere lead, as after fencing; the rest
    waits."""
    fencing = BrokerRegistrationChange(broker_id=node, broker_epoch=image.brokers[node].epoch, fenced=True)
    changes = elections.remove_from_isr(image_after(image, [fencing]), node, config=config)
    return [change for change in changes if change.leader != NO_LEADER]


def unfence(image: ClusterImage, node: int, *, config: BrokerConfig) -> list[MetadataRecord]:
    """Unfence a broker. It becomes the leader of leaderless partitions and is eligible for others."""
    change = BrokerRegistrationChange(broker_id=node, broker_epoch=image.brokers[node].epoch, fenced=False)
    return [change, *elections.elect_for_leaderless(image_after(image, [change]), config=config)]


def begin_shutdown(image: ClusterImage, node: int, *, config: BrokerConfig) -> list[MetadataRecord]:
    """Begin a broker's controlled shutdown: others lead first, while it still serves."""
    epoch = image.brokers[node].epoch
    change = BrokerRegistrationChange(broker_id=node, broker_epoch=epoch, in_controlled_shutdown=True)
    return [change, *elections.remove_from_isr(image_after(image, [change]), node, config=config)]


def unregister(image: ClusterImage, node: int, *, config: BrokerConfig) -> list[MetadataRecord]:
    """Unregister a broker. Its replicas stay assigned to it until they are reassigned."""
    broker = image.brokers.get(node)
    if broker is None:
        raise BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {node} is not registered")
    change = UnregisterBroker(broker_id=node, broker_epoch=broker.epoch)
    return [*elections.remove_from_isr(image_after(image, [change]), node, config=config), change]


def take_directories_offline(
    image: ClusterImage, node: int, offline: Sequence[bytes], *, config: BrokerConfig
) -> list[MetadataRecord]:
    """Handle failed log directories: elect other leaders for partitions in them, as far as assignments are known."""
    broker = image.brokers[node]
    online = tuple(directory for directory in broker.log_dirs if directory not in offline)
    if online == broker.log_dirs or not online:
        return []
    change = BrokerRegistrationChange(broker_id=node, broker_epoch=broker.epoch, log_dirs=online)
    after = image_after(image, [change])
    return [change, *elections.remove_failed_replicas(after, node, set(offline), config=config)]


def cordon_directories(image: ClusterImage, node: int, cordoned: Sequence[bytes]) -> list[MetadataRecord]:
    """Record which log directories of a broker take no new replicas (KIP-1066)."""
    broker = image.brokers[node]
    if not features.has_cordoned_log_dirs(image) or sorted(cordoned) == sorted(broker.cordoned_log_dirs):
        return []
    return [BrokerRegistrationChange(broker_id=node, broker_epoch=broker.epoch, cordoned_log_dirs=tuple(cordoned))]
