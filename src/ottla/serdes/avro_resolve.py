"""Completes fastavro's reading: new default values per record, and named records of unions.

Where a reader's schema has a field that the writer's has not, fastavro puts the field's default there: the same object
for each record. So a default that can be changed in place stands as a `_Fresh` in the schema and is made when it is
found in a value. In the same way each record gets a field with its own name, which says what a union's record is by the
reader's schema; where nothing is resolved fastavro says it itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.serdes.avro_check import parts_of
from ottla.serdes.avro_classes import OfRecord
from ottla.serdes.avro_defaults import RAW_DEFAULT, checked_default, default_value, is_container, records_in
from ottla.serdes.avro_walk import RECORDS, SchemaWalk, Step, branch_key, is_record

if TYPE_CHECKING:
    from ottla.serdes.avro_codec import Parsed

_NAME: Final = "\0name"
"""The field of a record that holds its name: no schema can have one that is called so."""
_NOT_READ: Final = frozenset(
    {"default", RAW_DEFAULT, "doc", "aliases", "order", "__fastavro_parsed", "__named_schemas"}
)


class _Fresh:
    """A default in a schema that is created for each value."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def decode_defaults(bodies: Mapping[str, Any]) -> None:
    """Build the default values of parsed records. Raises `ConfigError` for a default that its field cannot hold."""
    found = [
        (field, checked_default(body["name"], field, bodies))
        for body in bodies.values()
        for field in body.get("fields", ())
        if "default" in field
    ]
    for field, value in found:  # all are made before the first is replaced: one may be a part of another
        field.setdefault(RAW_DEFAULT, field["default"])
        field["default"] = value


def has_several_records(schema: Any, bodies: Mapping[str, Any]) -> bool:
    """Return whether a union in the schema has several records."""
    parts = (part for whole in (schema, *bodies.values()) for part in parts_of(whole))
    return any(records_in(part, bodies) > 1 for part in parts if isinstance(part, list))


def without_defaults(schema: Any) -> Any:
    """Return the part of a schema that says how bytes are read."""
    if isinstance(schema, list):
        return [without_defaults(part) for part in schema]
    if isinstance(schema, dict):
        return {key: without_defaults(part) for key, part in schema.items() if key not in _NOT_READ}
    return schema


def names_as_read(written: Parsed, of_record: OfRecord) -> Step | None:
    """Return the step for a value read without resolution, whose records fastavro has named."""
    return _RecordNameRemoval(written.bodies, of_record, is_resolved=False).step(written.schema)


def resolving(
    writer_schema: Any, written: Parsed, resolve_to: Parsed, of_record: OfRecord
) -> tuple[Any, Any, Step | None]:
    """Return both schemas for fastavro, and the step for a resolved value."""
    if not resolve_to.names_records and not _lacks_a_container(written.bodies, resolve_to.bodies):
        return writer_schema, resolve_to.schema, None
    schema, bodies = copy.deepcopy((resolve_to.schema, resolve_to.bodies))
    for name, body in bodies.items():
        if body["type"] in RECORDS:
            for field, own in zip(body["fields"], resolve_to.bodies[name]["fields"], strict=True):
                if _may_change(own, resolve_to.bodies):
                    field["default"] = _Fresh(_maker(own, resolve_to.bodies, of_record))
    marked = set[int]()
    for body in bodies.values():
        if body["type"] in RECORDS and id(body["fields"]) not in marked:
            marked.add(id(body["fields"]))
            body["fields"].append({"name": _NAME, "type": "string", "default": body["name"]})
    finish = _RecordNameRemoval(bodies, of_record, is_resolved=True).step(schema)
    if _has_namesakes(written.bodies) or _has_namesakes(bodies):
        return _with_long_names(writer_schema), _with_long_names(schema), finish
    return writer_schema, schema, finish


def _has_namesakes(bodies: Mapping[str, Any]) -> bool:
    return len({name.rpartition(".")[2] for name in bodies}) < len(bodies)


