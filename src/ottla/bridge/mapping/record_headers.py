"""Headers of a record: what the publisher gave, under names that consumers of Kafka know.

| publisher | record |
|---|---|
| topic, routing key | `mqtt-topic`, `amqp-routing-key` |
| retained flag | `mqtt-retain: 1` |
| content type | `content-type` |
| response topic, reply-to | `reply-to` |
| correlation data or id | `correlation-id` |
| expiry | `ottla-expires-at`, epoch milliseconds |
| user property, AMQP header | the same name; one that begins with `ottla-` is left out, but for `ottla-id` |
| CloudEvents attribute | `ce_` and its name |

A publisher could otherwise forge what Ottla's consumers trust: when a record expires, or that it is a dead letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.bridge.inbound_message import Message
from ottla.failures.expiry import EXPIRES_HEADER
from ottla.producer.message_ids import ID_HEADER
from ottla.records import Header, escaped

_OWN: Final = "ottla-"
_REQUIRED_ATTRIBUTES: Final = frozenset({"specversion", "id", "source", "type"})
_TRACE: Final = ("traceparent", "tracestate")


def headers_of(message: Message, before: Sequence[Header], now_ms: int) -> list[Header]:
    """Return all headers of the record; `before` are the headers that its rule sets."""
    headers = list(before)
    id_given = message.message_id
    for name, value in message.headers:
        if name == ID_HEADER and value:
            id_given = value.decode("utf-8", "replace")
        elif not name.lower().startswith(_OWN):
            headers.append(escaped((name, value)))
    if message.content_type is not None:
        headers.append(("content-type", message.content_type.encode()))
    if message.retain:
        headers.append(("mqtt-retain", b"1"))
    if message.reply_to is not None:
        headers.append(("reply-to", message.reply_to.encode()))
    if message.correlation is not None:
        headers.append(("correlation-id", message.correlation))
    if message.expiry_ms is not None:
        headers.append((EXPIRES_HEADER, str(now_ms + message.expiry_ms).encode()))
    if id_given:
        headers.append((ID_HEADER, id_given.encode()))
    return headers


def cloud_event_headers(pairs: Iterable[tuple[str, str]], *, prefixes: Sequence[str] = ("",)) -> list[Header] | None:
    """Return the attributes of a CloudEvent in binary mode as `ce_*`, or None where the pairs are none.

    In MQTT the attributes are user properties with their own names, in AMQP they have a prefix (`cloudEvents:` or
    `cloudEvents_`). Properties of traces are both: attributes of an extension, and what tracers look for.
    """
    given = list(pairs)
    attributes: list[Header] = []
    others: list[Header] = []
    names = set()
    for name, value in given:
        prefix = next((each for each in prefixes if name.startswith(each)), None)
        if prefix is None or (not prefix and name.startswith(_OWN)):
            others.append((name, value.encode()))
            continue
        names.add(name[len(prefix) :])
        attributes.append((f"ce_{name[len(prefix) :]}", value.encode()))
        if not prefix and name in _TRACE:
            others.append((name, value.encode()))
    if not names >= _REQUIRED_ATTRIBUTES:
        return None
    return [*attributes, *others]


def id_of_event(headers: Iterable[Header]) -> str | None:
    """Return a globally unique name of a CloudEvent: its source and its id. None if it lacks one of them."""
    found = {name: value for name, value in headers if name in ("ce_source", "ce_id") and value}
    if len(found) < 2:
        return None
    return f"{(found['ce_source'] or b'').decode()}/{(found['ce_id'] or b'').decode()}"
