"""JSON Schema as AsyncAPI 3 takes it: draft 7, with the named types of all messages in one place.

msgspec and pydantic write 2020-12, with OpenAPI's `discriminator`. Within a document of AsyncAPI `#/$defs/Order` would
be looked up in the document, not in the schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

_DEFINITIONS: Final = "#/$defs/"
COMPONENTS: Final = "#/components/schemas/"

_OF_SCHEMAS: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
_LISTS: Final = frozenset({"anyOf", "allOf", "oneOf"})
_SINGLE: Final = frozenset(
    {"additionalProperties", "items", "not", "propertyNames", "contains", "if", "then", "else", "additionalItems"}
)


class Components:
    """The named schemas of one document (`components.schemas`)."""

    def __init__(self) -> None:
        self._schemas: dict[str, Any] = {}

    @property
    def schemas(self) -> dict[str, Any]:
        """The schemas by name, sorted."""
        return dict(sorted(self._schemas.items()))

    def add(self, schema: Mapping[str, Any]) -> Any:
        """Return the schema for a place in the document, with its `$defs` added here. Types of one name and another
        schema are numbered."""
        definitions = schema.get("$defs") or {}
        number = 1
        while True:
            names = {name: _component_name(name, number) for name in definitions}
            added = {names[name]: draft_07(each, names) for name, each in definitions.items()}
            if all(self._schemas.get(name, each) == each for name, each in added.items()):
                break
            number += 1
        self._schemas.update(added)
        return draft_07({name: value for name, value in schema.items() if name != "$defs"}, names)


def _component_name(name: str, number: int) -> str:
    plain = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)
    return plain if number == 1 else f"{plain}_{number}"


def draft_07(schema: Any, names: Mapping[str, str]) -> Any:
    """Return a schema in draft 7. `names` are the components that its `$defs` have become."""
    if not isinstance(schema, Mapping):
        return schema

    def inner(value: Any) -> Any:
        return draft_07(value, names)

    found: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword == "prefixItems":
            found["items"] = [inner(each) for each in value]
            if "items" in schema:
                found["additionalItems"] = inner(schema["items"])
        elif keyword == "items" and "prefixItems" in schema:
            continue
        elif keyword == "discriminator" and isinstance(value, Mapping):
            found[keyword] = value["propertyName"]
        elif keyword == "$ref":
            found[keyword] = _with_new_references(value, names)
        else:
            found[keyword] = _converted(keyword, value, inner)
    return found


def _converted(keyword: str, value: Any, inner: Callable[[Any], Any]) -> Any:
    if keyword in _OF_SCHEMAS:
        return {name: inner(each) for name, each in value.items()}
    if keyword in _LISTS:
        return [inner(each) for each in value]
    return inner(value) if keyword in _SINGLE else value


def _with_new_references(reference: str, names: Mapping[str, str]) -> str:
    if not reference.startswith(_DEFINITIONS):
        return reference
    name = reference.removeprefix(_DEFINITIONS).replace("~1", "/").replace("~0", "~")
    return COMPONENTS + names.get(name, name)
