"""Feature levels of the cluster (KIP-584): supported levels, levels of a new cluster, and updates.

A level is finalized only if every registered broker supports it; a broker that does not support a finalized level is
not let in. `eligible.leader.replicas.version` is not among them: see `partition_change` for the rules that hold here.

`metadata.version` goes as far as Kafka 4.4. What its newest levels allow, and what is refused below them: cordoned log
directories (KIP-1066), networks as hosts of ACLs, and controllers that are unregistered.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import MetadataRecord, RegisterBroker, SetFeatureLevel, SupportedFeature
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

METADATA_VERSION = "metadata.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
TRANSACTION_VERSION = "transaction.version"

SUPPORTED = (
    SupportedFeature(name=GROUP_VERSION, min_level=0, max_level=1),
    SupportedFeature(name=METADATA_VERSION, min_level=7, max_level=33),  # 3.3-IV3 to 4.4-IV2
    SupportedFeature(name=SHARE_VERSION, min_level=0, max_level=2),  # share groups, and their dead letters
    SupportedFeature(name=TRANSACTION_VERSION, min_level=0, max_level=2),
)
CORDONED_LOG_DIRS, NETWORKS_IN_ACLS, UNREGISTERED_CONTROLLERS = 30, 32, 33
"""Levels of metadata.version: 4.3-IV0, 4.4-IV1, 4.4-IV2."""
_SUPPORTED = {feature.name: feature for feature in SUPPORTED}


class UpgradeType(IntEnum):
    """Allowed changes in an UpdateFeatures request."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@fact
class FeatureUpdate:
    """One feature to finalize at `level`; 0 takes it away."""

    name: str
    level: int
    upgrade_type: UpgradeType


def initial_levels(image: ClusterImage) -> list[MetadataRecord]:
    """Return the records for the newest level of every feature. None if the cluster has started before."""
    if METADATA_VERSION in image.features:
        return []
    return [SetFeatureLevel(name=feature.name, level=feature.max_level) for feature in SUPPORTED]


def has_cordoned_log_dirs(image: ClusterImage) -> bool:
    return image.features.get(METADATA_VERSION, 0) >= CORDONED_LOG_DIRS


def has_networks_in_acls(image: ClusterImage) -> bool:
    return image.features.get(METADATA_VERSION, 0) >= NETWORKS_IN_ACLS


def has_unregistered_controllers(image: ClusterImage) -> bool:
    return image.features.get(METADATA_VERSION, 0) >= UNREGISTERED_CONTROLLERS


def has_share_groups(image: ClusterImage) -> bool:
    return image.features.get(SHARE_VERSION, 0) >= 1


def check_supported(image: ClusterImage, broker: RegisterBroker) -> None:
    """Refuse a broker that cannot work at the finalized levels. One that names no features is not checked."""
    if not broker.features:
        return
    supported = {feature.name: feature for feature in broker.features}
    for name, level in image.features.items():
        feature = supported.get(name)
        if level and (feature is None or not feature.min_level <= level <= feature.max_level):
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION, f"broker {broker.broker_id} does not support {name} at level {level}"
            )


def update(image: ClusterImage, updates: Sequence[FeatureUpdate]) -> list[MetadataRecord]:
    """Return the records of all updates. Raises BrokerError for the first invalid one; then none is applied."""
    records: list[MetadataRecord] = []
    for wanted in updates:
        _check(image, wanted)
        if image.features.get(wanted.name, 0) != wanted.level:
            records.append(SetFeatureLevel(name=wanted.name, level=wanted.level))
    return records


def _check(image: ClusterImage, wanted: FeatureUpdate) -> None:
    name, level = wanted.name, wanted.level
    feature = _SUPPORTED.get(name)
    if feature is None:
        raise _refused(f"{name}: the controller knows no such feature")
    if not feature.min_level <= level <= feature.max_level:
        raise _refused(f"{name}: found level {level}, wanted {feature.min_level} to {feature.max_level}")
    current = image.features.get(name, 0)
    if level > current and wanted.upgrade_type is not UpgradeType.UPGRADE:
        raise _refused(f"{name}: level {level} is above the present {current}: that is no downgrade")
    if level < current and wanted.upgrade_type is UpgradeType.UPGRADE:
        raise _refused(f"{name}: level {level} is below the present {current}: ask for a safe or unsafe downgrade")
    if level < current and name == METADATA_VERSION and wanted.upgrade_type is UpgradeType.UNSAFE_DOWNGRADE:
        raise _refused(f"{name}: an unsafe downgrade is not supported")
    for broker in image.brokers.values():
        own = next((each for each in broker.features if each.name == name), None)
        if broker.features and (own is None or not own.min_level <= level <= own.max_level):
            raise _refused(f"{name}: broker {broker.broker_id} does not support level {level}")


def _refused(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_UPDATE_VERSION, message)
