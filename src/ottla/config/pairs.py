"""`NAME=VALUE` as people type it on command lines and in ini files."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.errors import ConfigError


def parse_pairs(pairs: Iterable[str], *, wanted: str, example: str, option: str = "--set") -> dict[str, str]:
    """Return the names and values of `NAME=VALUE` texts; the last of two with one name counts."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{option}: found {pair!r}, wanted {wanted}, as in {example}")
        found[name.strip()] = value
    return found
