"""Messages of AMQP 0-9-1 deliveries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ottla.bridge.inbound_message import Message
from ottla.bridge.mapping.record_headers import cloud_event_headers, id_of_event

_EVENT_PREFIXES: Final = ("cloudEvents:", "cloudEvents_")
_LONGEST_EXPIRATION: Final = 15


def message_of_delivery(*, exchange: str, routing_key: str, properties: Any, body: bytes) -> Message:
    """Return the message of a delivery; `properties` are pika's `BasicProperties`.

    A publisher's `message_id` becomes `ottla-id`: a message that RabbitMQ delivers again has the same.
    """
    message = Message(
        routing_key,
        body,
        client_id=properties.app_id or "",
        user=properties.user_id or "",
        origin=exchange,
        content_type=properties.content_type,
        reply_to=properties.reply_to,
        correlation=None if properties.correlation_id is None else properties.correlation_id.encode(),
        expiry_ms=_expiry_ms(properties.expiration),
        message_id=properties.message_id,
    )
    headers: Mapping[str, Any] = properties.headers or {}
    if not (headers or exchange or properties.type):
        return message  # mostly: nothing to make headers of
    pairs = [(name, _text(value)) for name, value in headers.items()]
    if exchange:
        pairs.append(("amqp-exchange", exchange))
    if properties.type:
        pairs.append(("amqp-type", properties.type))
    event = cloud_event_headers(pairs, prefixes=_EVENT_PREFIXES)
    if event is None:
        message.headers = [(name, value.encode()) for name, value in pairs]
    else:
        message.headers = event
        message.message_id = id_of_event(event) or message.message_id
    return message


def _expiry_ms(text: str | None) -> int | None:
    """Return the milliseconds of `expiration`, None where it is no number."""
    if text and text.isascii() and text.isdigit() and len(text) <= _LONGEST_EXPIRATION:
        return int(text)
    return None


def _text(value: Any) -> str:
    """Return a header's value as text: numbers in decimal, tables and lists as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value is None or isinstance(value, bool | dict | list):
        return json.dumps(value, default=str)
    return str(value)
