"""Which branch of a union a value is written as, and other rules that a type alone cannot express.

fastavro takes the first branch that could hold a value: a class for another of the same shape, an integer for a double
that rounds it, a datetime without a zone for one of the machine's zone. Here the branch is

- of a value of a class: the record or enum that has the class's name (or that of a class it derives from, or an alias);
- of `("full.Name", value)`: the one that is named;
- of other values: the one whose type is the value's, exactly; several records (or a map) that fit are refused.

Unions whose branches cannot be mistaken are left to fastavro, and schemas without anything to decide cost nothing.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ottla.serdes.avro_check import Checks
from ottla.serdes.avro_schema import decimal_problem
from ottla.serdes.avro_walk import RECORDS, Misfit, SchemaWalk, Step, body_of, branch_key
from ottla.serdes.base import type_name
from ottla.serdes.models import is_model, to_plain, type_text

# What a value is looked for in: the next group only where none of the one before it holds the value.
_GROUPS: Final[dict[type, tuple[tuple[str, ...], ...]]] = {
    bool: (("boolean",),),
    int: (("integer",), ("datetime", "date", "time", "double", "float")),
    float: (("double",), ("float",)),
    str: (("text", "enum", "uuid"),),
    bytes: (("bytes", "fixed"),),
    bytearray: (("bytes", "fixed"),),
    decimal.Decimal: (("decimal",),),
    datetime.datetime: (("datetime",),),
    datetime.date: (("date",),),
    datetime.time: (("time",),),
    uuid.UUID: (("uuid",),),
    list: (("array",),),
    tuple: (("array",),),
    dict: (("record", "map"),),
}
_READ_DIFFERENTLY: Final = frozenset({"record", "map", "datetime", "date", "time", "double", "float"})
"""A value that fits several of these is refused: it would be read back as another type."""
_OF_CLASSES: Final = ("record", "enum")
_TEMPORAL: Final = {
    ("long", "timestamp-millis"): "datetime",
    ("long", "timestamp-micros"): "datetime",
    ("long", "local-timestamp-millis"): "datetime",
    ("long", "local-timestamp-micros"): "datetime",
    ("int", "date"): "date",
    ("int", "time-millis"): "time",
    ("long", "time-micros"): "time",
}
_PLAIN: Final = {"int": "integer", "long": "integer", "string": "text", "error": "record"}


def writing_steps(schema: Any, bodies: Mapping[str, Any], checks: Checks, *, is_json: bool = False) -> Step | None:
    """Return the steps before a plain value is written; None without any.

    `is_json`: values come from JSON, where a record of a union may stand as `{"full.Name": {...}}`, and times, bytes
    and numbers as text. Steps raise `Misfit`.
    """
    return _UnionWriting(bodies, checks, is_json=is_json).step(schema)


@dataclass(frozen=True, slots=True)
class _Branch:
    key: str
    group: str
    check: Any
    step: Step | None
    is_json: bool
    names: frozenset[str] = frozenset()
    """Its name and its aliases, without namespaces."""
    fields: frozenset[str] = frozenset()

    def holds(self, value: Any, origin: Any) -> Any:
        """Return the value as this branch writes it. Raises `Misfit` where it does not hold it."""
        if self.group in ("double", "float") and type(value) is int and int(float(value)) != value:
            raise Misfit(f"{value} cannot be held exactly by a {self.group}")
        if self.group == "record" and isinstance(value, dict) and (others := set(value) - self.fields):
            raise Misfit(f"{self.key} has no field {sorted(map(str, others))[0]}")
        try:
            converted = msgspec.convert(value, self.check)
        except (ValueError, TypeError, OverflowError) as error:
            raise Misfit.of(error) from error
        value = converted if self.is_json else value
        return value if self.step is None else self.step(value, origin)


class _UnionWriting(SchemaWalk):
    def __init__(self, bodies: Mapping[str, Any], checks: Checks, *, is_json: bool) -> None:
        super().__init__(bodies)
        self._checks = checks
        self._is_json = is_json

    def leaf(self, schema: dict[str, Any]) -> Step | None:
        if schema.get("logicalType") != "decimal" or schema["type"] not in ("bytes", "fixed"):
            return None
        return _decimal_step(schema.get("precision"), schema.get("scale", 0))

    def inside_itself(self, name: str) -> Step | None:
        # The type that the whole value is checked against ends where a record is inside itself.
        step = super().inside_itself(name)

        def checked(value: Any, origin: Any) -> Any:
            if isinstance(value, dict):
                try:
                    msgspec.convert(value, self._checks.type_of(name))
                except msgspec.ValidationError as error:
                    raise Misfit.of(error) from error
            return value if step is None else step(value, origin)

        return checked

    def union(self, branches: Sequence[Any]) -> Step | None:
        made = [self._branch(branch) for branch in branches if branch_key(branch, self.bodies) != "null"]
        if len(made) == 1:
            return _optional(made[0])
        if self._checks.distinguishes(branches) and not any(branch.step for branch in made):
            return None
        return _Choice(made, has_null=len(made) < len(branches), is_json=self._is_json)

    def _branch(self, schema: Any) -> _Branch:
        body = body_of(schema, self.bodies)
        kind, logical = body["type"], body.get("logicalType")
        group = _TEMPORAL.get((kind, logical)) or _PLAIN.get(kind, kind)
        if logical in ("decimal", "uuid"):
            group = logical
        names = {body.get("name", ""), *body.get("aliases", ())}
        return _Branch(
            branch_key(schema, self.bodies),
            group,
            self._checks.type_of(schema),
            self.step(schema),
            self._is_json,
            frozenset(name.rpartition(".")[2] for name in names if name),
            frozenset(field["name"] for field in body["fields"]) if kind in RECORDS else frozenset(),
        )


class _Choice:
    """The step of a union of several types."""

    def __init__(self, branches: list[_Branch], *, has_null: bool, is_json: bool) -> None:
        self._branches = branches
        self._by_key = {branch.key: branch for branch in branches}
        self._has_null = has_null
        self._is_json = is_json
        self._names = ", ".join([*(["null"] if has_null else []), *self._by_key])

    def __call__(self, value: Any, origin: Any) -> Any:
        if value is None:
            if self._has_null:
                return None
            raise Misfit(f"found None, wanted one of {self._names}")
        for given in (value, origin):  # msgspec makes a list of a tuple in a class's field
            if type(given) is tuple and len(given) == 2 and type(given[0]) is str and given[0] in self._by_key:
                return self._named(given[0], given[1])
        if self._is_json and type(value) is dict and len(value) == 1:
            ((name, part),) = value.items()
            if name in self._by_key and self._by_key[name].group == "record" and type(part) is dict:
                return self._named(name, part)
        if is_model(type(value)):
            value, origin = to_plain(value), value
        if origin is not None and (is_model(type(origin)) or isinstance(origin, enum.Enum)):
            branch = self._of_class(type(origin))
            if branch is not None:
                return (branch.key, branch.holds(value, origin))
        return self._by_type(value, origin)

    def _named(self, key: str, value: Any) -> Any:
        origin = value
        if is_model(type(value)):
            value = to_plain(value)
        return (key, self._by_key[key].holds(value, origin))

    def _of_class(self, kind: type) -> _Branch | None:
        for each in kind.__mro__:
            found = [
                branch for branch in self._branches if branch.group in _OF_CLASSES and each.__name__ in branch.names
            ]
            if len(found) == 1:
                return found[0]
            if found:
                raise Misfit(
                    f"a {type_text(kind)} could be {' or '.join(branch.key for branch in found)}; "
                    f'say which: ("{found[0].key}", value)'
                )
        return None

    def _by_type(self, value: Any, origin: Any) -> Any:
        groups = next((_GROUPS[each] for each in type(value).__mro__ if each in _GROUPS), ())
        if isinstance(origin, enum.Enum) and "enum" in {branch.group for branch in self._branches}:
            groups = (("enum",), *groups)
        problems: list[str] = []
        for group in groups:
            found = self._holding(value, origin, group, problems)
            if found:
                return found
        if self._is_json and type(value) in (str, float):
            found = self._holding(value, origin, ("datetime", "date", "time", "decimal", "bytes"), problems)
            if found:
                return found
        why = f": {'; '.join(problems)}" if problems else ""
        raise Misfit(f"found {type_name(value)}, wanted one of {self._names}{why}")

    def _holding(self, value: Any, origin: Any, group: Sequence[str], problems: list[str]) -> Any:
        """Return (branch, value) of the group's branch that accepts the value; None without one."""
        held: dict[str, tuple[_Branch, Any]] = {}
        for branch in self._branches:
            if branch.group in group:
                try:
                    held[branch.key] = (branch, branch.holds(value, origin))
                except Misfit as misfit:
                    problems.append(f"{branch.key}{misfit.place}: {misfit.problem}")
        if "double" in held:
            held.pop("float", None)
        groups = [branch.group for branch, _ in held.values()]
        is_doubled = any(groups.count(each) > 1 for each in ("record", "enum", "fixed"))
        if is_doubled or (len(set(groups)) > 1 and set(groups) <= _READ_DIFFERENTLY):
            keys = list(held)
            raise Misfit(f'the value could be {" or ".join(keys)}; say which: ("{keys[0]}", value)')
        return next(((key, written) for key, (_, written) in held.items()), None)


def _optional(branch: _Branch) -> Step | None:
    """Return the step of a union with null: fastavro need not search the branch."""
    of_value, key = branch.step, branch.key
    if of_value is None:
        return None
    return lambda value, origin: None if value is None else (key, of_value(value, origin))


def _decimal_step(precision: int | None, scale: int) -> Step | None:
    if precision is None:
        return None
    zero = decimal.Decimal((0, (0,), -scale))

    def step(value: Any, origin: Any) -> Any:
        if not isinstance(value, decimal.Decimal):
            return value
        problem = decimal_problem(value, precision, scale)
        if problem is not None:
            raise Misfit(problem)
        return value if value else zero  # zero may have any exponent, and fastavro makes a power of ten of it

    return step
