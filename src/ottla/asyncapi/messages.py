"""Messages of an AsyncAPI document: payload, key and headers, as the serdes of a handler or a producer say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.asyncapi.headers import CLOUD_EVENT, CLOUD_EVENT_REQUIRED, TRACE, headers_of
from ottla.asyncapi.schemas import Components
from ottla.errors import ConfigError
from ottla.serdes import Serde
from ottla.serdes.cloud_events import CloudEventType
from ottla.serdes.descriptions import SerdeDescription, describe
from ottla.serdes.tags import Tag, TagField, TagHeader
from ottla_wire.facts import fact

BINDING: Final = "0.5.0"
"""Version of the Kafka bindings."""

_FORMATS: Final = {
    "avro": "application/vnd.apache.avro+json;version=1.9.0",
    "protobuf": "application/vnd.google.protobuf;version=3",
}


@fact
class Message:
    """One kind of record of a channel."""

    name: str
    body: Mapping[str, Any]
    """The Message Object without its headers."""
    headers: Mapping[str, Any]
    """Header → its schema."""
    required: Sequence[str] = ()

    def object(self, more: Mapping[str, Any] | None = None, required: Sequence[str] = ()) -> dict[str, Any]:
        """Return the Message Object; `more` are headers beside the message's own."""
        headers = headers_of({**self.headers, **(more or {})}, [*self.required, *required])
        return {"name": self.name, **self.body, "headers": headers}


def message_of(
    place: str,
    components: Components,
    *,
    value: Serde[Any],
    key: Serde[Any],
    otherwise_named: str,
    headers: Mapping[str, Any] | None = None,
    by: Tag | None = None,
    tags: Sequence[str] = (),
) -> Message:
    """Return the message that a serde of values and one of keys make. `tags` are its event types, which `by` reads.

    Raises `ConfigError`, which names the place, for a type that has no schema.
    """
    try:
        described, of_key = describe(value), describe(key)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error
    of_event = CLOUD_EVENT if described.is_cloud_event else {}
    required = list(CLOUD_EVENT_REQUIRED) if described.is_cloud_event else []
    found = {**TRACE, **of_event, **(headers or {})}
    header = by.name if isinstance(by, TagHeader) else "ce_type" if isinstance(by, CloudEventType) else None
    if header is not None and tags:
        found[header] = {"type": "string", "enum": list(tags)}
        required = sorted({*required, header})
    payload = _payload(described, components)
    if isinstance(by, TagField) and tags and described.format == "json-schema":
        tagged = {"type": "object", "properties": {by.name: {"enum": list(tags)}}, "required": [by.name]}
        payload = {"allOf": [payload, tagged]}
    body: dict[str, Any] = {
        "contentType": described.content_type,
        "payload": payload,
        "bindings": {"kafka": _binding(described, of_key, components)},
    }
    if tags:
        body["x-ottla-event-types"] = list(tags)
    return Message(
        name=tags[0] if tags else described.name or otherwise_named, body=body, headers=found, required=required
    )


def _payload(described: SerdeDescription, components: Components) -> Any:
    if described.format == "json-schema":
        return components.add(described.schema)
    return {"schemaFormat": _FORMATS[described.format], "schema": described.schema}


def _binding(value: SerdeDescription, key: SerdeDescription, components: Components) -> dict[str, Any]:
    """Return the Kafka binding of a message. Its key is a JSON Schema there; another format stands beside it."""
    binding: dict[str, Any] = {}
    if key.format == "json-schema":
        schema = components.add(key.schema)
        # A reference alone would be valid twice: as a reference and as a schema.
        binding["key"] = {"allOf": [schema]} if "$ref" in schema else schema
    else:
        binding["key"] = {"type": "string", "format": "binary"}
        binding["x-ottla-key"] = {"schemaFormat": _FORMATS[key.format], "schema": key.schema}
    if value.registry_url is not None:
        binding |= {
            "schemaIdLocation": "payload",
            "schemaIdPayloadEncoding": "confluent",
            "schemaLookupStrategy": value.subject,
            "x-ottla-schema-registry-url": value.registry_url,
        }
    return {**binding, "bindingVersion": BINDING}
