"""CloudEvents 1.0 in Kafka: the attributes of an event, read from a record and written as headers.

In *binary* mode (the protocol binding's default) attributes are headers, `ce_` before their names, and the value is the
data alone. In *structured* mode the value is a JSON object with attributes and data, and the header `content-type` says
`application/cloudevents+json`. Both are read, binary is written.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from ottla.errors import InputError

PREFIX: Final = "ce_"
CONTENT_TYPE: Final = "content-type"
JSON_CONTENT: Final = "application/json"
STRUCTURED: Final = b"application/cloudevents"
_AS_JSON: Final = "application/cloudevents+json"

_LONGEST_NAME: Final = 100
"""The specification asks for 20 at most; what is longer than this is no name."""
_OWN: Final = frozenset({"specversion", "id", "source", "type", "time", "subject", "datacontenttype", "dataschema"})
_DATA: Final = ("data", "data_base64")
_envelope: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_attribute: Final = msgspec.json.Decoder(str | int | bool | None)


class NotAnEvent(ValueError):
    """Treat the record as malformed: the message says which attribute is missing or wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEvent:
    """The attributes of one event. `source` and `id` together name it; `extensions` are all others, as text."""

    id: str
    """Distinguishes the events of one source."""
    source: str
    """Where it happened, a URI reference."""
    type: str
    """What happened: `order.created`."""
    time: datetime | None = None
    """When it happened."""
    subject: str | None = None
    """What it happened to, within the source."""
    datacontenttype: str | None = None
    """The media type of the data."""
    dataschema: str | None = None
    """The URI of the schema of the data."""
    extensions: Mapping[str, str] = field(default_factory=dict)

    @property
    def partitionkey(self) -> str | None:
        """The extension from which producers make the record's key."""
        return self.extensions.get("partitionkey")


