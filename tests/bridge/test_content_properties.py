"""Properties of AMQP 0-9-1 messages, as pika encodes them and as it cannot."""

from __future__ import annotations

import math
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.bridge.amqp.amqp_messages import envelope_of
from ottla.bridge.amqp.content_properties import ContentProperties, decode_properties

pika = pytest.importorskip("pika", reason="pika is not installed: pip install 'ottla[amqp]'")

HEADERS = {
    "text": "å",
    "binary": b"\xff",
    "none": None,
    "yes": True,
    "small": -1,
    "large": 2**40,
    "decimal": Decimal("1.25"),
    "table": {"deep": [1, "a", {"deeper": None}]},
}


def encoded(**given: object) -> bytes:
    return b"".join(pika.BasicProperties(**given).encode())


def with_header(value: bytes) -> bytes:
    """Properties with one header, n, whose type and value are these bytes."""
    table = b"\1n" + value
    return struct.pack(">HI", pika.BasicProperties.FLAG_HEADERS, len(table)) + table


def test_properties_are_those_that_the_publisher_gave():
    found = decode_properties(
        encoded(
            content_type="text/plain",
            content_encoding="gzip",
            headers=HEADERS,
            delivery_mode=2,
            priority=3,
            correlation_id="c",
            reply_to="r",
            expiration="5",
            message_id="m",
            timestamp=1_700_000_000,
            type="t",
            user_id="u",
            app_id="a",
            cluster_id="z",
        )
    )
    assert found == ContentProperties(
        content_type="text/plain",
        headers={**HEADERS, "binary": "\ufffd"},
        correlation_id="c",
        reply_to="r",
        expiration="5",
        message_id="m",
        type="t",
        user_id="u",
        app_id="a",
    )
    assert decode_properties(encoded()) == ContentProperties()


@pytest.mark.parametrize("value", [2.5, math.inf, 1e300])
def test_a_double_is_what_it_was(value: float):
    assert decode_properties(with_header(struct.pack(">cd", b"d", value))).headers == {"n": value}


def test_what_pika_does_not_decode_is_decoded():
    headers = decode_properties(with_header(struct.pack(">cd", b"d", math.nan))).headers or {}
    assert math.isnan(headers["n"])
    assert decode_properties(with_header(b"T" + b"\xff" * 8)).headers == {"n": 2**64 - 1}
    assert envelope_of(b"", b"\xff.a", encoded()).message.topic == "\ufffd.a"


def test_what_is_malformed_has_a_reason():
    whole = encoded(content_type="text/plain", headers={"a": {"b": [1]}}, message_id="m")
    for size in range(len(whole)):
        with pytest.raises(ValueError, match=r"too early|extends past"):
            decode_properties(whole[:size])
    deep = b"V"
    for _ in range(100):
        deep = b"A" + len(deep).to_bytes(4, "big") + deep
    for value in (b"?", deep):
        with pytest.raises(ValueError, match="found"):
            decode_properties(with_header(value))
    envelope = envelope_of(b"", b"a", with_header(b"?"))
    assert (envelope.message.topic, envelope.problem) == ("a", "found a field of type b'?'")


@given(st.binary(max_size=80), st.booleans())
def test_any_bytes_are_properties_or_a_value_error(data: bytes, has_header: bool):
    try:
        envelope_of(b"e", b"k", with_header(data) if has_header else data)
        decode_properties(data)
    except ValueError:
        pass
