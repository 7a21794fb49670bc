"""Texts with places to fill in: `{topic}`, `{client}`, `{user}`, `{origin}`, and `{1}` for the first wildcard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.errors import ConfigError

NAMES: Final = ("topic", "client", "user", "origin")


class Template:
    """One text. `fill` is linear in its length."""

    __slots__ = ("_parts", "names", "text")

    def __init__(self, text: str, *, wildcards: int, place: str) -> None:
        self.text = text
        self._parts: list[tuple[str, str | int | None]] = []
        """(literal text, what follows it)."""
        rest = text
        while True:
            literal, opening, rest = rest.partition("{")
            if "}" in literal:
                raise ConfigError(f"{place}: found {text!r}, with }} before any {{")
            if not opening:
                self._parts.append((literal, None))
                break
            name, closing, rest = rest.partition("}")
            if not closing:
                raise ConfigError(f"{place}: found {text!r}, with {{ and no }}")
            self._parts.append((literal, _part(name, wildcards, text, place)))
        self.names = {part for _, part in self._parts if part is not None}
        """What is filled in."""

    @property
    def is_of_topic(self) -> bool:
        """Return whether a topic alone says what the text is."""
        return not self.names & {"client", "user", "origin"}

    def fill(self, captured: Sequence[str], *, topic: str, client: str, user: str, origin: str) -> str:
        """Return the text for one message."""
        if not self.names:
            return self.text
        named = {"topic": topic, "client": client, "user": user, "origin": origin}
        filled = []
        for literal, part in self._parts:
            filled.append(literal)
            if part is not None:
                filled.append(captured[part - 1] if isinstance(part, int) else named[part])
        return "".join(filled)


def _part(name: str, wildcards: int, text: str, place: str) -> str | int:
    if name in NAMES:
        return name
    number = int(name) if name.isascii() and name.isdigit() and len(name) < 6 else 0
    if 1 <= number <= wildcards:
        return number
    known = ", ".join([*NAMES, *map(str, range(1, wildcards + 1))])
    raise ConfigError(f"{place}: found {{{name}}} in {text!r}, wanted one of {known}")
