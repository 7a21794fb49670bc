"""CloudEvents around any serde: attributes are headers, the value is what the inner serde makes of the data.

    events = CloudEvents(Json(Order), source="/shop")
    producer = Producer(value=events)
    producer.send("orders", order, headers=events.headers(type="order.created", subject="42"))

    @app.handler("orders", value=CloudEvents(Json(Order)))
    def on_order(order: Order, event: CloudEvent) -> None: ...

Records in structured mode are read as well. A record whose attributes are missing or wrong is malformed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from ottla.errors import ConfigError
from ottla.event_attributes import (
    JSON_CONTENT,
    NotAnEvent,
    event_in_headers,
    event_in_value,
    event_of_record,
    header_list,
    is_structured,
    new_event,
)
from ottla.records import Header, Malformed, Record
from ottla.serdes.base import Serde, SerdeContext, SerdeOf, malformed
from ottla.serdes.builtin import Bytes, Str
from ottla.serdes.choice import as_serde
from ottla.serdes.json import Json
from ottla.serdes.protobuf import Protobuf
from ottla.serdes.tags import Tag
from ottla.typevars import T_any as T

_CONTENT: Final[tuple[tuple[type[Serde[Any]], str | None], ...]] = (
    (Json, JSON_CONTENT),
    (Str, "text/plain"),
    (Bytes, None),
    (Protobuf, "application/protobuf"),
)


class CloudEvents(Serde[T]):
    """Values of the inner serde `data`, as the data of events.

    `source` is that of the events that are sent, unless `headers` is given one; `content_type` the media type of their
    data, which follows from the serde: `application/json`, `application/protobuf`, `avro/binary`, `text/plain`. Raises
    `ConfigError` for what is no serde.
    """

    __slots__ = ("_source", "content_type", "data")

    def __init__(self, data: SerdeOf[T], *, source: str | None = None, content_type: str | None = None) -> None:
        try:
            self.data: Serde[T] = as_serde(data)
            """The serde of the data."""
        except TypeError as error:
            raise ConfigError(f"CloudEvents: {error}") from None
        if isinstance(self.data, CloudEvents):
            raise ConfigError("CloudEvents: found CloudEvents within CloudEvents, wanted the serde of the data")
        self._source = source
        self.content_type = content_type_of(self.data) if content_type is None else content_type
        """The media type of the data; None where it is unknown."""

    @property
    def value_type(self) -> Any:
        return self.data.value_type

    def headers(
        self,
        *,
        type: str,
        source: str | None = None,
        id: str | None = None,
        time: datetime | None = None,
        subject: str | None = None,
        dataschema: str | None = None,
        **extensions: str | int | bool,
    ) -> list[Header]:
        """Return the headers of an event that is sent. Without an `id` it gets a random one, without a `time` this
        moment. Names of extensions are a-z and 0-9.

        Raises `InputError` for an attribute that CloudEvents does not allow, and without a source.
        """
        event = new_event(
            type=type,
            source=self._source if source is None else source,
            id=id,
            time=time,
            subject=subject,
            dataschema=dataschema,
            datacontenttype=self.content_type,
            extensions=extensions,
        )
        return header_list(event)

    def serialize(self, value: T | None, ctx: SerdeContext) -> bytes | None:
        return self.data.serialize(value, ctx)

    def deserialize(self, data: bytes | None, ctx: SerdeContext) -> T | Malformed | None:
        """Return the value in `data`: that of a structured event if the context's headers say so."""
        try:
            if not is_structured(ctx.headers):
                event_in_headers(ctx.headers)
                return self.data.deserialize(data, ctx)
            _, inner = event_in_value(data, ctx.headers)
        except NotAnEvent as error:
            return malformed(data, ctx, error, what="no CloudEvent")
        return self.data.deserialize(inner, ctx)

    def deserialize_records(self, records: Sequence[Record[Any]], ctx: SerdeContext) -> list[T | Malformed | None]:
        values: list[Any] = []
        data: list[bytes | None] = []
        for record in records:
            headers = record.headers
            try:
                if is_structured(headers):
                    data.append(event_in_value(record.raw_value, headers)[1])
                else:
                    event_in_headers(headers)
                    data.append(record.raw_value)
            except NotAnEvent as error:
                data.append(None)
                values.append(malformed(record.raw_value, ctx, error, what="no CloudEvent"))
            else:
                values.append(None)
        decoded = self.data.deserialize_many(data, ctx)
        return [found if refused is None else refused for refused, found in zip(values, decoded, strict=True)]

    def would_block(self, data: Sequence[bytes | None], ctx: SerdeContext) -> bool:
        return self.data.would_block(data, ctx)

    def is_prepared(self, ctx: SerdeContext) -> bool:
        return self.data.is_prepared(ctx)

    def prepare(self, ctx: SerdeContext) -> None:
        self.data.prepare(ctx)

    def __repr__(self) -> str:
        return f"CloudEvents({self.data!r})"


class CloudEventType(Tag):
    """The type of an event, in either mode; none for a record that is no event. For `App.topic`."""

    __slots__ = ()

    def tag_of(self, record: Record[Any]) -> str | Malformed | None:
        try:
            event = event_of_record(record.headers, record.raw_value)
        except NotAnEvent as error:
            return malformed(record.raw_value, SerdeContext(record.topic), error, what="no CloudEvent")
        return None if event is None else event.type

    def __repr__(self) -> str:
        return "CloudEventType()"


def content_type_of(serde: Serde[Any]) -> str | None:
    """Return the media type of the bytes that a serde writes, None where it is unknown."""
    for kind, content_type in _CONTENT:
        if isinstance(serde, kind):
            return content_type
    return "avro/binary" if type(serde).__name__ == "Avro" else None
