"""Definition of a setting: name, type, default, valid values, meaning. One definition per setting, in one place.

A config class is a frozen dataclass whose fields are made by type (`integer(...)`, `words(...)`); the field name is
Kafka's name with `.` written `_`. Parsing, validation, DescribeConfigs and the docs all read the same fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, Field, field, fields
from enum import Enum, IntEnum
from functools import partial
from typing import Any

from ottla_wire.facts import fact

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


NAMESAKE = "group."
"""Marks a group setting whose synonym is `group.` and its own name."""


class InvalidConfig(ValueError):
    """An invalid setting. The message names the key, the value found and the value wanted."""

    def __init__(self, name: str, found: object, wanted: str) -> None:
        super().__init__(f"{name}: found {found!r}, wanted {wanted}")
        self.name = name
        self.found = found
        self.wanted = wanted

    def told(self) -> str:
        """Return the message for a Kafka client, with the value wanted."""
        return f"Invalid value {self.found} for configuration {self.name}: wanted {self.wanted}"


class ConfigType(IntEnum):
    """Types as DescribeConfigs v3+ numbers them."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(Enum):
    """When a broker setting may change at run time (the column "Update Mode" of Kafka's docs)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


Check = Callable[[Any], str | None]
"""Returns the value wanted if the value is wrong, None if it is right."""


@fact
class Definition:
    """The definition of one setting."""

    name: str
    type: ConfigType
    default: Any
    doc: str
    check: Check | None = None
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    synonym: str | None = None
    """For a topic setting: the broker setting that gives its default."""

    def parse(self, text: object) -> Any:
        """Return the typed value of `text`, or raise InvalidConfig."""
        value = _parse(self.name, self.type, text)
        if self.check is not None:
            wanted = self.check(value)
            if wanted is not None:
                raise InvalidConfig(self.name, text, wanted)
        return value

    def format(self, value: Any) -> str | None:
        """Return a typed value as the text that DescribeConfigs shows."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)


def setting(
    kind: ConfigType,
    default: Any,
    doc: str,
    *,
    check: Check | None = None,
    update: UpdateMode = UpdateMode.READ_ONLY,
    synonym: str | None = None,
) -> Any:
    """Return a dataclass field that carries its definition."""
    return field(default=default, metadata={"setting": (kind, doc, check, update, synonym)})


boolean = partial(setting, ConfigType.BOOLEAN)
string = partial(setting, ConfigType.STRING)
integer = partial(setting, ConfigType.INT)
long = partial(setting, ConfigType.LONG)
double = partial(setting, ConfigType.DOUBLE)
words = partial(setting, ConfigType.LIST)
class_name = partial(setting, ConfigType.CLASS)


def definitions_of(config_class: type) -> dict[str, Definition]:
    """Return the definitions of a config class, keyed by Kafka's dotted name."""
    result: dict[str, Definition] = {}
    for each in fields(config_class):
        if "setting" not in each.metadata:
            continue
        result_name = each.name.replace("_", ".")
        kind, doc, check, update, synonym = each.metadata["setting"]
        result[result_name] = Definition(
            name=result_name,
            type=kind,
            default=_default_of(each),
            doc=doc,
            check=check,
            update_mode=update,
            synonym=NAMESAKE + result_name if synonym == NAMESAKE else synonym,
        )
    return result


def at_least(minimum: float) -> Check:
    """Require a value of at least `minimum`."""
    return lambda value: None if value >= minimum else f"at least {minimum}"


def between(low: float, high: float) -> Check:
    """Require a value in [low, high]."""
    return lambda value: None if low <= value <= high else f"between {low} and {high}"


def one_of(*allowed: str) -> Check:
    """Require one of the given words."""
    return lambda value: None if value in allowed else f"one of {', '.join(allowed)}"


def each_of(*allowed: str) -> Check:
    """Return a check for a list of at least one item, all from the given words."""
    is_some = some_of(*allowed)
    return lambda value: is_some(value or ("",))


def some_of(*allowed: str) -> Check:
    """Return a check that each item of a list is one of the given words; an empty list is valid."""
    wanted = f"a comma-separated list of {', '.join(allowed)}"
    return lambda value: None if all(item in allowed for item in value) else wanted


def _default_of(each: Field[Any]) -> Any:
    assert each.default is not MISSING
    return each.default


# As Java reads numbers: Python's `int` and `float` also take 1_000 and nan, and not 0.5f.
_WHOLE = re.compile(r"[+-]?\d{1,40}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,9})?[fFdD]?")

_BOUNDS = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), INT_MAX),
    ConfigType.LONG: (-(2**63), LONG_MAX),
}


def _parse(name: str, kind: ConfigType, found: object) -> Any:
    text = _as_text(found)
    if kind in _BOUNDS:
        low, high = _BOUNDS[kind]
        if not _WHOLE.fullmatch(text):
            raise InvalidConfig(name, found, "a whole number")
        number = int(text)
        if not low <= number <= high:
            raise InvalidConfig(name, found, f"a number between {low} and {high}")
        return number
    if kind is ConfigType.DOUBLE:
        if not _DECIMAL.fullmatch(text):
            raise InvalidConfig(name, found, "a number")
        return float(text.rstrip("fFdD"))
    if kind is ConfigType.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise InvalidConfig(name, found, "true or false")
        return text.lower() == "true"
    if kind is ConfigType.LIST:
        return tuple(item.strip() for item in text.split(",")) if text else ()
    return text


def _as_text(found: object) -> str:
    """Return a setting as text: Python callers may pass numbers, booleans or lists."""
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, (list, tuple)):
        return ",".join(str(item) for item in found)
    return str(found).strip()
