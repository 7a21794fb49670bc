"""Schemas in files and references to schemas, as a person names them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from ottla.bounded_files import read_bounded
from ottla.errors import InputError
from ottla.foreign_json import read_json
from ottla.serdes.registered_schema import LARGEST_ID, SchemaReference, SchemaType
from ottla.serdes.registry import MOST_REFERENCES

if TYPE_CHECKING:
    from ottla.serdes.registered_schema import RegisteredSchema

TYPES: Final[Sequence[SchemaType]] = get_args(SchemaType)
MOST_BYTES: Final = 8 * 1024 * 1024
"""Schemas are sent as text within JSON, which registries bound as well."""

SUFFIXES: Final[dict[SchemaType, str]] = {"AVRO": ".avsc", "JSON": ".json", "PROTOBUF": ".proto"}
_BY_SUFFIX: Final[dict[str, SchemaType]] = {suffix: kind for kind, suffix in SUFFIXES.items()}
_REFERENCE: Final = re.compile(r"(?P<name>[^=]+)=(?P<subject>.+):(?P<version>[0-9]{1,10})")


def read_schema(path: Path, *, type: SchemaType | None, references: Sequence[SchemaReference] = ()) -> RegisteredSchema:
    """Return the schema in a file, without id, subject and version. `type` is that of the file's suffix by default:
    `.avsc`, `.json`, `.proto`. Raises `InputError` for a file that cannot be a schema."""
    kind = type or _BY_SUFFIX.get(path.suffix)
    if kind is None:
        raise InputError(f"{path}: found a name that says no type, wanted .avsc, .json or .proto, or the type given")
    data, _ = read_bounded(path, MOST_BYTES, wanted="a schema of at most that")
    try:
        text = data.decode("utf-8")
    except ValueError as error:
        raise InputError(f"{path}: found no {kind} schema: {error}") from None
    return parse_schema(text, kind, references=references, source=str(path))


def parse_schema(
    text: str, kind: SchemaType, *, references: Sequence[SchemaReference] = (), source: str
) -> RegisteredSchema:
    """Return the schema in a text, without id, subject and version. Raises `InputError`, which names the source."""
    from ottla.serdes.registered_schema import RegisteredSchema

    if not text.strip():
        raise InputError(f"{source}: found nothing, wanted a {kind} schema")
    if kind != "PROTOBUF":
        try:
            read_json(text)
        except ValueError as error:
            raise InputError(f"{source}: found no {kind} schema: {error}") from None
    return RegisteredSchema(id=0, type=kind, text=text, references=tuple(references))


def parse_references(given: Iterable[str], *, where: str = "--reference") -> tuple[SchemaReference, ...]:
    """Return the references of `NAME=SUBJECT:VERSION` texts. Raises `InputError`, which begins with `where`."""
    found = []
    for text in given:
        parts = _REFERENCE.fullmatch(text)
        if parts is None or not 1 <= int(parts["version"]) <= LARGEST_ID:
            raise InputError(f"{where}: found {text[:200]!r}, wanted NAME=SUBJECT:VERSION, as shop.Item=items-value:1")
        found.append(SchemaReference(parts["name"], parts["subject"], int(parts["version"])))
    if len(found) > MOST_REFERENCES:
        raise InputError(f"{where}: found {len(found):,} of them, wanted at most {MOST_REFERENCES:,}")
    return tuple(found)
