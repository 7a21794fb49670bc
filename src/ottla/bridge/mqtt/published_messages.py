"""Messages of PUBLISH packets."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from ottla.bridge.inbound_message import Message
from ottla.bridge.mapping.record_headers import cloud_event_headers, id_of_event
from ottla.bridge.mqtt.codes import Property
from ottla.bridge.mqtt.packets import Publish

_MESSAGE_BYTES: Final = 350
_PAIR_BYTES: Final = 160
"""What a message, and a user property, take beside their bytes."""


def described(publish: Publish, *, client_id: str, user: str, message_id: str | None = None) -> Message:
    """Return the PUBLISH with what its properties and its client say of the message."""
    publish.client_id = client_id
    publish.user = user
    publish.message_id = message_id
    if publish.properties:
        _with_properties(publish, publish.properties)
    return publish


def bytes_of_waiting(publish: Publish, body_bytes: int) -> int:
    """Return the memory of a message until it is forwarded."""
    return body_bytes + _MESSAGE_BYTES + _PAIR_BYTES * len(publish.properties.get(Property.USER_PROPERTY, ()))


def id_of_qos2(client_id: str, publish: Publish) -> str:
    """Return the same id for the same QoS 2 message when it is sent again after the bridge was killed.

    It is made of all that such a repetition has in common with the first: client id, packet id, topic and payload.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in (client_id.encode(), publish.packet_id.to_bytes(2, "big"), publish.topic.encode()):
        digest.update(len(part).to_bytes(4, "big") + part)
    digest.update(publish.payload)
    return digest.hexdigest()


def _with_properties(message: Message, found: dict[int, Any]) -> None:
    message.content_type = found.get(Property.CONTENT_TYPE)
    message.reply_to = found.get(Property.RESPONSE_TOPIC)
    message.correlation = found.get(Property.CORRELATION_DATA)
    expiry_s = found.get(Property.MESSAGE_EXPIRY)
    if expiry_s is not None:
        message.expiry_ms = expiry_s * 1000
    pairs = found.get(Property.USER_PROPERTY)
    if not pairs:
        return
    event = cloud_event_headers(pairs)
    if event is None:
        message.headers = [(name, value.encode()) for name, value in pairs]
        return
    message.headers = event
    message.message_id = id_of_event(event) or message.message_id
