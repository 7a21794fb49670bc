"""Keys and values to bytes, with the serdes a producer was given."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.producer.encoded import encoded
from ottla.records import Header, Headers
from ottla.serdes import Serde, SerdeContext, as_serde
from ottla.serdes.builtin import Bytes

_PARTITION_KEY: Final = "ce_partitionkey"

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
        events = sys.modules.get("ottla.serdes.cloud_events")  # loaded by what makes events alone
        self._makes_events = events is not None and isinstance(self.value, events.CloudEvents)
        if self._makes_events:
            self.encode = self._encode_event
        self._contexts: dict[str, tuple[SerdeContext, SerdeContext]] = {}
        self._prepared: set[str] = set()

    def contexts_of(self, topic: str) -> tuple[SerdeContext, SerdeContext]:
        """Return the contexts of the key and of the value."""
        contexts = self._contexts.get(topic)
        if contexts is None:
            contexts = self._contexts[topic] = (SerdeContext(topic, "key"), SerdeContext(topic, "value"))
        return contexts

    def unprepared(self, topic: str) -> Sequence[tuple[Serde[Any], SerdeContext]]:
        """Return the serdes that have to be prepared for this topic, which may block, with their contexts."""
        if topic in self._prepared:
            return ()
        pairs = zip((self.key, self.value), self.contexts_of(topic), strict=True)
        found = [(serde, context) for serde, context in pairs if serde is not None and not serde.is_prepared(context)]
        if not found:
            self._prepared.add(topic)
        return found

    def serialize(self, topic: str, key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
        """Return (key, value) as they are sent. What has no serde is given back as it came."""
        key_context, value_context = self.contexts_of(topic)
        if self.key is not None:
            key = self.key.serialize(key, key_context)
        if self.value is not None:
            value = self.value.serialize(value, value_context)
        return key, value

    def key_of(self, key: Any, headers: Headers | None) -> Any:
        """Return the key, and where a CloudEvent has none its `partitionkey` (CloudEvents' binding to Kafka, 3.1)."""
        if key is not None or not self._makes_events or not isinstance(headers, list | tuple):
            return key
        for header in headers:
            if len(header) == 2 and header[0] == _PARTITION_KEY and isinstance(header[1], bytes):
                return header[1] if self.key is None else header[1].decode("utf-8", "replace")
        return None

    def _encode_event(
        self, topic: str, key: Any, value: Any, headers: Headers | None
    ) -> tuple[bytes | None, bytes | None, list[Header], int]:
        return self._serialize_and_encode(topic, self.key_of(key, headers), value, headers)

    def _serialize_and_encode(
        self, topic: str, key: Any, value: Any, headers: Headers | None
    ) -> tuple[bytes | None, bytes | None, list[Header], int]:
        key, value = self.serialize(topic, key, value)
        return encoded(topic, key, value, headers)


def _serde_or_none(given: Any) -> Serde[Any] | None:
    serde = as_serde(given)
    return None if type(serde) is Bytes else serde
