"""A publisher's session, without a socket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from publisher_client import Client

from ottla.bridge.acknowledger import UNKNOWN
from ottla.bridge.mqtt import packet_decoding as decoding
from ottla.bridge.mqtt import packet_encoding as encoding
from ottla.bridge.mqtt.codes import V5, V311, PacketType, Property, Reason
from ottla.bridge.mqtt.listener_limits import ListenerLimits
from ottla.bridge.mqtt.packet_frames import Framer
from ottla.bridge.mqtt.packets import Connect, Publish, Will
from ottla.bridge.mqtt.publisher_session import PublisherSession
from ottla.bridge.mqtt.refusal_packets import NO_SUBSCRIPTIONS
from ottla.bridge.mqtt.session_state import SessionState

NOWHERE = Will(topic="", payload=b"gone", qos=0, retain=False)
"""A will with an empty topic, which no message may have (MQTT-4.7.3-1)."""


@pytest.mark.parametrize("version", [V311, V5])
def test_pubacks_leave_in_the_order_of_the_publishes(version: int):
    client = Client(version)
    for packet_id in (5, 9, 2):
        client.publish(packet_id)
    slots = [client.take().answer for _ in range(3)]
    slots[2].settle(0)
    slots[1].settle(0)
    assert client.acks() == []
    slots[0].settle(0)
    assert client.acks() == [(PacketType.PUBACK, 5, 0), (PacketType.PUBACK, 9, 0), (PacketType.PUBACK, 2, 0)]


def test_a_ping_is_answered_while_messages_wait():
    client = Client(V311, limits=ListenerLimits(receive_maximum=1))
    client.publish(1)
    client.publish(2)
    client.take()
    assert client.session.next_publish() is None  # the window is full
    client.send(encoding.PINGREQ)
    assert bytes(client.session.out) == encoding.PINGRESP


def test_a_client_of_5_that_exceeds_the_receive_maximum_is_disconnected():
    client = Client(V5, limits=ListenerLimits(receive_maximum=2))
    for packet_id in (1, 2, 3):
        client.publish(packet_id)
    (first, body), *_ = client.packets()
    assert first >> 4 == PacketType.DISCONNECT
    assert body[0] == Reason.RECEIVE_MAXIMUM_EXCEEDED
    assert client.session.closing is not None


def test_a_client_of_311_waits_and_the_socket_is_not_read():
    limits = ListenerLimits(receive_maximum=1, max_waiting_bytes=1_000)
    client = Client(V311, limits=limits)
    for packet_id in range(1, 40):
        client.publish(packet_id)
    assert client.session.is_full
    for packet_id in range(1, 40):
        client.session.resume()
        publish = client.take()
        assert publish.packet_id == packet_id
        publish.answer.settle(0)
    assert not client.session.is_full
    assert [ack[1] for ack in client.acks()] == list(range(1, 40))


def test_messages_behind_a_full_window_are_kept_as_bytes_and_read_in_order():
    client = Client(V311, limits=ListenerLimits(receive_maximum=1, max_waiting_bytes=10_000))
    packets = b"".join(
        encoding.encode_publish(Publish("a", b"", qos=1, packet_id=packet_id), V311) for packet_id in range(1, 5_001)
    )
    client.send(packets[:30_000])
    client.send(packets[30_000:])  # what a socket had read already
    assert client.session.is_full
    assert len(client.session.inbox) <= 160, "an object takes a hundred times as much memory as its packet"
    for packet_id in range(1, 5_001):
        client.session.resume()
        publish = client.take()
        assert publish.packet_id == packet_id
        publish.answer.settle(0)
    assert client.session.inbox_bytes == 0
    assert [ack[1] for ack in client.acks()] == list(range(1, 5_001))


def test_a_qos_2_message_with_an_id_that_is_not_released_is_not_forwarded_again():
    state = SessionState()
    client = Client(V5, state=state, clean_start=False)
    client.publish(7, qos=2)
    receipt = client.take().answer
    client.publish(7, qos=2, dup=True)
    assert client.session.next_publish() is None  # the first is on its way
    client.session.lost()
    again = Client(V5, state=state, clean_start=False)
    again.publish(7, qos=2, dup=True)
    assert again.session.next_publish() is None
    receipt.settle(0)  # Kafka has it: the client's new connection is answered
    assert client.acks() == []
    assert again.acks() == [(PacketType.PUBREC, 7, 0)]
    again.publish(7, qos=2, dup=True)
    assert again.session.next_publish() is None
    assert again.acks() == [(PacketType.PUBREC, 7, 0)]
    again.send(encoding.encode_ack(PacketType.PUBREL, 7, 0, V5))
    assert again.acks() == [(PacketType.PUBCOMP, 7, 0)]
    again.publish(7, qos=2)
    assert again.take().answer is not None  # the id is free: a new message


@pytest.mark.parametrize("version", [V311, V5])
def test_a_qos_2_message_that_is_sent_again_while_it_is_on_its_way_blocks_no_acknowledgement(version: int):
    client = Client(version)
    client.publish(7, qos=2)
    receipt = client.take().answer
    client.publish(7, qos=2, dup=True)
    client.publish(8)
    slot = client.take().answer
    slot.settle(0)
    assert client.acks() == []
    receipt.settle(0)
    assert client.acks() == [(PacketType.PUBREC, 7, 0), (PacketType.PUBACK, 8, 0)]
    assert client.session.unacknowledged == 0


def test_a_release_of_an_unknown_id_is_answered():
    client = Client(V5)
    client.send(encoding.encode_ack(PacketType.PUBREL, 9, 0, V5))
    assert client.acks() == [(PacketType.PUBCOMP, 9, Reason.PACKET_ID_NOT_FOUND)]


def test_a_refusal_has_a_reason_code_in_5_and_ends_the_connection_in_311():
    client = Client(V5)
    client.publish(1)
    client.publish(2)
    first, second = client.take().answer, client.take().answer
    first.settle(Reason.PAYLOAD_FORMAT_INVALID, "not JSON")
    second.settle(0)
    assert client.acks() == [(PacketType.PUBACK, 1, Reason.PAYLOAD_FORMAT_INVALID), (PacketType.PUBACK, 2, 0)]

    old = Client(V311)
    old.publish(1)
    old.publish(2)
    first, second = old.take().answer, old.take().answer
    second.settle(Reason.PAYLOAD_FORMAT_INVALID, "not JSON")
    assert old.session.closing is None
    first.settle(0)  # what is before it is acknowledged
    assert old.acks() == [(PacketType.PUBACK, 1, 0)]
    assert old.session.closing == "not JSON"


@pytest.mark.parametrize("version", [V311, V5])
def test_what_kafka_may_not_have_is_never_acknowledged(version: int):
    client = Client(version)
    client.publish(1)
    client.publish(2)
    first, second = client.take().answer, client.take().answer
    first.settle(UNKNOWN, "timed out")
    second.settle(0)
    assert all(frame[0] >> 4 == PacketType.DISCONNECT for frame in client.packets())
    assert client.session.closing == "timed out"


@pytest.mark.parametrize("version", [V311, V5])
def test_a_subscription_is_refused_in_words_and_the_connection_stays(version: int):
    client = Client(version)
    client.send(encoding.encode_subscribe(4, [("a/#", 1), ("b", 0)], version))
    (first, body), *_ = client.packets()
    found = decoding.decode_suback(body, version)
    assert (PacketType(first >> 4), found.packet_id, len(found.codes)) == (PacketType.SUBACK, 4, 2)
    assert all(code >= 0x80 for code in found.codes)
    if version == V5:
        assert found.properties[Property.REASON_STRING] == NO_SUBSCRIPTIONS
    client.publish(1)
    assert client.take()


def test_the_connack_names_the_limits():
    client = Client(V5, limits=ListenerLimits(receive_maximum=7, max_qos=1, max_packet_bytes=5_000))
    found = decoding.decode_connack(client.connack[1], V5)
    assert found.properties[Property.RECEIVE_MAXIMUM] == 7
    assert found.properties[Property.MAXIMUM_QOS] == 1
    assert found.properties[Property.MAXIMUM_PACKET_SIZE] == 5_000
    client.publish(1, qos=2)
    assert client.packets()[0][1][0] == Reason.QOS_NOT_SUPPORTED


def test_nothing_is_read_before_the_connect_is_answered():
    session = PublisherSession(ListenerLimits())
    connect = encoding.encode_connect(Connect(client_id="c", version=V311))
    session.receive(connect + encoding.PINGREQ + encoding.encode_publish(Publish("a", b"1", qos=1, packet_id=1), V311))
    assert session.is_full
    assert not session.out
    assert not session.inbox
    session.accept(SessionState(), session_present=False, client_id="c")
    assert bytes(session.out) == b"\x20\x02\0\0" + encoding.PINGRESP
    assert len(session.inbox) == 1


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (encoding.PINGREQ, b""),  # no CONNECT
        (b"\x10\x0c\0\4MQTT\x03\2\0\0\0\0", b"\x20\2\0\1"),  # a version that nobody speaks
        (b"GET / HTTP/1.1\r\n\r\n", b""),
        (encoding.encode_connect(Connect(client_id="", version=V311, clean_start=False)), b"\x20\2\0\2"),
        (encoding.encode_connect(Connect(client_id="c", version=V311, will=NOWHERE)), b""),
        (encoding.encode_connect(Connect(client_id="c", version=V5, will=NOWHERE)), b""),
    ],
)
def test_a_bad_beginning_ends_the_session(data: bytes, answer: bytes):
    session = PublisherSession(ListenerLimits())
    session.receive(data)
    assert session.closing is not None
    if answer != b"\x20\2\0\1":
        assert bytes(session.out) == answer


def test_unreleased_qos_2_messages_are_bounded():
    client = Client(V311, limits=ListenerLimits(max_unreleased=3))
    for packet_id in range(1, 5):
        client.publish(packet_id, qos=2)
    for _ in range(3):
        client.take().answer.settle(0)
    assert client.session.next_publish() is None
    assert "not released" in str(client.session.closing)


@given(st.lists(st.binary(max_size=40), max_size=8), st.sampled_from([V311, V5]))
def test_any_bytes_behind_a_connect_end_the_session_or_are_packets(chunks: list[bytes], version: int):
    client = Client(version)
    for chunk in chunks:
        client.send(chunk)
    while client.session.next_publish() is not None:
        pass
    Framer(max_packet_bytes=1 << 20).feed(bytes(client.session.out))
