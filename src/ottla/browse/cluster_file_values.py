"""Values of the file of `ottla apply`: each reader names the place of what it cannot take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ottla.browse.dotted_names import dotted
from ottla.browse.human_amounts import setting_value
from ottla.errors import ConfigError, InputError
from ottla.showing import shown
from ottla.topics import text_problem


def tables_of(
    document: Mapping[str, Any], key: str, source: str, *, example: str
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yield name, table and place of the tables at a key."""
    tables = document.get(key, {})
    if not isinstance(tables, dict):
        raise InputError(f"{source}: {key}: found {shown(tables)}, wanted tables, as in {example}")
    for name, table in tables.items():
        place = f"{source}: {key}.{name}"
        if not isinstance(table, dict):
            raise InputError(f"{place}: found {shown(table)}, wanted a table, as in {example}")
        yield name, table, place


def entries_of(document: Mapping[str, Any], key: str, source: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield table and place of the entries of a list of tables."""
    entries = document.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise InputError(f"{source}: {key}: wanted a list of tables, each begun with [[{key}]]")
    for number, table in enumerate(entries, start=1):
        yield table, f"{source}: {key} {number}"


def check_keys(table: Mapping[str, Any], names: tuple[str, ...], place: str) -> None:
    """Raise `InputError` for a key that is none of these names."""
    for key in table:
        if key not in names:
            raise InputError(f"{place}: found {key!r}, wanted one of {', '.join(names)}")


def count_of(value: object, place: str, most: int) -> int | None:
    """Return a whole number from 1 to the most, None where there is none."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise InputError(f"{place}: found {shown(value)}, wanted a whole number from 1 to {most:,}")
    return value


def text_of(value: object, place: str) -> str:
    """Return text that is not empty."""
    if not isinstance(value, str) or not value:
        raise InputError(f"{place}: found {shown(value)}, wanted text")
    problem = text_problem(value)
    if problem is not None:
        raise InputError(f"{place}: {problem}")
    return value


def texts_of(value: object, place: str) -> tuple[str, ...]:
    """Return a list of texts."""
    if not isinstance(value, list):
        raise InputError(f"{place}: found {shown(value)}, wanted a list of texts")
    return tuple(text_of(each, place) for each in value)


def settings_of(table: object, place: str) -> dict[str, str]:
    """Return settings by their dotted names. TOML reads `retention.ms = ...` as a table in a table."""
    if not isinstance(table, dict):
        raise InputError(f"{place}: found {shown(table)}, wanted a table of settings")
    found: dict[str, str] = {}
    for name, value in dotted(table):
        where = f"{place}.{name}"
        if name in found:
            raise InputError(f"{where}: declared twice")
        found[name] = _setting(name, value, where)
    return found


def _setting(name: str, value: object, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        value = ",".join(value)
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(f"{where}: found {shown(value)}, wanted text, a number, true or false")
    text = str(value)
    problem = text_problem(text)
    if problem is not None:
        raise InputError(f"{where}: {problem}")
    try:
        return setting_value(name, text)
    except ConfigError as error:
        raise InputError(f"{where}: {error}") from None
