"""Rules: which record a message becomes.

The first rule whose pattern matches decides. A message that no rule matches, whose Kafka topic would not be a valid
name, or whose value its serde does not take, is a `Refusal` with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.bridge.inbound_message import Message
from ottla.bridge.mapping.record_headers import headers_of
from ottla.bridge.mapping.templates import Template
from ottla.bridge.mapping.topic_patterns import TopicPattern
from ottla.errors import ConfigError, RegistryUnavailable
from ottla.producer.encoded import checked_headers
from ottla.records import Header, Malformed
from ottla.serdes.base import Serde, SerdeContext
from ottla.topics import text_problem

_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_MOST_CACHED: Final = 10_000
_LONGEST_CACHED: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a message does not become a record. `kind` is one of the kinds of dead letters."""

    kind: str
    error_type: str
    text: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class OutRecord:
    """What is sent to Kafka."""

    topic: str
    key: bytes | None
    value: bytes
    headers: Sequence[Header]


class Rule:
    """One entry of the mapping.

    `pattern` is a filter of MQTT topics, or of routing keys whose dots are slashes. `to`, `key` and the headers'
    values are templates; a `key` of None is a record without a key. `value` is the serde that the payload must fit.
    """

    __slots__ = ("headers", "key", "name", "pattern", "to", "value")

    def __init__(
        self,
        pattern: str,
        to: str,
        *,
        key: str | None = "{topic}",
        headers: Mapping[str, str] | None = None,
        value: Serde[Any] | None = None,
        name: str | None = None,
    ) -> None:
        self.name = name or pattern
        self.pattern = TopicPattern(pattern, f"{self.name}: from")
        wildcards = self.pattern.wildcards
        self.to = Template(to, wildcards=wildcards, place=f"{self.name}: to")
        if not self.to.names and not is_topic_name(to):
            raise ConfigError(f"{self.name}: to: found {to!r}, wanted the name of a Kafka topic")
        self.key = None if key is None else Template(key, wildcards=wildcards, place=f"{self.name}: key")
        for header in headers or ():
            problem = text_problem(header)
            if problem is not None:
                raise ConfigError(f"{self.name}: headers: found the name {header!r:.200}: {problem}")
        self.headers = {
            header: Template(text, wildcards=wildcards, place=f"{self.name}: headers.{header}")
            for header, text in (headers or {}).items()
        }
        self.value = value

    @property
    def is_of_topic(self) -> bool:
        """Return whether a message's topic alone decides all of the record but its value."""
        templates = [self.to, *self.headers.values(), *([] if self.key is None else [self.key])]
        return all(each.is_of_topic for each in templates)


class Target:
    """What a rule makes of all messages with one topic."""

    __slots__ = ("check", "context", "headers", "key", "most_bytes", "rule", "topic")

    def __init__(self, rule: Rule, topic: str, key: bytes | None, headers: list[Header]) -> None:
        self.rule = rule.name
        self.topic = topic
        self.key = key
        self.headers, self.most_bytes = checked_headers(topic, key, headers)
        """The headers of a plain message, and the bytes that its record has at most beside the value."""
        self.check = rule.value
        self.context = SerdeContext(topic)


class TopicMapping:
    """All rules. Not thread-safe: each road has its own."""

    def __init__(self, rules: Sequence[Rule], *, topic_header: str = "mqtt-topic") -> None:
        if not rules:
            raise ConfigError("the mapping has no rule, wanted at least one as in --map 'sensors/#=sensors'")
        self.rules = tuple(rules)
        self._topic_header = topic_header
        self._cached: dict[str, Target | Refusal] = {}
        self.has_checks = any(rule.value is not None for rule in rules)
        """Whether payloads are checked, which may need a schema registry."""

    def target_of(self, message: Message) -> Target | Refusal:
        """Return where the message goes, or why nowhere."""
        topic = message.topic
        target = self._cached.get(topic)
        if target is not None:
            return target
        path = topic if self._topic_header == "mqtt-topic" else topic.replace(".", "/")
        for rule in self.rules:
            captured = rule.pattern.match(path)
            if captured is not None:
                target = self._filled(rule, captured, message)
                is_kept = rule.is_of_topic
                break
        else:
            target = Refusal(kind="invalid", error_type="Unmapped", text=f"no rule of the mapping is for {topic!r}")
            is_kept = True
        if is_kept and len(topic) <= _LONGEST_CACHED:
            if len(self._cached) >= _MOST_CACHED:
                self._cached.clear()
            self._cached[topic] = target
        return target

    def record_of(self, message: Message, target: Target, now_ms: int) -> OutRecord | Refusal:
        """Return the record. Raises `RegistryUnavailable` where the serde needs a registry that does not answer."""
        refusal = self.refusal_of(message, target)
        if refusal is not None:
            return refusal
        headers = target.headers if message.is_plain else headers_of(message, target.headers, now_ms)
        return OutRecord(target.topic, target.key, message.payload, headers)

    def refusal_of(self, message: Message, target: Target) -> Refusal | None:
        """Return why the payload does not fit its serde, or None. Raises `RegistryUnavailable`."""
        if target.check is not None:
            try:
                value = target.check.deserialize(message.payload, target.context)
            except RegistryUnavailable:
                raise
            except Exception as error:  # a serde must not raise; its message would stay without an answer
                text = f"the serde raised {type(error).__name__}: {error}"
                return Refusal(kind="malformed", error_type=type(error).__name__, text=text, rule=target.rule)
            if isinstance(value, Malformed):
                return Refusal(kind=value.kind, error_type=value.error_type, text=value.error, rule=target.rule)
        return None

    def _filled(self, rule: Rule, captured: Sequence[str], message: Message) -> Target | Refusal:
        def fill(template: Template) -> str:
            return template.fill(
                captured, topic=message.topic, client=message.client_id, user=message.user, origin=message.origin
            )

        to = fill(rule.to)
        if not is_topic_name(to):
            text = f"{rule.name}: {to[:100]!r} is not the name of a Kafka topic"
            return Refusal(kind="invalid", error_type="Unmapped", text=text, rule=rule.name)
        key = None if rule.key is None else fill(rule.key).encode()
        headers: list[Header] = [(self._topic_header, message.topic.encode())]
        headers += [(name, fill(template).encode()) for name, template in rule.headers.items()]
        return Target(rule, to, key, headers)


def is_topic_name(text: str) -> bool:
    """Return whether Kafka takes this as the name of a topic."""
    return _TOPIC_NAME.fullmatch(text) is not None and text not in (".", "..")