def is_structured(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Return whether the value has attributes and data together."""
    value = _last(headers, CONTENT_TYPE)
    return value is not None and value[: len(STRUCTURED)].lower() == STRUCTURED


def event_in_headers(headers: Iterable[tuple[str, bytes | None]]) -> CloudEvent:
    """Return the event of a record in binary mode. Raises `NotAnEvent`."""
    attributes: dict[str, str] = {}
    for name, value in headers:
        if value is not None and (name[:3] == PREFIX or name == CONTENT_TYPE):
            short = "datacontenttype" if name == CONTENT_TYPE else name[3:]
            try:
                attributes[short] = value.decode()
            except UnicodeDecodeError:
                raise NotAnEvent(f"header {name} is not UTF-8") from None
    return _cloud_event(attributes, place="header ce_")


def event_in_value(value: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> tuple[CloudEvent, bytes | None]:
    """Return the event of a record in structured mode, and the bytes of its data. Raises `NotAnEvent`."""
    content = (_last(headers, CONTENT_TYPE) or b"").decode("utf-8", "backslashreplace")
    if content.partition(";")[0].strip().lower() != _AS_JSON:
        raise NotAnEvent(f"{CONTENT_TYPE}: found {content!r:.100}, wanted {_AS_JSON}")
    try:
        found = _envelope.decode(value or b"")
        attributes = {
            name: _text(_attribute.decode(raw))
            for name, raw in found.items()
            if name not in _DATA and bytes(raw) != b"null"
        }
    except msgspec.MsgspecError as error:
        raise NotAnEvent(f"no event in JSON: {error}") from error
    event = _cloud_event(attributes, place="attribute ")
    return event, _data(event, found)


def event_of_record(headers: Sequence[tuple[str, bytes | None]], value: bytes | None) -> CloudEvent | None:
    """Return the event of a record in either mode; None for a record that is none. Raises `NotAnEvent`."""
    if is_structured(headers):
        return event_in_value(value, headers)[0]
    if not any(name == "ce_specversion" for name, _ in headers):
        return None
    return event_in_headers(headers)


def header_list(event: CloudEvent) -> list[tuple[str, bytes | None]]:
    """Return the headers of an event in binary mode."""
    attributes: dict[str, str | None] = {
        "specversion": "1.0",
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "time": None if event.time is None else event.time.isoformat().replace("+00:00", "Z"),
        "subject": event.subject,
        "dataschema": event.dataschema,
        **event.extensions,
    }
    headers: list[tuple[str, bytes | None]] = [
        (PREFIX + name, value.encode()) for name, value in attributes.items() if value is not None
    ]
    if event.datacontenttype is not None:
        headers.append((CONTENT_TYPE, event.datacontenttype.encode()))
    return headers


def new_event(
    *,
    type: str,
    source: str | None,
    id: str | None,
    time: datetime | None,
    subject: str | None,
    dataschema: str | None,
    datacontenttype: str | None,
    extensions: Mapping[str, object],
) -> CloudEvent:
    """Return an event to be sent. Without an `id` it gets a random one, without a `time` this moment. Raises
    `InputError`."""
    attributes = {
        "specversion": "1.0",
        "id": uuid.uuid4().hex if id is None else id,
        "source": source,
        "type": type,
        "subject": subject,
        "dataschema": dataschema,
        "datacontenttype": datacontenttype,
        **{name: _text(value) for name, value in extensions.items()},
    }
    if time is not None and time.tzinfo is None:
        raise InputError("CloudEvents: time: found a datetime without a time zone, wanted one with it")
    try:
        event = _cloud_event(
            {name: value for name, value in attributes.items() if value is not None}, place="attribute "
        )
    except NotAnEvent as error:
        raise InputError(f"CloudEvents: {error}") from None
    return replace(event, time=datetime.now(UTC) if time is None else time.astimezone(UTC))


def _cloud_event(attributes: dict[str, Any], *, place: str) -> CloudEvent:
    version = attributes.get("specversion")
    if version is None:
        raise NotAnEvent(f"found no {place}specversion")
    if version != "1.0":
        raise NotAnEvent(f"{place}specversion: found {version!r:.100}, wanted 1.0")
    for name, value in attributes.items():
        if not isinstance(value, str):
            raise NotAnEvent(f"{place}{name}: found {type(value).__name__}, wanted text")
        if not (0 < len(name) <= _LONGEST_NAME and name.isascii() and name.isalnum() and name == name.lower()):
            raise NotAnEvent(f"{place}{name!r:.120}: wanted a name of lower-case letters and digits")
        if not value and name in ("id", "source", "type", "subject"):
            raise NotAnEvent(f"{place}{name} is empty")
        if not value.isprintable() and any(ord(char) < 32 or 127 <= ord(char) < 160 for char in value):
            raise NotAnEvent(f"{place}{name}: found a control character, wanted text without")
    for name in ("id", "source", "type"):
        if name not in attributes:
            raise NotAnEvent(f"found no {place}{name}")
    return CloudEvent(
        id=attributes["id"],
        source=attributes["source"],
        type=attributes["type"],
        time=_moment(attributes.get("time"), place),
        subject=attributes.get("subject"),
        datacontenttype=attributes.get("datacontenttype"),
        dataschema=attributes.get("dataschema"),
        extensions={name: value for name, value in attributes.items() if name not in _OWN},
    )


def _moment(text: str | None, place: str) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or len(text) < len("2026-01-01T00:00:00Z"):
        raise NotAnEvent(f"{place}time: found {text!r:.100}, wanted a time as 2026-01-01T00:00:00Z")
    return moment


def _data(event: CloudEvent, found: Mapping[str, msgspec.Raw]) -> bytes | None:
    if "data_base64" in found:
        if "data" in found:
            raise NotAnEvent("found data and data_base64, wanted one of them")
        try:
            return base64.b64decode(msgspec.json.decode(found["data_base64"], type=str), validate=True)
        except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
            raise NotAnEvent(f"data_base64: {error}") from error
    raw = found.get("data")
    if raw is None or bytes(raw) == b"null":
        return None
    content = (event.datacontenttype or JSON_CONTENT).partition(";")[0].strip().lower()
    if content == "text/json" or content.endswith(("/json", "+json")):
        return bytes(raw)
    try:
        return msgspec.json.decode(raw, type=str).encode()
    except msgspec.MsgspecError:
        return bytes(raw)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _last(headers: Iterable[tuple[str, bytes | None]], name: str) -> bytes | None:
    found = None
    for header, value in headers:
        if header == name:
            found = value
    return found
