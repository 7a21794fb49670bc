"""Decimals are read to their last digit, or refused.

fastavro rounds a decimal of more digits than its schema has to that many, and works out any number of digits first.
It reads a logical type by a function that is found by the type's name, so ours has a name of its own.
"""

from __future__ import annotations

import copy
import decimal
from functools import lru_cache
from typing import Any, Final

_OURS: Final = "ottla-decimal"
_KINDS: Final = ("bytes", "fixed")


def with_exact_decimals(schema: Any) -> Any:
    """Return a parsed schema that reads decimals exactly; the schema itself without decimals."""
    if not _has_decimals(schema, set()):
        return schema
    from fastavro.read import LOGICAL_READERS

    for kind in _KINDS:
        LOGICAL_READERS.setdefault(f"{kind}-{_OURS}", _read)
    changed = copy.deepcopy(schema)
    _rename(changed, set())
    return changed


def _read(data: bytes, schema: Any, reader_schema: Any = None) -> decimal.Decimal:
    precision = schema["precision"]
    limit, context = _bounds(precision)
    unscaled = int.from_bytes(data, "big", signed=True)
    if not -limit < unscaled < limit:
        raise ValueError(f"a decimal of {len(data)} bytes has more digits than its precision of {precision}")
    return decimal.Decimal(unscaled).scaleb(-schema.get("scale", 0), context)


@lru_cache(maxsize=256)
def _bounds(precision: int) -> tuple[int, decimal.Context]:
    return 10**precision, decimal.Context(prec=precision)


def _is_decimal(schema: dict[str, Any]) -> bool:
    is_one = schema.get("logicalType") == "decimal" and schema.get("type") in _KINDS
    return is_one and type(schema.get("precision")) is int


def _has_decimals(schema: Any, seen: set[int]) -> bool:
    # A named type is among the names that fastavro keeps in it.
    if not isinstance(schema, list | dict) or id(schema) in seen:
        return False
    seen.add(id(schema))
    if isinstance(schema, dict) and _is_decimal(schema):
        return True
    return any(_has_decimals(part, seen) for part in (schema.values() if isinstance(schema, dict) else schema))


def _rename(schema: Any, seen: set[int]) -> None:
    if isinstance(schema, list | dict) and id(schema) not in seen:
        seen.add(id(schema))
        if isinstance(schema, dict) and _is_decimal(schema):
            schema["logicalType"] = _OURS
        for part in schema.values() if isinstance(schema, dict) else schema:
            _rename(part, seen)
