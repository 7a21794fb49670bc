"""The differences of two AsyncAPI 3 documents of a service, and which of them break the other side.

For what a service receives, the writers are old and the reader is new: data that was valid must stay valid. For what it
sends, the writer is new and the readers are old. JSON Schema, Avro and Protobuf are compared by their own rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from ottla.asyncapi import json_compatibility, protobuf_compatibility
from ottla.asyncapi.json_documents import looked_up
from ottla.errors import InputError
from ottla.serdes import avro_compatibility
from ottla.showing import shown
from ottla_wire.facts import fact

_JSON: Final = "json-schema"


@fact
class Difference:
    """One change between two documents."""

    operation: str
    """`receive orders`, for example."""
    message: str | None
    change: str
    is_breaking: bool


@fact
class _Operation:
    """What a service does with one topic."""

    action: str
    document: Any
    channel: Mapping[str, Any]
    messages: dict[str, Mapping[str, Any]] = field(default_factory=dict)


def differences(old: Any, new: Any) -> list[Difference]:
    """Return the differences of two documents, the breaking ones first. Raises `InputError` for what is no AsyncAPI 3
    document."""
    before, after = _operations(old, "OLD"), _operations(new, "NEW")
    found: list[Difference] = []
    for name in sorted({*before, *after}):
        if name not in after:
            found.append(Difference(operation=name, message=None, change="is removed", is_breaking=True))
        elif name not in before:
            found.append(Difference(operation=name, message=None, change="is new", is_breaking=False))
        else:
            found += _changes(name, before[name], after[name])
    return sorted(found, key=lambda each: not each.is_breaking)


def _changes(name: str, old: _Operation, new: _Operation) -> Iterator[Difference]:
    partitions = [_kafka(each.channel).get("partitions") for each in (old, new)]
    if None not in partitions and partitions[0] != partitions[1]:
        change = f"partitions: {partitions[1]}, before {partitions[0]}: keys move to other partitions"
        yield Difference(operation=name, message=None, change=change, is_breaking=False)
    gone = [each for each in old.messages if each not in new.messages]
    added = [each for each in new.messages if each not in old.messages]
    pairs = [(each, each) for each in old.messages if each in new.messages]
    if len(gone) == len(added) == 1 and not pairs:  # the only message has another name, which is on no wire
        pairs, gone, added = [(gone[0], added[0])], [], []
    for each in gone:
        yield Difference(operation=name, message=each, change="is removed", is_breaking=True)
    for each in added:
        yield Difference(operation=name, message=each, change="is new", is_breaking=False)
    for one, other in pairs:
        for problem in _problems(old, new, old.messages[one], new.messages[other]):
            yield Difference(operation=name, message=other, change=problem, is_breaking=True)


def _problems(old: _Operation, new: _Operation, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    is_received = new.action == "receive"
    for part, of in _PARTS.items():
        formats, schemas = zip(of(before), of(after), strict=True)
        if formats[0] != formats[1]:
            yield f"{part}: {formats[1]}, before {formats[0]}"
            continue
        reader, writer = (schemas[1], schemas[0]) if is_received else (schemas[0], schemas[1])
        documents = (new.document, old.document) if is_received else (old.document, new.document)
        yield from (f"{part} {problem}" for problem in _unreadable(formats[0], reader, writer, *documents))
    for what, found in {
        "contentType": (before.get("contentType"), after.get("contentType")),
        "schema id": (_kafka(before).get("schemaIdLocation"), _kafka(after).get("schemaIdLocation")),
    }.items():
        if found[0] != found[1]:
            yield f"{what}: {found[1] or 'none'}, before {found[0] or 'none'}"


def _unreadable(schema_format: str, reader: Any, writer: Any, reader_document: Any, writer_document: Any) -> list[str]:
    if "avro" in schema_format:
        try:
            return avro_compatibility.reading_problems(reader=reader, writer=writer)
        except Exception as error:
            # fastavro raises whatever it meets in a schema that is none.
            raise InputError(f"found an Avro schema that cannot be read: {error}") from error
    if "protobuf" in schema_format:
        return protobuf_compatibility.reading_problems(reader=str(reader), writer=str(writer))
    if schema_format == _JSON:
        return json_compatibility.reading_problems(
            reader=reader, writer=writer, reader_document=reader_document, writer_document=writer_document
        )
    return [] if reader == writer else [f"{schema_format}: the schemas differ"]


def _operations(document: Any, place: str) -> dict[str, _Operation]:
    """Return the operations by action and topic. Retry topics are the group's own, and left out."""
    version = document.get("asyncapi") if isinstance(document, Mapping) else None
    if not isinstance(version, str) or not version.startswith("3."):
        raise InputError(f"{place}: found asyncapi {shown(version)}, wanted a document of AsyncAPI 3")
    found: dict[str, _Operation] = {}
    for name, operation in _object(document, "operations").items():
        action = operation.get("action") if isinstance(operation, Mapping) else None
        if action not in ("send", "receive"):
            raise InputError(f"{place}: operations.{name}: found the action {shown(action)}, wanted send or receive")
        channel = _resolved(document, operation.get("channel"))
        if "x-ottla-retry-of" in channel:
            continue
        key = f"{action} {channel.get('address') or f'({name})'}"
        known = found.setdefault(key, _Operation(action=action, document=document, channel=channel))
        given = operation.get("messages")
        for each in given if isinstance(given, list) else _object(channel, "messages").values():
            message = _resolved(document, each)
            known.messages[str(message.get("name", len(known.messages) + 1))] = message
    return found


def _payload(message: Mapping[str, Any]) -> tuple[str, Any]:
    return _formatted(message.get("payload", {}))


def _headers(message: Mapping[str, Any]) -> tuple[str, Any]:
    return _formatted(message.get("headers", {}))


def _record_key(message: Mapping[str, Any]) -> tuple[str, Any]:
    binding = _kafka(message)
    return _formatted(binding.get("x-ottla-key", binding.get("key", {})))


_PARTS: Final[Mapping[str, Callable[[Mapping[str, Any]], tuple[str, Any]]]] = {
    "payload": _payload,
    "key": _record_key,
    "headers": _headers,
}


def _formatted(schema: Any) -> tuple[str, Any]:
    """Return the format of a schema, and the schema."""
    if not isinstance(schema, Mapping) or "schema" not in schema:
        return _JSON, schema
    name = str(schema.get("schemaFormat", "")).partition(";")[0]
    return (_JSON if "schema+json" in name or "asyncapi" in name or not name else name), schema["schema"]


def _kafka(node: Mapping[str, Any]) -> Mapping[str, Any]:
    return _object(_object(node, "bindings"), "kafka")


def _resolved(document: Any, node: Any) -> Mapping[str, Any]:
    for _ in range(10):
        if not isinstance(node, Mapping):
            break
        if not isinstance(node.get("$ref"), str):
            return node
        node = looked_up(document, node["$ref"])
    raise InputError(f"found {shown(node)}, wanted a channel or a message, or a reference to it")


def _object(node: Any, name: str) -> Mapping[str, Any]:
    found = node.get(name, {}) if isinstance(node, Mapping) else {}
    if not isinstance(found, Mapping):
        raise InputError(f"{name}: found {shown(found)}, wanted an object")
    return found
