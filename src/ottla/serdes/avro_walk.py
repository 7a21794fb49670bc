"""Steps that change values of a schema, built once: a schema without steps has no cost.

A step takes a value and its origin (the object that the plain value was made of, or None) and returns the value to use.
What needs steps is decided by a subclass, for unions and for single types; records, arrays and maps are walked here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ottla.serdes.avro_schema import PRIMITIVES, Schema
from ottla.serdes.models import attributes_of

Step: TypeAlias = Callable[[Any, Any], Any]
RECORDS: Final = ("record", "error")


class Misfit(ValueError):
    """A value that does not fit, with its path, which is completed on the way out."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.place = ""

    @classmethod
    def of(cls, error: Exception) -> Misfit:
        """Return a `Misfit` for an error of msgspec, whose text contains the place."""
        problem, _, place = str(error).partition(" - at `$")
        misfit = cls(problem)
        misfit.place = place.removesuffix("`")
        return misfit

    def __str__(self) -> str:
        return f"{self.problem} - at `${self.place}`"


class SchemaWalk:
    """Makes steps of a schema that fastavro parsed. `bodies` are its named types by their full names."""

    def __init__(self, bodies: Mapping[str, Any]) -> None:
        self.bodies = bodies
        self._made: dict[str, Step | None] = {}
        self._open: set[str] = set()

    def union(self, branches: Sequence[Any]) -> Step | None:
        """Return the step of a union."""
        raise NotImplementedError

    def leaf(self, schema: dict[str, Any]) -> Step | None:
        """Return the step of a type that is no record, array, map or union."""
        return None

    def inside_itself(self, name: str) -> Step | None:
        """Return the step of a record where it occurs within itself."""
        return lambda value, origin: value if (step := self._made[name]) is None else step(value, origin)

    def record_step(self, schema: dict[str, Any], steps: dict[str, Step]) -> Step | None:
        """Return the step of a record from the steps of its fields."""
        return _of_fields(steps) if steps else None

    def step(self, schema: Schema) -> Step | None:
        """Return the step of a schema; None if its values are used unchanged."""
        body = body_of(schema, self.bodies)
        if isinstance(body, list):
            return self.union(body)
        if "name" in body:
            return self._of_named(body)
        if body["type"] == "array":
            return _of_items(self.step(body["items"]))
        if body["type"] == "map":
            return _of_values(self.step(body["values"]))
        return self.leaf(body)

    def _of_named(self, body: Any) -> Step | None:
        name = body["name"]
        if name in self._open:
            return self.inside_itself(name)
        if name not in self._made:
            if body["type"] not in RECORDS:
                self._made[name] = self.leaf(body)
                return self._made[name]
            self._open.add(name)
            found = {field["name"]: self.step(field["type"]) for field in body["fields"]}
            self._open.discard(name)
            self._made[name] = self.record_step(body, {field: step for field, step in found.items() if step})
        return self._made[name]


def body_of(schema: Any, bodies: Mapping[str, Any]) -> Any:
    """Return a schema with its name resolved."""
    while not isinstance(schema, list):
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return {"type": schema}
            schema = bodies[schema]
        elif not isinstance(schema["type"], str) or (schema["type"] in bodies and "name" not in schema):
            schema = schema["type"]
        else:
            return schema
    return schema


def branch_key(schema: Any, bodies: Mapping[str, Any]) -> str:
    """Return fastavro's name of a branch of a union: its full name, or its type."""
    body = body_of(schema, bodies)
    return str(body.get("name", body["type"]))


def is_record(schema: Any, bodies: Mapping[str, Any]) -> bool:
    """Return whether a branch of a union is a record."""
    return body_of(schema, bodies)["type"] in RECORDS


def _origin_at(origin: Any, name: str) -> Any:
    """Return the part of an origin that a field was made of; None if unknown."""
    if isinstance(origin, dict):
        return origin.get(name)
    attribute = attributes_of(type(origin)).get(name)
    return None if attribute is None else getattr(origin, attribute, None)


def _of_fields(steps: dict[str, Step]) -> Step:
    listed = list(steps.items())

    def step(value: Any, origin: Any) -> Any:
        if not isinstance(value, dict):
            return value
        changed = dict(value)
        for name, of_field in listed:
            if name in changed:
                try:
                    changed[name] = of_field(changed[name], _origin_at(origin, name))
                except Misfit as misfit:
                    misfit.place = f".{name}{misfit.place}"
                    raise
        return changed

    return step


def _of_items(of_item: Step | None) -> Step | None:
    if of_item is None:
        return None

    def step(value: Any, origin: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        origins = origin if isinstance(origin, list | tuple) and len(origin) == len(value) else [None] * len(value)
        changed = []
        for item, its_origin in zip(value, origins, strict=True):
            try:
                changed.append(of_item(item, its_origin))
            except Misfit as misfit:
                misfit.place = f"[{len(changed)}]{misfit.place}"
                raise
        return changed

    return step


def _of_values(of_value: Step | None) -> Step | None:
    if of_value is None:
        return None

    def step(value: Any, origin: Any) -> Any:
        if not isinstance(value, dict):
            return value
        changed = {}
        for key, item in value.items():
            try:
                changed[key] = of_value(item, origin.get(key) if isinstance(origin, dict) else None)
            except Misfit as misfit:
                misfit.place = f"[{key!r}]{misfit.place}"
                raise
        return changed

    return step
