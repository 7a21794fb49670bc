"""Checked parameters of a request: each must be known, bounded and of its type, or the response names the problem. Used
for the query of a GET and the JSON object of a POST."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from ottla.errors import InputError

MOST_TEXT: Final = 10_000
_TRUE: Final = ("1", "true", "yes", True)
_FALSE: Final = ("0", "false", "no", "", False, None)


class Query:
    """Parameters by name. Each getter marks its name as known; `done` refuses the rest."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._known: set[str] = set()

    def text(self, name: str, default: str | None = None, *, most: int = MOST_TEXT) -> str | None:
        """Return a parameter's text; `default` where it is missing or empty."""
        value = self._take(name)
        if value is None or value == "":
            return default
        if not isinstance(value, str):
            raise InputError(f"{name}: found {_kind(value)}, wanted a text")
        if len(value) > most:
            raise InputError(f"{name}: found {len(value):,} characters, wanted at most {most:,}")
        return value

    def needed(self, name: str) -> str:
        """Return a required parameter's text. It may be empty: that is a valid name of a group."""
        value = self._take(name)
        if value is None:
            raise InputError(f"{name}: found nothing, wanted a text")
        if not isinstance(value, str) or len(value) > MOST_TEXT:
            raise InputError(f"{name}: found {_kind(value)}, wanted a text of at most {MOST_TEXT:,} characters")
        return value

    def number(self, name: str, default: int | None, *, least: int, most: int) -> int | None:
        """Return a whole number within bounds."""
        value = self._take(name)
        if value is None or value == "":
            return default
        if isinstance(value, str) and len(value) <= 20:
            try:
                value = int(value)
            except ValueError:
                raise InputError(f"{name}: found {value!r}, wanted a whole number") from None
        if type(value) is not int or not least <= value <= most:
            raise InputError(f"{name}: found {str(value)[:30]!r}, wanted a whole number of {least:,} to {most:,}")
        return value

    def paging(self, *, size: int = 100, most: int = 1_000) -> tuple[int, int]:
        """Return (`page`, from 0, and `size`): which part of a list, `size` entries unless something else is asked
        for."""
        page = self.number("page", 0, least=0, most=1_000_000) or 0
        return page, self.number("size", size, least=1, most=most) or size

    def flag(self, name: str) -> bool:
        """Return whether the parameter is set."""
        value = self._take(name)
        if not isinstance(value, str | bool | None):
            raise InputError(f"{name}: found {_kind(value)}, wanted true or false")
        if value in _TRUE:
            return True
        if value in _FALSE:
            return False
        raise InputError(f"{name}: found {str(value)[:30]!r}, wanted true or false")

    def one_of(self, name: str, wanted: Collection[str], default: str) -> str:
        """Return one of a few words."""
        value = self.text(name, default, most=100)
        if value not in wanted:
            raise InputError(f"{name}: found {value!r}, wanted one of {', '.join(wanted)}")
        return str(value)

    def texts(self, name: str, *, most: int = 1_000) -> list[str]:
        """Return a list of texts; in a query one of them alone."""
        value = self._take(name)
        if value is None or value == "":
            return []
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or len(found) > most or not all(isinstance(each, str) for each in found):
            raise InputError(f"{name}: wanted a list of at most {most:,} texts")
        return found

    def anything(self, name: str) -> Any:
        """Return a raw value; the caller checks it."""
        return self._take(name)

    def done(self) -> None:
        """Refuse unknown parameters: a misspelt one would be ignored silently."""
        for name in self._given:
            if name not in self._known:
                raise InputError(
                    f"found the parameter {name[:60]!r}, wanted {', '.join(sorted(self._known)) or 'none'}"
                )

    def _take(self, name: str) -> Any:
        self._known.add(name)
        return self._given.get(name)


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", bool: "a boolean", str: "a long text"}.get(type(value), "a number")
