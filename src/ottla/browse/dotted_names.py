"""Settings in TOML: `sasl.username = ...` is read as a table in a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def dotted(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables with their dotted names."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from dotted(value, f"{above}{key}.")
        else:
            yield above + key, value
