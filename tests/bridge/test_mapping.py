"""Which record a message becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla import ConfigError, Json
from ottla.bridge.amqp.amqp_messages import Envelope
from ottla.bridge.inbound_message import Message
from ottla.bridge.mapping.mapping_file import mapping_of, read_mapping, rule_of_option
from ottla.bridge.mapping.rules import OutRecord, Refusal, Rule, Target, TopicMapping
from ottla.bridge.mapping.topic_patterns import TopicPattern
from ottla.bridge.mqtt.codes import Property
from ottla.bridge.mqtt.packets import Publish
from ottla.bridge.mqtt.published_messages import described, id_of_qos2


def record_of(mapping: TopicMapping, message: Message) -> OutRecord | Refusal:
    target = mapping.target_of(message)
    return target if isinstance(target, Refusal) else mapping.record_of(message, target, 1_000)


def record(mapping: TopicMapping, message: Message) -> OutRecord:
    found = record_of(mapping, message)
    assert isinstance(found, OutRecord)
    return found


@pytest.mark.parametrize(
    ("pattern", "topic", "captured"),
    [
        ("a/b", "a/b", []),
        ("a/b", "a/b/c", None),
        ("a/+", "a/b", ["b"]),
        ("a/+", "a", None),
        ("a/+", "a/", [""]),
        ("+/b/+", "x/b/z", ["x", "z"]),
        ("a/#", "a/b/c", ["b/c"]),
        ("a/#", "a", [""]),
        ("#", "a/b", ["a/b"]),
        ("#", "$SYS/load", None),
        ("+/load", "$SYS/load", None),
        ("$SYS/#", "$SYS/load", ["load"]),
    ],
)
def test_patterns_match_as_the_standard_says(pattern: str, topic: str, captured: list[str] | None):
    assert TopicPattern(pattern).match(topic) == captured


@pytest.mark.parametrize("pattern", ["", "a/#/b", "a+", "a/b#", "#/a"])
def test_a_bad_pattern_is_refused(pattern: str):
    with pytest.raises(ConfigError, match="found"):
        TopicPattern(pattern, "map 1: from")


@given(st.text(max_size=40), st.text("ab/+#", min_size=1, max_size=12))
def test_any_topic_is_matched_or_not(topic: str, pattern: str):
    try:
        made = TopicPattern(pattern)
    except ConfigError:
        return
    captured = made.match(topic)
    assert captured is None or len(captured) == made.wildcards


def test_a_rule_fills_in_levels_topic_client_and_user():
    rule = Rule("sensors/+/#", "temp-{1}", key="{client}:{2}", headers={"by": "{user}", "unit": "C"})
    found = record(TopicMapping([rule]), Message("sensors/7/a/b", b"21", client_id="c", user="ann"))
    assert (found.topic, found.key, found.value) == ("temp-7", b"c:a/b", b"21")
    assert dict(found.headers) == {"mqtt-topic": b"sensors/7/a/b", "by": b"ann", "unit": b"C"}


def test_the_key_is_the_topic_unless_a_rule_says_otherwise():
    mapping = TopicMapping([Rule("a/#", "one"), Rule("#", "rest", key=None)])
    assert record(mapping, Message("a/b", b"")).key == b"a/b"
    assert record(mapping, Message("b", b"")).key is None
    first, second = mapping.target_of(Message("a/b", b"1")), mapping.target_of(Message("a/b", b"2"))
    assert first is second  # one topic is looked up once


def test_a_message_that_no_rule_is_for_is_refused():
    mapping = TopicMapping([Rule("a/+", "to-{1}")])
    refusal = record_of(mapping, Message("b", b""))
    assert isinstance(refusal, Refusal)
    assert "no rule" in refusal.text
    refusal = record_of(mapping, Message("a/not valid", b""))
    assert isinstance(refusal, Refusal)
    assert "is not the name of a Kafka topic" in refusal.text


def test_topics_of_hostile_publishers_are_not_kept_for_ever():
    mapping = TopicMapping([Rule("#", "m")])
    for number in range(25_000):
        mapping.target_of(Message(f"t/{number}", b""))
    assert len(mapping._cached) <= 10_000


def test_a_payload_that_its_serde_does_not_take_is_refused_with_the_reason():
    mapping = TopicMapping([Rule("#", "m", value=Json(dict[str, int]))])
    assert record(mapping, Message("a", b'{"t": 1}')).value == b'{"t": 1}'
    for payload, kind in ((b"{", "malformed"), (b'{"t": "x"}', "invalid")):
        refusal = record_of(mapping, Message("a", payload))
        assert isinstance(refusal, Refusal)
        assert refusal.kind == kind


def test_properties_become_headers():
    properties: dict[int, Any] = {
        Property.CONTENT_TYPE: "text/plain",
        Property.RESPONSE_TOPIC: "answers",
        Property.CORRELATION_DATA: b"\1\2",
        Property.MESSAGE_EXPIRY: 9,
        Property.USER_PROPERTY: [
            ("traceparent", "00-aa-bb-01"),
            ("x", "1"),
            ("x", "2"),
            ("ottla-id", "mine"),
            ("ottla-dlq-topic", "forged"),
            ("Ottla-Expires-At", "0"),
        ],
    }
    publish = Publish("a", b"", retain=True, properties=properties)
    found = record(TopicMapping([Rule("#", "m")]), described(publish, client_id="c", user=""))
    assert found.headers == [
        ("mqtt-topic", b"a"),
        ("traceparent", b"00-aa-bb-01"),
        ("x", b"1"),
        ("x", b"2"),
        ("content-type", b"text/plain"),
        ("mqtt-retain", b"1"),
        ("reply-to", b"answers"),
        ("correlation-id", b"\1\2"),
        ("ottla-expires-at", b"10000"),
        ("ottla-id", b"mine"),
    ]


def test_a_cloud_event_of_mqtt_has_ce_headers_and_its_id():
    pairs = [("specversion", "1.0"), ("id", "7"), ("source", "/s"), ("type", "t"), ("traceparent", "00-a-b-01")]
    publish = Publish("a", b"{}", properties={Property.USER_PROPERTY: pairs, Property.CONTENT_TYPE: "application/json"})
    found = dict(record(TopicMapping([Rule("#", "m")]), described(publish, client_id="c", user="")).headers)
    assert found["ce_id"] == b"7"
    assert found["ce_type"] == b"t"
    assert found["content-type"] == b"application/json"
    assert found["traceparent"] == b"00-a-b-01"
    assert found["ottla-id"] == b"/s/7"
    assert "id" not in found


def test_a_repeated_qos_2_message_has_the_same_id_and_another_has_not():
    first = Publish("a", b"1", qos=2, packet_id=5)
    again = Publish("a", b"1", qos=2, packet_id=5, dup=True)
    assert id_of_qos2("c", first) == id_of_qos2("c", again)
    others = [Publish("a", b"1", qos=2, packet_id=6), Publish("a", b"2", qos=2, packet_id=5), Publish("b", b"1", qos=2)]
    assert len({id_of_qos2("c", each) for each in [first, *others]} | {id_of_qos2("d", first)}) == 5


def test_an_amqp_message_is_matched_by_its_routing_key_and_mapped():
    properties_of = pytest.importorskip(
        "pika", reason="pika is not installed: pip install 'ottla[amqp]'"
    ).BasicProperties
    properties = properties_of(
        content_type="text/plain",
        headers={"n": 1, "deep": {"a": [1]}, "ottla-dlq-kind": "x"},
        correlation_id="c1",
        reply_to="answers",
        expiration="2000",
        message_id="m1",
        type="order",
    )
    message = Envelope("shop", "order.eu.new", properties).message.with_payload(b"1")
    mapping = TopicMapping([Rule("order/+/#", "orders", key="{1}")], topic_header="amqp-routing-key")
    found = record(mapping, message)
    assert (found.topic, found.key) == ("orders", b"eu")
    assert dict(found.headers) == {
        "amqp-routing-key": b"order.eu.new",
        "n": b"1",
        "deep": b'{"a": [1]}',
        "amqp-exchange": b"shop",
        "amqp-type": b"order",
        "content-type": b"text/plain",
        "reply-to": b"answers",
        "correlation-id": b"c1",
        "ottla-expires-at": b"3000",
        "ottla-id": b"m1",
    }
    event = {f"cloudEvents:{name}": "1" for name in ("specversion", "id", "source", "type")}
    message = Envelope("", "order.eu", properties_of(headers=event)).message
    assert dict(record(mapping, message).headers)["ce_source"] == b"1"


def test_a_mapping_file_has_rules_and_serdes(tmp_path: Path):
    path = tmp_path / "bridge.toml"
    path.write_text(
        'dead-letter-topic = "dead"\n[[map]]\nfrom = "s/+"\nto = "temp"\nkey = "{1}"\nvalue = "app:reading"\n'
        'headers = { unit = "C" }\n[[map]]\nfrom = "#"\nto = "rest"\nkey = ""\nvalue = "json"\n'
    )
    found = read_mapping(path, {"app:reading": Json(int)}.__getitem__)
    assert found.dead_letter_topic == "dead"
    assert [rule.to.text for rule in found.rules] == ["temp", "rest"]
    assert found.rules[1].key is None
    target = TopicMapping(found.rules).target_of(Message("s/1", b""))
    assert isinstance(target, Target)
    assert target.check is not None


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ({}, "at least one"),
        ({"map": [{"from": "a"}]}, "map 1: to"),
        ({"map": [{"from": "a", "to": "b", "ky": "c"}]}, "found ky"),
        ({"map": [{"from": "a", "to": "b c"}]}, "name of a Kafka topic"),
        ({"map": [{"from": "a/+", "to": "b", "key": "{2}"}]}, r"found \{2\}"),
        ({"map": [{"from": "a/+", "to": "b", "key": "{0000012}"}]}, r"found \{0000012\}"),
        ({"map": [{"from": "a", "to": "b", "key": "{"}]}, "and no }"),
        ({"map": [{"from": "a", "to": "b", "value": "avro"}]}, "module:name"),
        ({"map": [{"from": "a", "to": "b"}], "dead-letter-topic": "/"}, "dead-letter-topic"),
        ({"maps": []}, "found maps"),
    ],
)
def test_a_bad_mapping_names_the_place(table: dict[str, Any], wanted: str):
    with pytest.raises(ConfigError, match=wanted) as caught:
        mapping_of(table, place="bridge.toml", find=str)
    assert "bridge.toml" in str(caught.value)


def test_a_mapping_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"none.toml: cannot be read: No such file"):
        read_mapping(tmp_path / "none.toml", {}.__getitem__)


def test_a_rule_of_the_command_line():
    rule = rule_of_option("sensors/+/temp=temperature={1}")
    assert (rule.pattern.text, rule.to.text, rule.key and rule.key.text) == ("sensors/+/temp", "temperature", "{1}")
    assert rule_of_option("a=b=").key is None
    with pytest.raises(ConfigError, match="FILTER=TOPIC"):
        rule_of_option("a")


def test_a_header_whose_name_kafka_does_not_take_is_refused_with_its_rule():
    with pytest.raises(ConfigError, match=r"^a rule: headers: found the name 'a\\x00b'"):
        Rule("#", "m", headers={"a\0b": "1"}, name="a rule")
