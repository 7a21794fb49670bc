"""Topic aliases of MQTT 5.0."""

from __future__ import annotations

from publisher_client import Client

from ottla.bridge.mqtt.codes import V5, Property, Reason


def test_topic_aliases_stand_for_topics():
    client = Client(V5)
    client.publish(1, topic="long/topic", properties={Property.TOPIC_ALIAS: 3})
    client.publish(2, topic="", properties={Property.TOPIC_ALIAS: 3})
    assert [client.take().topic for _ in range(2)] == ["long/topic"] * 2
    client.publish(3, topic="", properties={Property.TOPIC_ALIAS: 4})
    assert client.session.closing == "topic alias 4 stands for no topic yet"
    other = Client(V5)
    other.publish(1, properties={Property.TOPIC_ALIAS: 33})
    assert other.packets()[0][1][0] == Reason.TOPIC_ALIAS_INVALID


def test_topics_that_are_kept_for_aliases_are_bounded():
    client = Client(V5)
    for _ in range(3):  # another topic for an alias takes the place of the one before
        client.publish(1, qos=0, topic="a" * 40_000, properties={Property.TOPIC_ALIAS: 1})
        client.take()
    assert client.session.closing is None
    client.publish(1, qos=0, topic="a" * 40_000, properties={Property.TOPIC_ALIAS: 2})
    assert client.session.closing == "topic aliases of 80,000 characters"