def _with_long_names(schema: Any) -> Any:
    """Return a parsed schema in which namespaces are a part of names. fastavro resolves by names without namespaces and
    takes the first match of a union, so of two records that differ in their namespace only it may take the wrong
    one."""
    if isinstance(schema, str):
        return schema.replace(".", "__")
    if isinstance(schema, list):
        return [_with_long_names(part) for part in schema]
    changed = dict(schema)
    for key in changed.keys() & {"type", "items", "values"}:
        changed[key] = _with_long_names(changed[key])
    if "name" in changed:
        namespace = changed["name"].rpartition(".")[0]
        whole = [each if "." in each or not namespace else f"{namespace}.{each}" for each in changed.get("aliases", ())]
        changed["name"], changed["aliases"] = _with_long_names(changed["name"]), _with_long_names(whole)
    if "fields" in changed:
        changed["fields"] = [{**field, "type": _with_long_names(field["type"])} for field in changed["fields"]]
    if "__named_schemas" in changed:
        named = changed["__named_schemas"]
        changed["__named_schemas"] = {_with_long_names(name): _with_long_names(body) for name, body in named.items()}
    return changed


def _maker(field: Mapping[str, Any], bodies: Mapping[str, Any], of_record: OfRecord) -> Callable[[], Any]:
    kind, given = field["type"], field[RAW_DEFAULT]
    finish = _RecordNameRemoval(bodies, of_record, is_resolved=False).step(kind)
    if finish is None:
        return lambda: default_value(kind, given, bodies)
    return lambda: finish(default_value(kind, given, bodies), None)


def _lacks_a_container(written: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether a writer's record lacks a field with a mutable default."""
    for body in wanted.values():
        if body["type"] not in RECORDS:
            continue
        own = [{field["name"], *field.get("aliases", ())} for field in body["fields"] if _may_change(field, wanted)]
        for other in written.values() if own else ():
            if other["type"] in RECORDS and _is_read_as(other, body):
                fields = {field["name"] for field in other["fields"]}
                if any(not names & fields for names in own):
                    return True
    return False


def _may_change(field: Mapping[str, Any], bodies: Mapping[str, Any]) -> bool:
    return RAW_DEFAULT in field and is_container(field["type"], bodies)


def _is_read_as(written: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether fastavro resolves a record to another: by names without namespaces, and by aliases."""
    short = written["name"].rpartition(".")[2]
    aliases = wanted.get("aliases", ())
    return short == wanted["name"].rpartition(".")[2] or short in aliases or written["name"] in aliases


class _RecordNameRemoval(SchemaWalk):
    """Steps that remove the names of records from values, except in unions with several records."""

    def __init__(self, bodies: Mapping[str, Any], of_record: OfRecord, *, is_resolved: bool) -> None:
        super().__init__(bodies)
        self._of_record = of_record
        self._is_resolved = is_resolved

    def record_step(self, schema: dict[str, Any], steps: dict[str, Step]) -> Step | None:
        if not self._is_resolved:
            return super().record_step(schema, steps)
        fresh = [field["name"] for field in schema["fields"] if type(field.get("default")) is _Fresh]
        of_fields = super().record_step(schema, steps)

        def step(value: Any, origin: Any) -> Any:
            value.pop(_NAME, None)
            made = {}
            for name in fresh:
                default = value.get(name)
                if type(default) is _Fresh:
                    made[name] = default.make()
                    del value[name]
            if of_fields is not None:
                value = of_fields(value, None)
            value.update(made)
            return value

        return step

    def union(self, branches: Sequence[Any]) -> Step | None:
        is_named = records_in(list(branches), self.bodies) > 1
        steps = {branch_key(branch, self.bodies): self.step(branch) for branch in branches}
        records = {branch_key(branch, self.bodies) for branch in branches if is_record(branch, self.bodies)}
        if not any(steps.values()) and not any(name in self.bodies for name in steps):
            return None
        of_record = self._of_record

        def step(value: Any, origin: Any) -> Any:
            name = "array" if type(value) is list else ""
            if type(value) is tuple:  # by fastavro: records, and other types that are known by their names
                name, value = value
            elif type(value) is dict:
                found = value.get(_NAME)
                name = found if type(found) is str and found in records else "map"
            of_value = steps.get(name)
            if of_value is not None:
                value = of_value(value, None)
            return of_record(name, value) if is_named and name in records else value

        return step
