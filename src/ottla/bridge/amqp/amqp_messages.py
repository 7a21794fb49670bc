"""Messages of AMQP 0-9-1 deliveries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ottla.bridge.amqp.content_properties import ContentProperties, decode_properties
from ottla.bridge.inbound_message import Message
from ottla.bridge.mapping.record_headers import cloud_event_headers, id_of_event

_EVENT_PREFIXES: Final = ("cloudEvents:", "cloudEvents_")
_LONGEST_EXPIRATION: Final = 15


class Envelope:
    """Everything of a delivery but its tag and its body. `properties` are named as pika's `BasicProperties`.

    A publisher's `message_id` becomes `ottla-id`: a message that RabbitMQ delivers again has the same.
    """

    __slots__ = ("message", "problem")

    def __init__(
        self, exchange: str | bytes, routing_key: str | bytes, properties: Any, *, problem: str | None = None
    ) -> None:
        self.message = _message(_text(exchange), _text(routing_key), properties)
        """The message without its payload."""
        self.problem = problem
        """Why the properties were not decoded, or None."""


def envelope_of(exchange: bytes, routing_key: bytes, properties: bytes) -> Envelope:
    """Return the envelope of a delivery from bytes of its frames."""
    try:
        return Envelope(exchange, routing_key, decode_properties(properties))
    except ValueError as error:
        return Envelope(exchange, routing_key, ContentProperties(), problem=str(error))


def _message(exchange: str, routing_key: str, properties: Any) -> Message:
    message = Message(
        routing_key,
        b"",
        client_id=_text(properties.app_id or ""),
        user=_text(properties.user_id or ""),
        origin=exchange,
        content_type=_optional_text(properties.content_type),
        reply_to=_optional_text(properties.reply_to),
        correlation=None if properties.correlation_id is None else _text(properties.correlation_id).encode(),
        expiry_ms=_expiry_ms(properties.expiration),
        message_id=_optional_text(properties.message_id),
    )
    headers: Mapping[Any, Any] = properties.headers or {}
    if not (headers or exchange or properties.type):
        return message  # mostly: nothing to make headers of
    pairs = [(_text(name), _text(value)) for name, value in headers.items()]
    if exchange:
        pairs.append(("amqp-exchange", exchange))
    if properties.type:
        pairs.append(("amqp-type", _text(properties.type)))
    event = cloud_event_headers(pairs, prefixes=_EVENT_PREFIXES)
    if event is None:
        message.headers = [(name, value.encode()) for name, value in pairs]
    else:
        message.headers = event
        message.message_id = id_of_event(event) or message.message_id
    return message


def _expiry_ms(text: str | bytes | None) -> int | None:
    """Return the milliseconds of `expiration`, None where it is no number."""
    if text and text.isascii() and text.isdigit() and len(text) <= _LONGEST_EXPIRATION:
        return int(text)
    return None


def _optional_text(value: str | bytes | None) -> str | None:
    return None if value is None else _text(value)


def _text(value: Any) -> str:
    """Return a header's value as text: numbers in decimal, tables and lists as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value is None or isinstance(value, bool | dict | list):
        return json.dumps(value, default=str)
    return str(value)
