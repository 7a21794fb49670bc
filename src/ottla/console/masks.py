"""What of records never leaves the process: `--mask PATH` and `--no-values`. Pure.

A mask is put on the record's bytes before anything else looks at them, the filters of a search included: a filter on a
masked field would tell its value bit by bit. What a mask of a field cannot be applied to, because it is no JSON, is
masked whole. What an error said about a record, in the headers of dead letters and retries, may quote any part of it,
and is masked with any of them. The key that a delayed message has in a header is masked as a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from ottla.errors import InputError
from ottla.failures.foreign import may_quote_the_record
from ottla.schedule.headers import KEY as SCHEDULED_KEY
from ottla_wire.records import Row

HIDDEN: Final = "(masked)"
_PARTS: Final = ("key", "value", "headers")
_MOST_STEPS: Final = 20

Plain = Callable[[bytes], Any]
"""A decoder: returns the decoded value, raises, or returns None for bytes that it leaves unchanged."""


class Masks:
    """`row(row)` is the record without what is masked. `hides_values`: values are not shown at all."""

    def __init__(self, paths: Iterable[str] = (), *, hides_values: bool = False) -> None:
        """Take `paths`: `key`, `value`, `value.card.number`, `headers.authorization`. A list is masked element by
        element."""
        self.hides_values = hides_values
        self._paths: dict[str, list[tuple[str, ...]]] = {part: [] for part in _PARTS}
        for path in paths:
            part, *steps = path.split(".")
            if part not in _PARTS or not all(steps) or len(steps) > _MOST_STEPS or (part == "headers" and not steps):
                raise InputError(f"--mask: found {path!r}, wanted key, value, value.FIELD.FIELD or headers.NAME")
            self._paths[part].append(tuple(steps))
        self._headers = {".".join(steps).lower() for steps in self._paths["headers"]}

    @property
    def any(self) -> bool:
        """Return whether anything is masked or hidden."""
        return self.hides_values or any(self._paths.values())

    def changes(self, part: str) -> bool:
        """Return whether key or value are masked, in part or whole."""
        return bool(self._paths[part]) or (part == "value" and self.hides_values)

    def row(self, row: Row, *, key: Plain | None = None, value: Plain | None = None) -> Row:
        """Return a row with masks. `key` and `value` decode: what is decoded is masked, and is JSON then."""
        offset, at, key_bytes, value_bytes, headers = row
        if self.any:
            headers = tuple((name, self._header(name, content, key)) for name, content in headers)
        key_bytes = self._part("key", key_bytes, key)
        value_bytes = HIDDEN.encode() if self.hides_values and value_bytes else self._part("value", value_bytes, value)
        return (offset, at, key_bytes, value_bytes, headers)

    def text(self, derived: str | None) -> str | None:
        """Return text derived from a record, such as an error's message: hidden if anything is masked."""
        return HIDDEN if derived and self.any else derived

    def _header(self, name: str, content: bytes | None, key: Plain | None) -> bytes | None:
        if content is None:
            return None
        if name.lower() in self._headers or may_quote_the_record(name):
            return HIDDEN.encode()
        return self._part("key", content, key) if name.lower() == SCHEDULED_KEY else content

    def _part(self, name: str, data: bytes | None, decode: Plain | None) -> bytes | None:
        paths = self._paths[name]
        if data is None or not paths:
            return data
        if () in paths:
            return HIDDEN.encode()
        try:
            tree = None if decode is None else decode(data)
            if tree is None:
                tree = msgspec.json.decode(data)
            for path in paths:
                tree = _masked(tree, path)
            return msgspec.json.encode(tree)
        except Exception:  # any error of the decoder: a value that cannot be decoded is not shown
            return HIDDEN.encode()


def _masked(tree: Any, path: tuple[str, ...]) -> Any:
    if not path:
        return HIDDEN
    if isinstance(tree, list):
        return [_masked(each, path) for each in tree]
    if isinstance(tree, dict):
        return {name: _masked(each, path[1:]) if name == path[0] else each for name, each in tree.items()}
    return tree
