"""The AsyncAPI 3 document of an app: what it receives and sends, from its declarations alone.

A handler is an operation per topic. Its retry topics and its dead letter topic are channels of their own. A producer of
the app is an operation per topic that was declared for it; without any, one on a channel whose address is unknown.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ottla.app.app import App, declarations_of
from ottla.app.declaration.route import Route
from ottla.asyncapi.channels import Channels
from ottla.asyncapi.headers import DEAD, DEAD_REQUIRED, EXPIRES, ID, RETRIED, RETRIED_REQUIRED
from ottla.asyncapi.messages import Message, message_of
from ottla.asyncapi.schemas import Components
from ottla.asyncapi.servers import servers_of
from ottla.errors import ConfigError
from ottla.quantities import seconds_of
from ottla.serdes import Bytes, Serde, as_serde

VERSION: Final = "3.0.0"
NO_VERSION: Final = "0.0.0"
"""The version of a document whose service gives none."""


def document_of(app: App, *, version: str = NO_VERSION) -> dict[str, Any]:
    """Return the AsyncAPI 3 document of an app, as plain values for JSON. `version` is that of the service.

    The same app gives the same document: nothing of the environment, the time or a cluster is in it, and no password,
    token or key. Raises `ConfigError` for a type that has no JSON Schema.
    """
    parts = declarations_of(app)
    components = Components()
    channels = Channels(parts.topics_to_create(app.create_topics))
    for route in parts.routes:
        _add_route(app, route, channels, components)
    for number, producer in enumerate(parts.producers, 1):
        place = f"producer {number}"
        value, key = (_serde(place, part, producer.options.get(part)) for part in ("value", "key"))
        _add_sends(f"producer-{number}", producer.topics, value, key, channels, components)
    for number, _ in enumerate(parts.relays, 1):
        _add_sends(f"outbox-{number}", (), Bytes(), Bytes(), channels, components)
    servers, schemes = servers_of(app.bootstrap_servers, app.settings)
    found: dict[str, Any] = {
        "asyncapi": VERSION,
        "info": {"title": app.group, "version": version},
        "servers": servers,
        "channels": channels.channels,
        "operations": channels.operations,
        "components": {"schemas": components.schemas, "securitySchemes": schemes},
    }
    if parts.scheduler is not None:
        found["x-ottla-schedule"] = parts.scheduler.schedule
    found["components"] = {name: value for name, value in found["components"].items() if value}
    return {name: value for name, value in found.items() if value != {} or name in ("channels", "operations")}


def _add_route(app: App, route: Route, channels: Channels, components: Components) -> None:
    base = route.name if route.group == app.group else f"{route.group}.{route.name}"
    dead: list[dict[str, str]] = []
    facts: dict[str, Any] = {"handler": route.name, "share_group": True if route.queue is not None else None}
    order = () if route.priorities is None else route.priorities.topics
    retries = route.retry_chains
    for topic in sorted(route.topics):
        name = base if len(route.topics) == 1 else f"{base}.{topic}"
        messages = list(_messages(route, topic, components))
        channel = channels.topic(topic)
        channels.operation(
            name,
            "receive",
            channel,
            [channels.message(channel, each.object()) for each in messages],
            description=_description(route),
            group=route.group,
            **facts,
            delivery=_delivery(route),
            ordering=route.ordering.value,
            concurrency=route.concurrency,
            max_attempts=route.retry.last_attempt,
            retry_topics=list(retries[topic]) if retries else None,
            dead_letter_topic=route.dead_letter_topic,
            priority=order.index(topic) + 1 if topic in order else None,
            ttl_s=None if route.ttl_s is None else seconds_of(route.ttl_s),
        )
        for number, retry_topic in enumerate(retries.get(topic, ()), 1):
            delay_ms = None if route.retry_topics is None else route.retry_topics.delay_ms(number)
            channel = channels.topic(retry_topic, retry_of=topic, delay_ms=delay_ms)
            references = [channels.message(channel, each.object(RETRIED, RETRIED_REQUIRED)) for each in messages]
            channels.operation(
                f"{name}.retry-{number}.receive", "receive", channel, references, group=route.group, **facts
            )
            channels.operation(f"{name}.retry-{number}.send", "send", channel, references, **facts)
        if route.dead_letter_topic is not None:
            channel = channels.topic(route.dead_letter_topic, is_dead_letters=True)
            dead += [channels.message(channel, each.object(DEAD, DEAD_REQUIRED)) for each in messages]
    if route.dead_letter_topic is not None:
        channels.operation(f"{base}.dead-letters", "send", route.dead_letter_topic, dead, **facts)
    if route.to is not None:
        _add_sends(f"{base}.results", (route.to,), Bytes(), Bytes(), channels, components)
    if route.exactly_once is not None and not route.is_columnar:
        value, key = (_serde(route.name, part, getattr(route.exactly_once, part)) for part in ("value", "key"))
        _add_sends(f"{base}.out", (), value, key, channels, components)


def _messages(route: Route, topic: str, components: Components) -> Iterator[Message]:
    """Yield the messages of a handler, one per event type where it has several."""
    headers = {**(EXPIRES if route.queue is None else {}), **({} if route.inbox is None else ID)}
    key = route.key_serde
    if route.events is None:
        serde = route.value_serde
        yield message_of(route.name, components, value=serde, key=key, otherwise_named=topic, headers=headers)
        return
    events = route.events
    for handler in events.handlers:
        tags = sorted(tag for tag, each in events.by_tag.items() if each is handler)
        yield message_of(
            route.name,
            components,
            value=handler.serde,
            key=key,
            otherwise_named="otherwise",
            headers=headers,
            by=events.by,
            tags=tags,
        )


def _add_sends(
    name: str,
    topics: Sequence[str],
    value: Serde[Any],
    key: Serde[Any],
    channels: Channels,
    components: Components,
) -> None:
    """Add the sends of one producer."""
    if not topics:
        channel = channels.unknown(name, "The service chooses the topic of each record when it sends it.")
        message = message_of(name, components, value=value, key=key, otherwise_named="record")
        channels.operation(name, "send", channel, [channels.message(channel, message.object())])
        return
    for topic in sorted(set(topics)):
        message = message_of(name, components, value=value, key=key, otherwise_named=topic)
        channel = channels.topic(topic)
        reference = channels.message(channel, message.object())
        channels.operation(name if len(set(topics)) == 1 else f"{name}.{topic}", "send", channel, [reference])


def _serde(place: str, part: str, given: Any) -> Serde[Any]:
    try:
        return as_serde(given)
    except TypeError as error:
        raise ConfigError(f"{place}: {part}: {error}") from error


def _delivery(route: Route) -> str:
    """Return how often a record can be handled. A store or a transaction makes it once in its effect."""
    if route.is_at_most_once:
        return "at-most-once"
    if route.exactly_once is not None:
        return "exactly-once"
    return "effectively-once" if route.inbox is not None or route.offsets is not None else "at-least-once"


def _description(route: Route) -> str | None:
    """Return the first paragraph of the handler's docstring."""
    text = None if route.events is not None else inspect.getdoc(route.handler)
    return None if not text else " ".join(text.split("\n\n")[0].split())
