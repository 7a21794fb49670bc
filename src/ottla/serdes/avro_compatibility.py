"""Whether data written with one Avro schema can be read with another: the resolution rules of Avro's specification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.serdes.avro_codec import fastavro_module

_PROMOTIONS: Final = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}


def reading_problems(
    *, reader: Any, writer: Any, reader_uses: Sequence[Any] = (), writer_uses: Sequence[Any] = ()
) -> list[str]:
    """Return why a reader's schema cannot read a writer's data. All as decoded JSON; `reader_uses` and `writer_uses`
    are the schemas that each refers to by name, those first that others use."""
    fastavro = fastavro_module()
    reader_types: dict[str, Any] = {}
    writer_types: dict[str, Any] = {}
    for used, types in ((reader_uses, reader_types), (writer_uses, writer_types)):
        for each in used:
            fastavro.parse_schema(each, named_schemas=types)
    parsed_reader = fastavro.parse_schema(reader, named_schemas=reader_types)
    parsed_writer = fastavro.parse_schema(writer, named_schemas=writer_types)
    return _Comparison(reader_types, writer_types).compare(parsed_reader, parsed_writer, "/")


class _Comparison:
    def __init__(self, reader_types: Mapping[str, Any], writer_types: Mapping[str, Any]) -> None:
        self._reader_types = reader_types
        self._writer_types = writer_types
        self._under_way: set[tuple[str, str]] = set()

    def compare(self, reader: Any, writer: Any, place: str) -> list[str]:
        reader = self._reader_types.get(reader, reader) if isinstance(reader, str) else reader
        writer = self._writer_types.get(writer, writer) if isinstance(writer, str) else writer
        if isinstance(writer, list):
            return [problem for branch in writer for problem in self.compare(reader, branch, place)]
        if isinstance(reader, list):
            if any(not self.compare(branch, writer, place) for branch in reader):
                return []
            return [f"{place}: {_shown(writer)} is no branch of the reader's union"]
        reader_kind, writer_kind = _kind(reader), _kind(writer)
        if reader_kind != writer_kind:
            is_promoted = (writer_kind, reader_kind) in _PROMOTIONS
            return [] if is_promoted else [f"{place}: reader wants {_shown(reader)}, writer has {_shown(writer)}"]
        if reader_kind == "array":
            return self.compare(reader["items"], writer["items"], f"{place}items/")
        if reader_kind == "map":
            return self.compare(reader["values"], writer["values"], f"{place}values/")
        if reader_kind in ("record", "enum", "fixed"):
            return self._named(reader, writer, reader_kind, place)
        return []

    def _named(self, reader: Any, writer: Any, kind: str, place: str) -> list[str]:
        pair = (reader["name"], writer["name"])
        if pair in self._under_way:
            return []  # a recursive type is as readable as the rest of it
        last_name = reader["name"].rpartition(".")[2]
        aliases = {alias.rpartition(".")[2] for alias in reader.get("aliases", ())}
        if writer["name"].rpartition(".")[2] not in {last_name, *aliases}:
            return [f"{place}: reader wants {kind} {reader['name']}, writer has {writer['name']}"]
        if kind == "fixed":
            is_same = reader["size"] == writer["size"]
            return [] if is_same else [f"{place}: fixed of {writer['size']} bytes, reader wants {reader['size']}"]
        if kind == "enum":
            missing = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            is_covered = not missing or "default" in reader
            return [] if is_covered else [f"{place}: reader lacks the enum symbols {', '.join(missing)}"]
        self._under_way.add(pair)
        try:
            return self._fields(reader, writer, place)
        finally:
            self._under_way.discard(pair)

    def _fields(self, reader: Any, writer: Any, place: str) -> list[str]:
        written = {field["name"]: field for field in writer["fields"]}
        found = []
        for field in reader["fields"]:
            names = (field["name"], *field.get("aliases", ()))
            source = next((written[name] for name in names if name in written), None)
            field_place = f"{place}{field['name']}/"
            if source is not None:
                found += self.compare(field["type"], source["type"], field_place)
            elif "default" not in field:
                found.append(f"{field_place}: the writer has no such field, and the reader no default")
        return found


def _kind(schema: Any) -> str:
    kind: str = schema["type"] if isinstance(schema, dict) else schema
    return "record" if kind == "error" else kind


def _shown(schema: Any) -> str:
    return str(schema.get("name", schema["type"])) if isinstance(schema, dict) else str(schema)
