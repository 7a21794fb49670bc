"""Which records are printed: by key, header, a pattern in the bytes, an expression. Cheapest first; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.browse.decoding import Decoder
from ottla.errors import InputError, RegistryUnavailable
from ottla.patterns import Pattern
from ottla.wire_client.fetching.record_rows import RecordRows
from ottla_wire.records import Row, shown_key


class Selection:
    """All conditions that a record must meet. `of(block)` returns the records of a block that meet them."""

    def __init__(
        self,
        *,
        key: str | None = None,
        headers: Sequence[str] = (),
        pattern: str | None = None,
        where: Callable[[Any], bool] | None = None,
        decoders: Mapping[str, Decoder] | None = None,
    ) -> None:
        """Take `headers`: `NAME=VALUE`, or `NAME` that must be there. Raises `InputError` for a malformed pattern."""
        self._key = None if key is None else key.encode("utf-8", "surrogateescape")
        self._headers = [_wanted_header(given) for given in headers]
        self._pattern = None if pattern is None else Pattern(pattern, name="--grep")
        self._where = where
        self._scope = RecordScope(decoders or {})
        self.takes_all = key is None and not headers and pattern is None and where is None

    def of(self, block: RecordRows) -> RecordRows:
        """Return the block with the records that are meant."""
        if self.takes_all:
            return block
        rows = block.rows
        if self._key is not None:
            rows = [row for row in rows if row[2] == self._key]
        for name, value in self._headers:
            rows = [row for row in rows if any(h == name and (value is None or v == value) for h, v in row[4])]
        if self._pattern is not None:
            search = self._pattern.is_in
            rows = [row for row in rows if (row[3] and search(row[3])) or (row[2] and search(row[2]))]
        if self._where is not None and rows:
            where, scope = self._where, self._scope
            scope.begin(block)
            rows = [row for row in rows if where(scope.at(row))]
        return block._replace(rows=rows)


class RecordScope:
    """A record as a `--where` expression sees it. One for all records: decoded parts are kept while it stays at one."""

    def __init__(self, decoders: Mapping[str, Decoder]) -> None:
        self._decoders = decoders
        self._trees: dict[str, Any] = {}
        self._row: Row = (0, 0, None, None, ())
        self.topic = ""
        self.partition = 0

    def begin(self, block: RecordRows) -> None:
        """Begin a block: the following records belong to it."""
        self.topic, self.partition = block.topic, block.partition

    def at(self, row: Row) -> RecordScope:
        """Go to this record."""
        self._row = row
        if self._trees:
            self._trees = {}
        return self

    @property
    def offset(self) -> int:
        return self._row[0]

    @property
    def timestamp(self) -> int:
        return self._row[1]

    def headers(self) -> dict[str, str | None]:
        return {
            shown_key(name): None if value is None else value.decode("utf-8", "backslashreplace")
            for name, value in self._row[4]
        }

    def text(self, part: str) -> Any:
        decoder = self._decoders.get(part)
        if decoder is not None and not decoder.is_raw:
            return self.tree(part)
        data = self._bytes(part)
        return None if data is None else data.decode("utf-8", "backslashreplace")

    def tree(self, part: str) -> Any:
        if part not in self._trees:
            self._trees[part] = self._decoded(part)
        return self._trees[part]

    def _bytes(self, part: str) -> bytes | None:
        return self._row[2] if part == "key" else self._row[3]

    def _decoded(self, part: str) -> Any:
        from ottla.browse.json_numbers import tree_of

        data = self._bytes(part)
        if data is None:
            return None
        decoder = self._decoders.get(part)
        try:
            found = None if decoder is None or decoder.is_raw else decoder.tree(data)
            return tree_of(data) if found is None else found
        except RegistryUnavailable:
            raise
        except Exception:  # whatever a decoder has against the bytes
            return None


def _wanted_header(given: str) -> tuple[str, bytes | None]:
    name, equals, value = given.partition("=")
    if not name:
        raise InputError(f"--header: found {given!r}, wanted NAME=VALUE, or NAME for one of any value")
    return name, value.encode("utf-8", "surrogateescape") if equals else None
