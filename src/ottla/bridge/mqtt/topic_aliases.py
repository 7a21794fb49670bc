"""Topic aliases of one connection (MQTT 5.0): numbers that stand for topics."""

from __future__ import annotations

from ottla.bridge.mqtt.codes import Property, Reason
from ottla.bridge.mqtt.packets import Publish
from ottla.bridge.mqtt.primitives import PacketError


class TopicAliases:
    """The aliases that a client has set. Their topics have at most `most_characters` together."""

    __slots__ = ("_characters", "_maximum", "_most_characters", "_topics")

    def __init__(self, *, maximum: int, most_characters: int) -> None:
        self._maximum = maximum
        self._most_characters = most_characters
        self._topics: dict[int, str] = {}
        self._characters = 0

    def resolve(self, publish: Publish) -> None:
        """Set the topic that an alias stands for, or keep the alias. Raises `PacketError`."""
        alias = publish.properties.pop(Property.TOPIC_ALIAS, None)
        if alias is None:
            return
        if not 0 < alias <= self._maximum:
            raise PacketError(Reason.TOPIC_ALIAS_INVALID, f"topic alias {alias}, wanted 1 to {self._maximum}")
        if publish.topic:
            self._characters += len(publish.topic) - len(self._topics.get(alias, ""))
            if self._characters > self._most_characters:
                raise PacketError(Reason.QUOTA_EXCEEDED, f"topic aliases of {self._characters:,} characters")
            self._topics[alias] = publish.topic
        elif alias in self._topics:
            publish.topic = self._topics[alias]
        else:
            raise PacketError(Reason.PROTOCOL_ERROR, f"topic alias {alias} stands for no topic yet")
