"""The MQTT codec: against paho-mqtt, in every split, and against hostile bytes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from paho_bytes import client, publish_bytes, written_by

from ottla.bridge.mqtt import packet_decoding as decoding
from ottla.bridge.mqtt import packet_encoding as encoding
from ottla.bridge.mqtt.codes import V5, V311, PacketType, Property, Reason
from ottla.bridge.mqtt.packet_frames import Framer
from ottla.bridge.mqtt.packets import Connack, Connect, Publish, Will
from ottla.bridge.mqtt.primitives import PacketError, Reader, variable

_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
_TOPICS = st.text(st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=60)
_VERSIONS = st.sampled_from([V311, V5])


def framed(data: bytes) -> tuple[int, bytes]:
    frames = Framer(max_packet_bytes=1 << 22).feed(data)
    assert len(frames) == 1
    return frames[0]


@given(
    _VERSIONS,
    _TOPICS,
    st.binary(max_size=300),
    st.integers(0, 2),
    st.integers(1, 65_535),
    st.booleans(),
    st.booleans(),
    st.lists(st.tuples(_TEXT, _TEXT), max_size=3),
    st.none() | _TEXT,
    st.none() | st.integers(0, 2**32 - 1),
    st.none() | st.binary(max_size=20),
)
def test_a_publish_is_read_as_paho_wrote_it_and_written_the_same(
    version, topic, payload, qos, packet_id, retain, dup, user, content_type, expiry_s, correlation
):
    dup = dup and qos > 0
    written = publish_bytes(
        version,
        topic,
        payload,
        qos=qos,
        packet_id=packet_id,
        retain=retain,
        dup=dup,
        user=user,
        content_type=content_type,
        expiry_s=expiry_s,
        correlation=correlation,
    )
    first, body = framed(written)
    found = decoding.decode_publish(first & 15, body, version)
    wanted = Publish(topic, payload, qos=qos, packet_id=packet_id if qos else 0, retain=retain, dup=dup)
    if version == V5:
        given_properties = {
            Property.USER_PROPERTY: user or None,
            Property.CONTENT_TYPE: content_type,
            Property.MESSAGE_EXPIRY: expiry_s,
            Property.CORRELATION_DATA: correlation,
        }
        wanted.properties = {int(name): value for name, value in given_properties.items() if value is not None}
    assert found == wanted
    again = encoding.encode_publish(found, version)
    assert decoding.decode_publish(framed(again)[0] & 15, framed(again)[1], version) == wanted
    assert len(again) == len(written)


@pytest.mark.parametrize("version", [V311, V5])
def test_a_connect_is_read_as_paho_wrote_it(version: int):
    made = client(version, "sensor-7", clean=False)
    made.username_pw_set("ann", "secret")
    made.will_set("status/7", b"gone", qos=1, retain=True)
    first, body = framed(written_by(made, "_send_connect", 60))
    found = decoding.decode_connect(first & 15, body)
    assert (found.client_id, found.version, found.keep_alive_s) == ("sensor-7", version, 60)
    assert (found.username, found.password) == ("ann", b"secret")
    assert found.will == Will(topic="status/7", payload=b"gone", qos=1, retain=True)
    written = encoding.encode_connect(found)
    assert decoding.decode_connect(0, framed(written)[1]) == found
    assert b"secret" not in repr(found).encode()


def _stream() -> bytes:
    """One of each packet, and lengths of one to three bytes."""
    packets = [encoding.encode_connect(Connect(client_id="c", version=V5, keep_alive_s=5))]
    for size in (0, 3, 200, 17_000):
        packets.append(encoding.encode_publish(Publish("a/b", b"x" * size, qos=1, packet_id=7), V5))
    packets.append(encoding.encode_ack(PacketType.PUBREL, 7, 0, V5))
    packets.append(encoding.PINGREQ)
    packets.append(encoding.encode_subscribe(3, [("a/#", 1)], V5))
    packets.append(encoding.encode_connack(Connack(code=0), V5))
    packets.append(encoding.encode_disconnect(0, V5))
    return b"".join(packets)


def test_packets_are_the_same_in_every_split():
    data = _stream()
    whole = Framer(max_packet_bytes=1 << 20).feed(data)
    assert len(whole) == 10
    for at in [*range(len(data) - 16_990), *range(len(data) - 100, len(data))]:
        framer = Framer(max_packet_bytes=1 << 20)
        assert framer.feed(data[:at]) + framer.feed(data[at:]) == whole, at
    framer = Framer(max_packet_bytes=1 << 20)
    assert [frame for byte in data for frame in framer.feed(bytes([byte]))] == whole
    assert not framer.kept


@given(st.lists(st.integers(1, 3_000), max_size=30))
def test_packets_are_the_same_in_any_splits(sizes: list[int]):
    data = _stream()
    framer = Framer(max_packet_bytes=1 << 20)
    frames, at = [], 0
    for size in sizes:
        frames += framer.feed(data[at : at + size])
        at += size
    assert frames + framer.feed(data[at:]) == Framer(max_packet_bytes=1 << 20).feed(data)


def test_a_length_over_the_limit_is_refused_before_the_packet_comes():
    framer = Framer(max_packet_bytes=1_000)
    with pytest.raises(PacketError) as caught:
        framer.feed(b"\x30\xff\xff\xff\x7f")
    assert caught.value.reason is Reason.PACKET_TOO_LARGE
    with pytest.raises(PacketError):
        Framer(max_packet_bytes=1_000).feed(b"\x30\xff\xff\xff\xff\x01")
    assert Framer(max_packet_bytes=1_000).feed(b"\x30" + variable(997) + b"x" * 997)


def test_a_packet_byte_by_byte_is_copied_once():
    framer = Framer(max_packet_bytes=1 << 20)
    assert not framer.feed(b"\x30" + variable(500_000))
    rest = framer._rest
    for _ in range(3):
        framer.feed(b"x")
        assert framer._rest is rest  # nothing is copied before the packet is there


@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (16_383, "ff7f"), (16_384, "808001"), (268_435_455, "ffffff7f")],
)
def test_lengths_are_those_of_the_standard(number: int, encoded: str):
    assert variable(number).hex() == encoded
    assert Reader(bytes.fromhex(encoded)).variable() == number


@pytest.mark.parametrize(
    ("flags", "body", "version", "reason"),
    [
        (2, b"\0\x01a", V311, Reason.MALFORMED_PACKET),  # no packet id
        (2, b"\0\x01a\0\0", V311, Reason.PROTOCOL_ERROR),  # packet id 0
        (6, b"\0\x01a\0\1", V311, Reason.MALFORMED_PACKET),  # QoS 3
        (8, b"\0\x01a", V311, Reason.MALFORMED_PACKET),  # DUP at QoS 0
        (0, b"\0\x02\xc3\x28", V311, Reason.MALFORMED_PACKET),  # not UTF-8
        (0, b"\0\x03\xed\xa0\x80", V311, Reason.MALFORMED_PACKET),  # a surrogate
        (0, b"\0\x02a\0", V311, Reason.MALFORMED_PACKET),  # U+0000
        (0, b"\0\x03a/+", V311, Reason.TOPIC_NAME_INVALID),
        (0, b"\0\0", V311, Reason.PROTOCOL_ERROR),  # an empty topic
        (0, b"\xff\xffa", V311, Reason.MALFORMED_PACKET),
        (0, b"\0", V311, Reason.MALFORMED_PACKET),
        (0, b"\0\x01a\x05\x02\0\0\0\1", V5, None),
        (0, b"\0\x01a\x0a\x02\0\0\0\1\x02\0\0\0\1", V5, Reason.PROTOCOL_ERROR),  # twice
        (0, b"\0\x01a\x03\x11\0\0", V5, Reason.PROTOCOL_ERROR),  # a property of CONNECT
        (0, b"\0\x01a\x01\x7f", V5, Reason.MALFORMED_PACKET),  # no property
        (0, b"\0\x01a\x7f", V5, Reason.MALFORMED_PACKET),  # more properties than bytes
        (0, b"\0\x01a", V5, Reason.MALFORMED_PACKET),  # no properties
    ],
)
def test_a_bad_publish_has_its_reason(flags: int, body: bytes, version: int, reason: Reason | None):
    if reason is None:
        decoding.decode_publish(flags, body, version)
        return
    with pytest.raises(PacketError) as caught:
        decoding.decode_publish(flags, body, version)
    assert caught.value.reason is reason


def test_user_properties_of_a_client_are_bounded_and_those_of_a_broker_are_not():
    def body(pairs: int) -> bytes:
        properties = bytes((Property.USER_PROPERTY, 0, 0, 0, 0)) * pairs
        return b"\0\x01a" + variable(len(properties)) + properties

    assert decoding.decode_publish(0, body(1_000), V5).properties
    with pytest.raises(PacketError, match="more than 1,000 user properties") as caught:
        decoding.decode_publish(0, body(1_001), V5)
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    assert decoding.decode_publish(0, body(1_001), V5, most_pairs=2_000).properties


@given(st.integers(0, 15), st.binary(max_size=80), _VERSIONS)
@example(0, b"\x00\x01a\x0b\x26\x00\x01a\x00\x05abcde", V5)
def test_any_bytes_are_packets_or_packet_errors(flags: int, body: bytes, version: int):
    readers = [
        lambda: decoding.decode_connect(0, b"\0\4MQTT" + body),
        lambda: decoding.decode_connect(0, body),
        lambda: decoding.decode_publish(flags, body, version),
        lambda: decoding.decode_ack(PacketType.PUBREL, 2, body, version),
        lambda: decoding.decode_disconnect(0, body, version),
        lambda: decoding.decode_subscribe(PacketType.SUBSCRIBE, 2, body, version),
        lambda: decoding.decode_connack(body, version),
        lambda: decoding.decode_suback(body, version),
    ]
    for read in readers:
        with suppress(PacketError):
            read()
