"""Spans of what is sent (`send <topic>`), and their context in the records' headers, the same in both shells.

Each `send` has a span of its own, which ends when the record is acknowledged or given up. A bulk has one span, whose
context all of its records carry. Inside a trace that is not recorded no span is made, and its context travels all the
same. What the caller put into the headers stays, and is not repeated.

OpenTelemetry's instrumentors wrap the clients' methods. Ottla calls the clients themselves instead: the wrappers end a
consumer at a `traceparent` or a key that is not UTF-8, and do not see what is sent in batches or by position.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.producer.encoded import header_list
from ottla.records import Header, Headers
from ottla.telemetry.traces import conventions as names
from ottla.telemetry.traces.active_tracing import active_spans, shows_keys
from ottla.telemetry.traces.propagation import TRACEPARENT

if TYPE_CHECKING:
    from ottla.telemetry.traces.open_span import OpenSpan
    from ottla.telemetry.traces.tracer_spans import TracerSpans

Attributes: TypeAlias = "dict[str, str | int | bool]"

ROOT_BYTES: Final = header_list("", [(TRACEPARENT, bytes(55))])[1]
"""At most so many bytes of a record are its `traceparent`."""

_MOST_TOPICS: Final = 10_000
"""Whose attributes are kept. A producer that writes to ever new topics must not grow."""


class SendSpans:
    """The spans of one producer. Thread-safe."""

    __slots__ = ("_client_id", "_of_topic", "_spans", "root")

    def __init__(self, spans: TracerSpans, *, client_id: str | None) -> None:
        self._spans = spans
        self.root = spans.root
        """Of a record without headers: the `traceparent` of a trace that begins with it and is not recorded; the id of
        one that is; None inside of a trace, and where the SDK has to be asked."""
        self._client_id = client_id
        self._of_topic: dict[str, Attributes] = {}

    def begin(
        self, topic: str, key: Any, value: Any, headers: Headers | None, root: bytes | int | None = None
    ) -> tuple[Headers, OpenSpan | None]:
        """Begin the span of a record. Returns its headers, and its span if that is recorded. `root`: the result of
        `root` for it, if that was called.

        Raises `SerializationError` for headers that are none.
        """
        listed = header_list(topic, headers)[0] if headers else []
        return self._spans.send(f"{names.SEND} {topic}", partial(self._attributes, topic, key, value), listed, root)

    def begin_bulk(self, topic: str) -> tuple[list[Header], OpenSpan | None]:
        """Begin the span of many records. Returns what is to be added to the headers of each."""
        headers, span = self._spans.send(f"{names.SEND} {topic}", partial(self._attributes, topic), ())
        return list(headers), span

    def _attributes(self, topic: str, key: Any = None, value: Any = b"") -> Attributes:
        """Return the attributes of a record, or of a bulk. A copy: a sampler may change what it is given."""
        found = self._of_topic.get(topic)
        if found is None:
            if len(self._of_topic) >= _MOST_TOPICS:
                self._of_topic.clear()
            found = self._of_topic[topic] = names.base_attributes(names.SEND, topic, CLIENT_ID=self._client_id)
        attributes = found.copy()
        if value is None:
            attributes[names.TOMBSTONE] = True
        if shows_keys() and key is not None:
            attributes[names.KEY] = key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)
        return attributes


def send_spans(client_id: str | None, before: SendSpans | None = None) -> SendSpans | None:
    """Return the spans of a producer, or None while tracing is off. `before` is kept if nothing changed."""
    spans = active_spans()
    if spans is None:
        return None
    return before if before is not None and before._spans is spans else SendSpans(spans, client_id=client_id)


def with_added(headers: Headers | None, added: list[Header]) -> list[Header]:
    """Return the headers of one record of a bulk, with its span's headers unless they name a trace themselves."""
    if not headers:
        return added
    given = {name for name, _ in headers}
    if "traceparent" in given:
        return list(headers)
    return [*headers, *(header for header in added if header[0] not in given)]


def bulk_ended(span: OpenSpan, bulk: Any) -> None:
    """End the span of a bulk, all records of which are settled."""
    error = bulk.exception()
    span.set({names.BATCH_SIZE: bulk.sent})
    if error is not None:
        span.not_delivered(error)
    else:
        span.end()
