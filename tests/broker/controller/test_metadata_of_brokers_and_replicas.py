"""Records of registrations, directories and recovery: their bytes, and what they make of an image."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.metadata import serde
from broker_embedded.metadata.delta import image_after
from broker_embedded.metadata.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, ClusterImage
from broker_embedded.metadata.records import (
    BrokerRegistrationChange,
    ChangePartition,
    CreatePartition,
    CreateTopic,
    LeaderRecoveryState,
    MetadataRecord,
    RegisterBroker,
    SupportedFeature,
)

TOPIC_ID = bytes(range(16))
directories = st.binary(min_size=16, max_size=16).filter(any)
numbers = st.integers(0, 2**31 - 1)
levels = st.integers(0, 1000)
features = st.builds(SupportedFeature, name=st.text(max_size=8), min_level=levels, max_level=levels)


@given(
    record=st.one_of(
        st.builds(
            RegisterBroker,
            broker_id=numbers,
            incarnation_id=directories,
            broker_epoch=numbers,
            host=st.text(max_size=8),
            port=st.integers(0, 65_535),
            rack=st.none() | st.text(max_size=8),
            log_dirs=st.lists(directories, max_size=3).map(tuple),
            features=st.lists(features, max_size=3).map(tuple),
            fenced=st.booleans(),
            in_controlled_shutdown=st.booleans(),
        ),
        st.builds(
            BrokerRegistrationChange,
            broker_id=numbers,
            broker_epoch=numbers,
            fenced=st.none() | st.booleans(),
            in_controlled_shutdown=st.booleans(),
            log_dirs=st.none() | st.lists(directories, min_size=1, max_size=3).map(tuple),
        ),
        st.builds(
            ChangePartition,
            topic_id=directories,
            partition=numbers,
            leader_recovery_state=st.none() | st.sampled_from(LeaderRecoveryState),
            directories=st.none() | st.lists(directories, max_size=3).map(tuple),
        ),
        st.builds(
            CreatePartition,
            topic_id=directories,
            partition=numbers,
            replicas=st.just((1, 2)),
            isr=st.just((1,)),
            leader=numbers,
            leader_recovery_state=st.sampled_from(LeaderRecoveryState),
            directories=st.just(()) | st.lists(directories, min_size=2, max_size=2).map(tuple),
        ),
    )
)
def test_a_record_survives_its_bytes(record: MetadataRecord) -> None:
    assert serde.decode(serde.encode(record)) == record


def broker(**other: object) -> RegisterBroker:
    values = {"broker_id": 1, "incarnation_id": TOPIC_ID, "broker_epoch": 4, "host": "h", "port": 9}
    return RegisterBroker(**values | other)  # type: ignore[arg-type]


def test_a_change_of_a_registration_leaves_alone_what_it_does_not_name() -> None:
    image = image_after(ClusterImage(cluster_id="c"), [broker(fenced=True, log_dirs=(b"a" * 16, b"b" * 16))])
    assert not image.is_active(1)
    image = image_after(image, [BrokerRegistrationChange(broker_id=1, broker_epoch=4, fenced=False)])
    assert image.is_active(1)
    image = image_after(image, [BrokerRegistrationChange(broker_id=1, broker_epoch=4, in_controlled_shutdown=True)])
    assert not image.is_active(1)
    assert not image.brokers[1].fenced
    image = image_after(image, [BrokerRegistrationChange(broker_id=1, broker_epoch=4, log_dirs=(b"b" * 16,))])
    assert image.brokers[1].in_controlled_shutdown
    assert image.brokers[1].log_dirs == (b"b" * 16,)


@pytest.mark.parametrize(
    ("directory", "log_dirs", "is_served"),
    [
        (UNASSIGNED_DIRECTORY, (b"a" * 16,), True),
        (b"a" * 16, (b"a" * 16,), True),
        (b"b" * 16, (b"a" * 16,), False),
        (b"b" * 16, (), True),
        (LOST_DIRECTORY, (), False),
    ],
)
def test_a_replica_is_offline_when_its_directory_is_known_to_be_gone(
    directory: bytes, log_dirs: tuple[bytes, ...], is_served: bool
) -> None:
    partition = CreatePartition(
        topic_id=TOPIC_ID, partition=0, replicas=(1,), isr=(1,), leader=1, directories=(directory,)
    )
    records = [broker(log_dirs=log_dirs), CreateTopic(name="t", topic_id=TOPIC_ID), partition]
    image = image_after(ClusterImage(cluster_id="c"), records)
    assert image.offline_replicas(image.topics["t"].partitions[0]) == ([] if is_served else [1])


def test_directories_follow_their_replicas_when_these_change() -> None:
    a, b = b"a" * 16, b"b" * 16
    partition = CreatePartition(topic_id=TOPIC_ID, partition=0, replicas=(1, 2), isr=(1,), leader=1, directories=(a, b))
    image = image_after(ClusterImage(cluster_id="c"), [CreateTopic(name="t", topic_id=TOPIC_ID), partition])
    moved = image_after(image, [ChangePartition(topic_id=TOPIC_ID, partition=0, replicas=(3, 2, 1))])
    assert moved.topics["t"].partitions[0].directories == (UNASSIGNED_DIRECTORY, b, a)
