"""Keys and values to bytes, with the serdes a producer was given."""

from __future__ import annotations

from typing import Any

from ottla.serdes import Serde, SerdeContext, as_serde
from ottla.serdes.builtin import Bytes


class Serializer:
    """The serdes of one producer. Without any, and with bytes on both sides, there is nothing to do."""

    def __init__(self, *, key: Any, value: Any) -> None:
        self.key = _serde_or_none(key)
        self.value = _serde_or_none(value)
        self.has_serdes = self.key is not None or self.value is not None
        self._contexts: dict[str, tuple[SerdeContext, SerdeContext]] = {}

    def contexts_of(self, topic: str) -> tuple[SerdeContext, SerdeContext]:
        """Of the key and of the value."""
        contexts = self._contexts.get(topic)
        if contexts is None:
            contexts = self._contexts[topic] = (SerdeContext(topic, "key"), SerdeContext(topic, "value"))
        return contexts

    def serialize(self, topic: str, key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
        """(key, value) as they are sent. What has no serde is given back as it came."""
        key_context, value_context = self.contexts_of(topic)
        if self.key is not None:
            key = self.key.serialize(key, key_context)
        if self.value is not None:
            value = self.value.serialize(value, value_context)
        return key, value


def _serde_or_none(given: Any) -> Serde[Any] | None:
    serde = as_serde(given)
    return None if type(serde) is Bytes else serde
