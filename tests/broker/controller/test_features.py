"""Feature levels: finalized when everybody supports them, all of a request or none."""

from __future__ import annotations

from typing import Any

import pytest

from broker_embedded.common.errors import BrokerError
from broker_embedded.controller import features
from broker_embedded.controller.features import SUPPORTED, FeatureUpdate, UpgradeType
from broker_embedded.metadata.delta import image_after
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import RegisterBroker, SupportedFeature
from ottla_wire.protocol import ApiKey, ErrorCode


def broker(node: int, *supported: SupportedFeature) -> RegisterBroker:
    return RegisterBroker(
        broker_id=node, incarnation_id=bytes(16), broker_epoch=node, host="h", port=1, features=supported
    )


def cluster(*brokers: RegisterBroker) -> ClusterImage:
    empty = ClusterImage(cluster_id="c")
    return image_after(empty, [*features.initial_levels(empty), *brokers])


def test_a_cluster_that_has_started_once_keeps_its_levels() -> None:
    image = cluster()
    assert features.initial_levels(image) == []
    assert image.features == {feature.name: feature.max_level for feature in SUPPORTED}


@pytest.mark.parametrize(
    ("name", "level", "how", "is_possible"),
    [
        ("group.version", 1, UpgradeType.UPGRADE, True),
        ("group.version", 0, UpgradeType.UPGRADE, False),
        ("group.version", 0, UpgradeType.SAFE_DOWNGRADE, True),
        ("transaction.version", 1, UpgradeType.UNSAFE_DOWNGRADE, True),
        ("transaction.version", 3, UpgradeType.UPGRADE, False),
        ("metadata.version", 20, UpgradeType.SAFE_DOWNGRADE, True),
        ("metadata.version", 20, UpgradeType.UNSAFE_DOWNGRADE, False),
        ("metadata.version", 6, UpgradeType.SAFE_DOWNGRADE, False),
        ("share.version", 1, UpgradeType.UPGRADE, False),
    ],
)
def test_a_level_moves_only_as_far_and_as_the_request_allows(
    name: str, level: int, how: UpgradeType, is_possible: bool
) -> None:
    image = cluster()
    update = [FeatureUpdate(name=name, level=level, upgrade_type=how)]
    if is_possible:
        assert image_after(image, features.update(image, update)).features[name] == level
    else:
        with pytest.raises(BrokerError) as refused:
            features.update(image, update)
        assert refused.value.code == ErrorCode.INVALID_UPDATE_VERSION


def test_a_downgrade_is_no_way_up() -> None:
    image = cluster()
    down = features.update(
        image, [FeatureUpdate(name="group.version", level=0, upgrade_type=UpgradeType.SAFE_DOWNGRADE)]
    )
    with pytest.raises(BrokerError, match="is above the present 0"):
        features.update(
            image_after(image, down),
            [FeatureUpdate(name="group.version", level=1, upgrade_type=UpgradeType.SAFE_DOWNGRADE)],
        )


def test_every_registered_broker_has_to_support_a_level() -> None:
    old = broker(7, SupportedFeature(name="transaction.version", min_level=2, max_level=2))
    with pytest.raises(BrokerError, match="broker 7 does not support level 1"):
        features.update(
            cluster(old),
            [FeatureUpdate(name="transaction.version", level=1, upgrade_type=UpgradeType.SAFE_DOWNGRADE)],
        )


def test_a_broker_that_is_too_old_for_the_cluster_is_not_let_in() -> None:
    image = cluster()
    features.check_supported(image, broker(1, *SUPPORTED))
    with pytest.raises(BrokerError) as refused:
        features.check_supported(image, broker(1, SupportedFeature(name="metadata.version", min_level=7, max_level=20)))
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


def update(*wanted: tuple[str, int, int], validate_only: bool = False) -> dict[str, Any]:
    return {
        "feature_updates": [
            {"feature": name, "max_version_level": level, "upgrade_type": how} for name, level, how in wanted
        ],
        "validate_only": validate_only,
    }


def test_features_are_updated_through_any_node_all_or_none(make_world: Any) -> None:
    world = make_world()
    image = lambda: world.active.controller.image.features  # noqa: E731
    half_wrong = update(("group.version", 0, 2), ("transaction.version", 9, 1))
    assert world.call(2, ApiKey.UPDATE_FEATURES, 2, half_wrong).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert world.call(2, ApiKey.UPDATE_FEATURES, 2, update(("group.version", 0, 2), validate_only=True)).error_code == 0
    assert image()["group.version"] == 1
    answer = world.call(2, ApiKey.UPDATE_FEATURES, 1, update(("group.version", 0, 2)))
    assert (answer.error_code, [each.error_code for each in answer.results]) == (0, [0])
    assert image()["group.version"] == 0
    unknown_way = world.call(2, ApiKey.UPDATE_FEATURES, 2, update(("group.version", 1, 9)))
    assert unknown_way.error_code == ErrorCode.INVALID_UPDATE_VERSION
    twice = world.call(2, ApiKey.UPDATE_FEATURES, 2, update(("group.version", 1, 1), ("group.version", 1, 1)))
    assert twice.error_code == ErrorCode.INVALID_REQUEST


def test_version_0_says_whether_a_downgrade_is_allowed(make_world: Any) -> None:
    world = make_world(1)
    wanted = {"feature": "group.version", "max_version_level": 0, "allow_downgrade": False}
    body = {"feature_updates": [wanted]}
    assert world.call(1, ApiKey.UPDATE_FEATURES, 0, body).error_code == ErrorCode.INVALID_UPDATE_VERSION
    wanted["allow_downgrade"] = True
    assert world.call(1, ApiKey.UPDATE_FEATURES, 0, body).error_code == 0
