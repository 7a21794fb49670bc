"""Records, the image they make, and the bytes they have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.common.types import TopicPartition
from broker_embedded.metadata import serde
from broker_embedded.metadata.acls import AclBinding, AclOperation, AclResource, PatternType, Permission
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.metadata.delta import MetadataDelta
from broker_embedded.metadata.image import ClusterImage
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
    ReserveProducerIds,
    ResourceType,
    SetClientQuota,
    SetConfig,
    SetFeatureLevel,
    UnregisterBroker,
    quota_entity,
)

TOPIC_ID = bytes(range(16))


def image_of(*records: MetadataRecord, base: ClusterImage | None = None) -> tuple[MetadataDelta, ClusterImage]:
    delta = MetadataDelta(base or ClusterImage(cluster_id="c"))
    delta.replay_all(records)
    return delta, delta.apply(offset=len(records) - 1, epoch=1, controller_id=1)


def orders(partitions: int = 2) -> list[MetadataRecord]:
    made: list[MetadataRecord] = [CreateTopic(name="orders", topic_id=TOPIC_ID)]
    made += [
        CreatePartition(topic_id=TOPIC_ID, partition=number, replicas=(1, 2), isr=(1,), leader=1)
        for number in range(partitions)
    ]
    return made


def test_a_topic_is_found_by_name_and_by_id_until_it_is_removed() -> None:
    _, image = image_of(*orders())
    assert image.topic("orders") is image.topic_by_id(TOPIC_ID)
    assert sorted(image.topics["orders"].partitions) == [0, 1]
    delta, after = image_of(RemoveTopic(topic_id=TOPIC_ID), base=image)
    assert after.topic("orders") is None
    assert after.topic_by_id(TOPIC_ID) is None
    assert list(delta.removed_topics) == ["orders"]
    assert image.topic("orders") is not None, "an image never changes"


def test_a_topic_made_again_in_the_same_batch_is_both_removed_and_created() -> None:
    _, image = image_of(*orders())
    new_id = bytes(15) + b"\x01"
    delta, after = image_of(
        RemoveTopic(topic_id=TOPIC_ID),
        CreateTopic(name="orders", topic_id=new_id),
        CreatePartition(topic_id=new_id, partition=0, replicas=(1,), isr=(1,), leader=1),
        base=image,
    )
    assert delta.removed_topics["orders"].topic_id == TOPIC_ID
    assert delta.created_topics == {"orders"}
    assert after.topics["orders"].topic_id == new_id
    assert list(delta.changed_partitions) == [TopicPartition("orders", 0)]


def test_naming_a_leader_raises_the_leader_epoch_and_any_change_raises_the_partition_epoch() -> None:
    _, image = image_of(*orders())
    _, after = image_of(
        ChangePartition(topic_id=TOPIC_ID, partition=0, leader=1),
        ChangePartition(topic_id=TOPIC_ID, partition=1, isr=(1, 2)),
        base=image,
    )
    first, second = after.topics["orders"].partitions.values()
    assert (first.leader_epoch, first.partition_epoch) == (1, 1)
    assert (second.leader_epoch, second.partition_epoch, second.isr) == (0, 1, (1, 2))


def test_settings_of_a_removed_topic_are_gone_with_it() -> None:
    setting = SetConfig(resource_type=ResourceType.TOPIC, resource_name="orders", name="retention.ms", value="1")
    _, image = image_of(*orders(), setting)
    assert image.config_overrides(ResourceType.TOPIC, "orders") == {"retention.ms": "1"}
    _, after = image_of(RemoveTopic(topic_id=TOPIC_ID), base=image)
    assert after.config_overrides(ResourceType.TOPIC, "orders") == {}


def test_a_setting_is_removed_by_a_null_value() -> None:
    key = {"resource_type": ResourceType.BROKER, "resource_name": "", "name": "num.partitions"}
    _, image = image_of(SetConfig(**key, value="3"))
    delta, after = image_of(SetConfig(**key, value=None), base=image)
    assert after.configs == {}
    assert delta.changed_configs == {(ResourceType.BROKER, "")}


def test_a_quota_is_removed_by_a_null_value_and_an_entity_with_its_last_quota() -> None:
    alice = quota_entity([("user", "alice"), ("client-id", None)])
    assert alice == (("client-id", None), ("user", "alice"))
    rate = SetClientQuota(entity=alice, key="producer_byte_rate", value=1024.0)
    share = SetClientQuota(entity=alice, key="request_percentage", value=12.5)
    _, image = image_of(rate, share)
    assert image.client_quotas == {alice: {"producer_byte_rate": 1024.0, "request_percentage": 12.5}}
    _, image = image_of(SetClientQuota(entity=alice, key="producer_byte_rate", value=None), base=image)
    assert image.client_quotas == {alice: {"request_percentage": 12.5}}
    _, image = image_of(SetClientQuota(entity=alice, key="request_percentage", value=None), base=image)
    assert image.client_quotas == {}


def test_an_acl_holds_until_it_is_removed_by_its_id() -> None:
    acl = AclBinding(
        resource=AclResource.TOPIC,
        name="orders",
        pattern=PatternType.LITERAL,
        principal="User:alice",
        host="*",
        operation=AclOperation.READ,
        permission=Permission.ALLOW,
    )
    other = bytes(15) + b"\x07"
    _, image = image_of(AccessControlEntry(acl_id=TOPIC_ID, acl=acl), AccessControlEntry(acl_id=other, acl=acl))
    assert image.acls == {TOPIC_ID: acl, other: acl}
    before = image.acls
    _, image = image_of(RemoveAccessControlEntry(acl_id=TOPIC_ID), base=image)
    assert image.acls == {other: acl}
    assert len(before) == 2, "an image is never changed"


def test_brokers_are_fenced_and_leave() -> None:
    register = RegisterBroker(broker_id=1, incarnation_id=TOPIC_ID, broker_epoch=3, host="h", port=9)
    _, image = image_of(register)
    assert [broker.port for broker in image.live_brokers()] == [9]
    _, fenced = image_of(BrokerRegistrationChange(broker_id=1, broker_epoch=3, fenced=True), base=image)
    assert fenced.live_brokers() == []
    _, gone = image_of(UnregisterBroker(broker_id=1, broker_epoch=3), base=fenced)
    assert gone.brokers == {}


def test_listeners_see_the_change_and_the_image_after_it() -> None:
    cache = MetadataCache("c")
    seen: list[tuple[set[str], int]] = []
    cache.add_listener(lambda delta, image: seen.append((delta.created_topics, image.offset)))
    cache.replay(orders(), offset=7, epoch=1, controller_id=1)
    assert seen == [({"orders"}, 7)]
    assert cache.image.offset == 7


node_ids = st.integers(0, 2**31 - 1)
nodes = st.lists(node_ids, max_size=4).map(tuple)
uuids = st.binary(min_size=16, max_size=16)
names = st.text(min_size=1, max_size=20)
longs = st.integers(0, 2**62)
records = st.one_of(
    st.builds(
        RegisterBroker,
        broker_id=node_ids,
        incarnation_id=uuids,
        broker_epoch=longs,
        host=names,
        port=st.integers(0, 65_535),
        rack=st.none() | names,
        log_dirs=st.lists(uuids, max_size=2).map(tuple),
        fenced=st.booleans(),
    ),
    st.builds(UnregisterBroker, broker_id=node_ids, broker_epoch=longs),
    st.builds(BrokerRegistrationChange, broker_id=node_ids, broker_epoch=longs, fenced=st.booleans()),
    st.builds(CreateTopic, name=names, topic_id=uuids),
    st.builds(RemoveTopic, topic_id=uuids),
    st.builds(
        CreatePartition,
        topic_id=uuids,
        partition=node_ids,
        replicas=nodes,
        isr=nodes,
        leader=node_ids,
        leader_epoch=node_ids,
        partition_epoch=node_ids,
        adding_replicas=nodes,
        removing_replicas=nodes,
    ),
    st.builds(
        ChangePartition,
        topic_id=uuids,
        partition=node_ids,
        isr=st.none() | nodes,
        leader=st.none() | st.integers(-1, 1000),
        replicas=st.none() | nodes,
        adding_replicas=st.none() | nodes,
        removing_replicas=st.none() | nodes,
    ),
    st.builds(
        SetConfig,
        resource_type=st.sampled_from(ResourceType),
        resource_name=names,
        name=names,
        value=st.none() | names,
    ),
    st.builds(ReserveProducerIds, broker_id=node_ids, broker_epoch=longs, next_producer_id=longs),
    st.builds(SetFeatureLevel, name=names, level=st.integers(0, 1000)),
    st.builds(
        SetClientQuota,
        entity=st.dictionaries(st.sampled_from(("user", "client-id", "ip")), st.none() | names, min_size=1).map(
            lambda parts: quota_entity(parts.items())
        ),
        key=names,
        value=st.none() | st.floats(min_value=0.001, allow_infinity=False),
    ),
    st.builds(
        AccessControlEntry,
        acl_id=st.binary(min_size=16, max_size=16),
        acl=st.builds(
            AclBinding,
            resource=st.sampled_from(AclResource),
            name=names,
            pattern=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
            principal=names,
            host=names,
            operation=st.sampled_from(AclOperation),
            permission=st.sampled_from(Permission),
        ),
    ),
    st.builds(RemoveAccessControlEntry, acl_id=st.binary(min_size=16, max_size=16)),
)


@given(record=records)
def test_a_record_survives_its_bytes(record: MetadataRecord) -> None:
    assert serde.decode(serde.encode(record)) == record


def test_a_topic_record_has_the_bytes_that_kafka_writes() -> None:
    # frame version 1, type 2, version 0, compact string "orders", uuid, no tagged fields
    assert serde.encode(CreateTopic(name="orders", topic_id=TOPIC_ID)) == b"\x01\x02\x00\x07orders" + TOPIC_ID + b"\x00"


@pytest.mark.parametrize("count", [1, 500])
def test_a_topic_of_many_partitions_is_one_change(count: int) -> None:
    delta, image = image_of(*orders(count))
    assert len(delta.changed_partitions) == count
    assert len(image.topics["orders"].partitions) == count
