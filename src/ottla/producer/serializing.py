"""Keys and values to bytes, with the serdes a producer was given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.producer.encoded import encoded
from ottla.records import Header, Headers
from ottla.serdes import Serde, SerdeContext, as_serde
from ottla.serdes.builtin import Bytes

Encode = Callable[[str, Any, Any, Headers | None], tuple[bytes | None, bytes | None, list[Header], int]]


class Serializer:
    """The serdes of one producer. Without any, and with bytes on both sides, there is nothing to do."""

    def __init__(self, *, key: Any, value: Any) -> None:
        self.key = _serde_or_none(key)
        self.value = _serde_or_none(value)
        self.has_serdes = self.key is not None or self.value is not None
        self.encode: Encode
        """As `encoded`, with the serdes."""
        self.encode = self._serialize_and_encode if self.has_serdes else encoded
        self._contexts: dict[str, tuple[SerdeContext, SerdeContext]] = {}

    def contexts_of(self, topic: str) -> tuple[SerdeContext, SerdeContext]:
        """Return the contexts of the key and of the value."""
        contexts = self._contexts.get(topic)
        if contexts is None:
            contexts = self._contexts[topic] = (SerdeContext(topic, "key"), SerdeContext(topic, "value"))
        return contexts

    def serialize(self, topic: str, key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
        """Return (key, value) as they are sent. What has no serde is given back as it came."""
        key_context, value_context = self.contexts_of(topic)
        if self.key is not None:
            key = self.key.serialize(key, key_context)
        if self.value is not None:
            value = self.value.serialize(value, value_context)
        return key, value

    def _serialize_and_encode(
        self, topic: str, key: Any, value: Any, headers: Headers | None
    ) -> tuple[bytes | None, bytes | None, list[Header], int]:
        key, value = self.serialize(topic, key, value)
        return encoded(topic, key, value, headers)


def _serde_or_none(given: Any) -> Serde[Any] | None:
    serde = as_serde(given)
    return None if type(serde) is Bytes else serde
