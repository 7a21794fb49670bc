"""Deliveries of AMQP 0-9-1 in bytes that come in any pieces; pika's own encoder and decoder are the oracle."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.bridge.amqp.delivery_reader import CONSUMER_TAG, MOST_FRAME_BYTES, DeliveryReader

pika = pytest.importorskip("pika", reason="pika is not installed: pip install 'ottla[amqp]'")
spec, frame = pika.spec, pika.frame
HEARTBEAT = frame.Heartbeat().marshal()
OURS = 3
Found = list[Any]


def delivery(
    number: int,
    body: bytes,
    *,
    channel: int = OURS,
    tag: str = CONSUMER_TAG,
    parts: int = 1,
    key: str = "a.b",
    **given: Any,
) -> list[bytes]:
    """The frames of a delivery, its body in so many frames."""
    method = spec.Basic.Deliver(tag, number, False, "shop", key)
    step = -(-len(body) // parts) or 1
    return [
        frame.Method(channel, method).marshal(),
        frame.Header(channel, len(body), pika.BasicProperties(**given)).marshal(),
        *(frame.Body(channel, body[at : at + step]).marshal() for at in range(0, len(body), step)),
    ]


def read(chunks: list[bytes]) -> Found:
    """What a reader makes of chunks: (delivery tag, routing key, content type, body), or the bytes of whole frames."""
    found: Found = []

    def envelope_of(exchange: bytes, routing_key: bytes, encoded: bytes) -> Any:
        assert exchange == b"shop"
        properties = pika.BasicProperties()
        properties.decode(encoded)
        return routing_key.decode(), properties.content_type

    reader: DeliveryReader[Any] = DeliveryReader(
        envelope_of=envelope_of,
        deliver=lambda number, envelope, body: found.append((number, *envelope, body)),
        pass_on=found.append,
    )
    reader.channel = OURS
    for chunk in chunks:
        reader.feed(chunk)
    return found


def scene() -> tuple[bytes, Found]:
    """Bytes, and what a reader makes of them."""
    cancel = frame.Method(OURS, spec.Basic.Cancel("other")).marshal()
    method, header, body = delivery(5, b"later")
    pieces: list[tuple[list[bytes], Found]] = [
        (delivery(1, b"one"), [(1, "a.b", None, b"one")]),
        ([HEARTBEAT], [HEARTBEAT]),
        (delivery(2, b"", content_type="text/plain", headers={"n": 1}), [(2, "a.b", "text/plain", b"")]),
        (delivery(3, b"x" * 100, parts=7, key=""), [(3, "", None, b"x" * 100)]),
        ([cancel], [cancel]),
        (other := delivery(4, b"four", channel=OURS + 1), other),
        (foreign := delivery(4, b"four", tag="other"), foreign),
        (between := [method, HEARTBEAT, header, body], between),
        (between := [method, header, HEARTBEAT, body], between),
        (delivery(6, b"six"), [(6, "a.b", None, b"six")]),
    ]
    return b"".join(part for parts, _ in pieces for part in parts), [each for _, made in pieces for each in made]


def test_deliveries_are_the_same_in_every_split():
    data, wanted = scene()
    assert read([data]) == wanted
    for at in range(len(data)):
        assert read([data[:at], data[at:]]) == wanted, at
    assert read([bytes([byte]) for byte in data]) == wanted


@given(st.lists(st.integers(1, 200), max_size=30))
def test_deliveries_are_the_same_in_any_splits(sizes: list[int]):
    data, wanted = scene()
    chunks, at = [], 0
    for size in sizes:
        chunks.append(data[at : at + size])
        at += size
    assert read([*chunks, data[at:]]) == wanted


@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_damaged_bytes_are_passed_on_or_wait(more: bytes, at: int, byte: int):
    data = bytearray(b"".join(delivery(1, b"one", content_type="a")) + more)
    data[min(at, len(data) - 1)] = byte
    found: Found = []
    reader: DeliveryReader[Any] = DeliveryReader(
        envelope_of=lambda exchange, routing_key, properties: None,
        deliver=lambda number, envelope, body: found.append(body),
        pass_on=found.append,
    )
    reader.channel = OURS
    reader.feed(bytes(data))
    assert all(bytes(each) in data for each in found)


def test_every_byte_is_passed_on_where_no_channel_is_open_or_it_is_no_amqp():
    data = b"".join(delivery(1, b"one")) + b"AMQP\0\0\x09\1" + HEARTBEAT
    found: Found = []
    reader: DeliveryReader[Any] = DeliveryReader(
        envelope_of=lambda *_: pytest.fail("nothing is read"),
        deliver=lambda *_: pytest.fail("nothing is delivered"),
        pass_on=found.append,
    )
    for byte in data:
        reader.feed(bytes([byte]))
    assert b"".join(found) == data


def test_a_frame_over_the_limit_is_not_waited_for():
    too_large = b"\1\0\1" + (MOST_FRAME_BYTES + 1).to_bytes(4, "big")
    assert read([too_large]) == [too_large]


def test_properties_are_decoded_once_and_kept_for_a_bounded_number():
    made = []
    reader: DeliveryReader[Any] = DeliveryReader(
        envelope_of=lambda exchange, routing_key, properties: made.append(routing_key) or routing_key,
        deliver=lambda *_: None,
        pass_on=pytest.fail,
    )
    reader.channel = OURS
    for _ in range(3):
        reader.feed(b"".join(delivery(1, b"one", content_type="a")))
    assert made == [b"a.b"]
    for number in range(2_500):
        reader.feed(b"".join(delivery(1, b"one", message_id=str(number))))
    assert len(made) == 2_501
    assert len(reader._envelopes) <= 1_000


def test_a_body_is_copied_as_often_as_it_has_pieces():
    data = b"".join(delivery(1, b"x" * 1_000_000, parts=10))
    chunks = [data[at : at + 4_096] for at in range(0, len(data), 4_096)]
    joined = []

    class Counting(DeliveryReader[Any]):
        def _delivery(self, data: bytes, at: int, size: int) -> int:
            joined.append(len(data))
            return super()._delivery(data, at, size)

    found: Found = []
    reader = Counting(envelope_of=lambda *_: None, deliver=lambda *each: found.append(each[2]), pass_on=pytest.fail)
    reader.channel = OURS
    for chunk in chunks:
        reader.feed(chunk)
    assert found == [b"x" * 1_000_000]
    assert len(joined) <= 4, "not once for each chunk"
