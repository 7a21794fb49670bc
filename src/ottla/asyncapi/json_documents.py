"""Parts of a JSON Schema document: references are followed, `allOf` is one schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.errors import InputError
from ottla.showing import shown

_MOST_REFERENCES: Final = 100


def merged(schema: Any, document: Any, depth: int = 0) -> Any:
    """Return a schema with its reference and its `allOf` in one mapping."""
    if depth > _MOST_REFERENCES:
        raise InputError(f"found more than {_MOST_REFERENCES} references in a row, wanted a schema")
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, Mapping):
        raise InputError(f"found {shown(schema)} for a JSON Schema, wanted an object")
    name = reference_of(schema)
    if name is not None:
        return merged(looked_up(document, name), document, depth + 1)
    if "allOf" not in schema:
        return schema
    found: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
    for each in list_at(schema, "allOf"):
        part = merged(each, document, depth + 1)
        if part is False:
            return False
        if part is True:
            continue
        for key, value in part.items():
            if key == "properties":
                found[key] = _both(mapping_at(found, key), mapping_at(part, key))
            elif key == "required":
                found[key] = [*list_at(found, key), *(each for each in value if each not in list_at(found, key))]
            else:
                found.setdefault(key, value)
    return found


def looked_up(document: Any, reference: str) -> Any:
    """Return the part of a document that a local reference names. Raises `InputError` for any other reference."""
    node = document
    if reference.startswith("#/"):
        for name in reference[2:].split("/"):
            plain = name.replace("~1", "/").replace("~0", "~")
            node = node.get(plain) if isinstance(node, Mapping) else None
        if node is not None:
            return node
    raise InputError(f"found the reference {shown(reference)}, wanted one to a part of the document")


def _both(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of two schemas that both apply."""
    return {
        name: {"allOf": [one[name], other[name]]} if name in one and name in other else one.get(name, other.get(name))
        for name in [*one, *(each for each in other if each not in one)]
    }


def reference_of(schema: Any) -> str | None:
    """Return the reference that a schema is; None if it is none."""
    name = schema.get("$ref") if isinstance(schema, Mapping) else None
    return name if isinstance(name, str) else None


def list_at(schema: Mapping[str, Any], name: str) -> list[Any]:
    """Return the list at a keyword, empty without one."""
    found = schema.get(name, [])
    if not isinstance(found, list):
        raise InputError(f"{name}: found {shown(found)}, wanted a list")
    return found


def mapping_at(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object at a keyword, empty without one."""
    found = schema.get(name, {})
    if not isinstance(found, Mapping):
        raise InputError(f"{name}: found {shown(found)}, wanted an object")
    return found
