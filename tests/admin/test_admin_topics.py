"""Topics as an administrator sees and changes them, from threads and from asyncio."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, AsyncAdmin, Part, PartlyDone, TopicSpec
from ottla.errors import BrokerUnavailable, ConfigError, InputError, LifecycleError, UnknownTopic
from ottla.records import TopicPartition
from ottla.testing import Kafka
from ottla.wire_client import BrokerRefused

Ask = Callable[..., Any]


def produce(cluster: EmbeddedCluster, topic: str, count: int, *, partition: int = 0, **options: Any) -> None:
    kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
    kafka.produce(topic, [b"x" * 100] * count, partition=partition, **options)


def test_both_ways_to_ask_have_the_same_methods() -> None:
    def methods(kind: type) -> dict[str, str]:
        found = inspect.getmembers(kind, inspect.isfunction)
        return {name: str(inspect.signature(method)) for name, method in found if not name.startswith("__")}

    assert methods(Admin) == methods(AsyncAdmin)
    assert all(inspect.iscoroutinefunction(getattr(AsyncAdmin, name)) for name in methods(Admin))
    assert inspect.signature(Admin).parameters.keys() == inspect.signature(AsyncAdmin).parameters.keys()


def test_a_topic_is_created_listed_grown_and_deleted(ask: Ask, name: str) -> None:
    spec = TopicSpec(partitions=2, replication_factor=3, config={"retention.ms": 60_000})
    assert ask("create_topics", {name: spec}) == {name: (2, 3)}

    (topic,) = [each for each in ask("list_topics") if each.name == name]
    assert [sorted(each.replicas) for each in topic.partitions] == [[1, 2, 3]] * 2
    assert all(each.leader is not None for each in topic.partitions)

    ask("add_partitions", name, 5)
    (topic,) = ask("describe_topics", name)
    assert [each.partition for each in topic.partitions] == [0, 1, 2, 3, 4]
    assert topic.settings["retention.ms"].value == "60000"
    assert topic.settings["retention.ms"].source == "DYNAMIC_TOPIC_CONFIG"
    assert topic.settings["retention.bytes"].is_default

    ask("delete_topics", name)
    with pytest.raises(UnknownTopic, match=name):
        ask("describe_topics", name)


def test_a_dry_run_changes_nothing_and_is_refused_where_the_change_would_be(ask: Ask, name: str) -> None:
    ask("create_topics", {name: None}, dry_run=True)
    with pytest.raises(BrokerRefused, match="INVALID_REPLICATION_FACTOR"):
        ask("create_topics", {name: TopicSpec(replication_factor=9)}, dry_run=True)
    assert name not in [topic.name for topic in ask("list_topics")]

    ask("create_topics", {name: None})
    ask("add_partitions", name, 7, dry_run=True)
    change, *_ = ask("alter_topic_settings", name, {"retention.ms": 5}, dry_run=True)
    assert (change.old, change.new) == ("604800000", "5")
    (topic,) = ask("describe_topics", name)
    assert (len(topic.partitions), topic.settings["retention.ms"].value) == (1, "604800000")


def test_of_several_topics_the_possible_ones_are_created_and_the_error_names_the_others(ask: Ask, name: str) -> None:
    with pytest.raises(PartlyDone) as caught:
        ask("create_topics", {name: None, f"{name}-bad": TopicSpec(replication_factor=9)})
    assert caught.value.done == (name,)
    assert list(caught.value.failed) == [f"{name}-bad"]
    with pytest.raises(PartlyDone, match="no such topic"):
        ask("delete_topics", name, f"{name}-missing")
    assert name not in [topic.name for topic in ask("list_topics")]


def test_settings_are_changed_one_by_one_and_say_what_was_and_what_is(admin: Admin, name: str) -> None:
    admin.create_topics({name: TopicSpec(config={"segment.ms": 1_000_000, "retention.ms": 2_000_000})})

    retention, segment = admin.alter_topic_settings(name, {"retention.ms": 3_000_000, "segment.ms": None})
    assert (retention.old, retention.new, retention.is_change) == ("2000000", "3000000", True)
    assert (segment.old, segment.new, segment.new_source) == ("1000000", None, "DEFAULT_CONFIG"), (
        "Kafka names no default here"
    )
    found = admin.topic_settings(name)
    assert (found["retention.ms"].value, found["segment.ms"].value) == ("3000000", "604800000")

    (again,) = admin.alter_topic_settings(name, {"segment.ms": None})
    assert not again.is_change
    (flag,) = admin.alter_topic_settings(name, {"unclean.leader.election.enable": True})
    assert flag.new == "true"

    with pytest.raises(BrokerRefused, match=r"retention\.ms|soon"):
        admin.alter_topic_settings(name, {"retention.ms": "soon"})
    with pytest.raises(UnknownTopic):
        admin.alter_topic_settings(f"{name}-missing", {"retention.ms": 5})
    with pytest.raises(InputError, match="no setting"):
        admin.alter_topic_settings(name, {})


def test_settings_of_one_broker_and_of_all(admin: Admin) -> None:
    (one,) = admin.alter_broker_settings(2, {"message.max.bytes": 2_000_000})
    assert (one.old, one.new) == ("1048588", "2000000")
    (every,) = admin.alter_broker_settings(None, {"message.max.bytes": 3_000_000})
    assert every.new == "3000000"
    found = {number: admin.broker_settings(number)["message.max.bytes"] for number in (1, 2)}
    assert {number: each.value for number, each in found.items()} == {1: "3000000", 2: "2000000"}
    assert found[1].source == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    assert admin.broker_settings(None)["message.max.bytes"].value == "3000000"

    (one,) = admin.alter_broker_settings(2, {"message.max.bytes": None})
    assert (one.new, one.new_source) == ("3000000", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    admin.alter_broker_settings(None, {"message.max.bytes": None})
    with pytest.raises(BrokerUnavailable, match="broker 9 is not"), Admin(admin_servers(admin), timeout_s=0.3) as hasty:
        hasty.broker_settings(9)


def admin_servers(admin: Admin) -> str:
    return ",".join(f"{broker.host}:{broker.port}" for broker in admin.facts(()).brokers)


def test_records_before_an_offset_or_a_time_are_deleted(admin: Admin, cluster: EmbeddedCluster, name: str) -> None:
    admin.create_topics({name: TopicSpec(partitions=2, replication_factor=1)})
    produce(cluster, name, 10)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)

    with pytest.raises(InputError, match="found offset 11, wanted 0 to 10"):
        admin.delete_records({first: 11})
    assert admin.delete_records({first: 4}) == {first: 4}
    assert admin.records_before(name, "-1h") == {first: (4, 4), second: (0, 0)}
    assert admin.records_before(name, "latest") == {first: (4, 10), second: (0, 0)}
    assert admin.delete_records({first: -1}) == {first: 10}
    (topic,) = admin.describe_topics(name)
    assert (topic.partitions[0].log_start, topic.partitions[0].high_watermark) == (10, 10)

    with pytest.raises(UnknownTopic, match="2 partitions"):
        admin.delete_records({TopicPartition(name, 2): 0})
    with pytest.raises(ConfigError, match="wanted earliest"):
        admin.records_before(name, "yesterday")


@pytest.mark.parametrize("bad", ["", "..", "no spaces", "x" * 250])
def test_a_name_that_no_topic_can_have_is_refused_before_anything_is_asked(bad: str) -> None:
    with Admin("localhost:1") as nowhere:
        with pytest.raises(InputError, match="wanted a name of 1 to 249"):
            nowhere.create_topics({bad: None})
        with pytest.raises(InputError, match="wanted a name of 1 to 249"):
            nowhere.delete_topics(bad)


def test_an_address_that_refuses_is_an_error_that_names_it(name: str) -> None:
    with Admin("localhost:1", timeout_s=30) as nowhere, pytest.raises(BrokerUnavailable, match="localhost:1"):
        nowhere.list_topics()


def test_a_closed_admin_asks_nothing(cluster: EmbeddedCluster) -> None:
    closed = Admin(cluster.bootstrap_servers)
    closed.close()
    closed.close()
    with pytest.raises(LifecycleError):
        closed.list_topics()


def test_only_what_is_wanted_is_read(admin: Admin, name: str) -> None:
    admin.create_topics({name: None})
    facts = admin.facts({Part.OFFSETS}, topics=[name])
    assert facts.parts == (Part.OFFSETS, Part.TOPICS)
    assert [topic.name for topic in facts.topics] == [name]
    assert facts.topics[0].settings == {}
    assert facts.brokers[0].log_dirs is None
    assert facts.topic_bytes(name) is None
