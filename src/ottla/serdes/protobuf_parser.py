"""The messages of a Protobuf file, read from its source text (`.proto`): fields by number, with the types they name.

Enough to compare two files. Options, services, extensions and reserved names are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from ottla.serdes.protobuf_files import words_of
from ottla_wire.facts import fact

SCALARS: Final = frozenset(
    (
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64",
        "fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes",
    )
)  # fmt: skip
_LABELS: Final = ("optional", "repeated", "required")
_MOST_DEEP: Final = 100
"""Messages within messages: each is a call."""
_LARGEST_NUMBER: Final = 2**29 - 1


@fact
class ProtobufField:
    """A field of a message."""

    name: str
    label: str
    """`optional`, `repeated`, `required`, or empty."""
    kind: str
    """The type as it is written: `int64`, `Item`, `map<string, shop.Item>`."""
    oneof: str | None = None
    """The oneof that it is a member of."""


@fact
class ProtobufFile:
    """The messages and enums of a file, by their names without the package: `Order`, `Order.Line`."""

    package: str = ""
    messages: Mapping[str, Mapping[int, ProtobufField]] = field(default_factory=dict)
    enums: frozenset[str] = frozenset()


def parse_protobuf(source: str) -> ProtobufFile:
    """Return the messages and enums of a source text. Raises `ValueError` for text that is none."""
    return _Parser(source).file()


class _Parser:
    def __init__(self, source: str) -> None:
        self._words = words_of(source)
        self._token = next(self._words, "")
        self._package = ""
        self._messages: dict[str, dict[int, ProtobufField]] = {}
        self._enums: set[str] = set()

    def file(self) -> ProtobufFile:
        while self._token:
            word = self._take()
            if word in ("export", "local"):
                word = self._take()
            if word == "package":
                self._package = self._take()
                self._want(";")
            elif word == "message":
                self._message("", 1)
            elif word == "enum":
                self._enum("")
            elif word in ("syntax", "edition", "import", "option"):
                self._skip_statement()
            elif word in ("service", "extend"):
                self._take()
                self._skip_block()
            elif word != ";":
                raise _unexpected(word, "message, enum, import, option or service")
        return ProtobufFile(package=self._package, messages=self._messages, enums=frozenset(self._enums))

    def _message(self, scope: str, depth: int) -> None:
        name = self._named(scope)
        self._want("{")
        self._body(name, depth)

    def _body(self, name: str, depth: int) -> None:
        if depth > _MOST_DEEP:
            raise ValueError(f"{name[:200]}: found more than {_MOST_DEEP} messages within each other")
        if name in self._messages:
            raise ValueError(f"message {name[:200]}: declared twice")
        fields = self._messages[name] = {}
        while (word := self._take()) != "}":
            if word in ("export", "local") and self._token in ("message", "enum"):
                word = self._take()
            if word == "message" and self._token not in ("=", "."):
                self._message(f"{name}.", depth + 1)
            elif word == "enum":
                self._enum(f"{name}.")
            elif word == "oneof":
                self._oneof(name, fields, depth)
            elif word in ("option", "reserved", "extensions"):
                self._skip_statement()
            elif word == "extend":
                self._take()
                self._skip_block()
            elif word != ";":
                label = word if word in _LABELS else ""
                self._field(name, fields, self._take() if label else word, label=label, depth=depth)

    def _oneof(self, message: str, fields: dict[int, ProtobufField], depth: int) -> None:
        name = self._take()
        self._want("{")
        while (word := self._take()) != "}":
            if word == "option":
                self._skip_statement()
            elif word != ";":
                self._field(message, fields, word, label="", depth=depth, oneof=name)

    def _field(
        self,
        message: str,
        fields: dict[int, ProtobufField],
        kind: str,
        *,
        label: str,
        depth: int,
        oneof: str | None = None,
    ) -> None:
        if kind == "map" and self._token == "<":
            self._want("<")
            key = self._take()
            self._want(",")
            kind = f"map<{key}, {self._take()}>"
            self._want(">")
        name = self._take()
        self._want("=")
        number = self._number()
        if number in fields:
            raise ValueError(f"message {message[:200]}: found field number {number} twice")
        if self._token == "[":
            self._skip_list()
        if kind == "group":
            self._want("{")
            kind = name
            self._body(f"{message}.{name}", depth + 1)
        else:
            self._want(";")
        fields[number] = ProtobufField(name=name, label=label, kind=kind, oneof=oneof)

    def _enum(self, scope: str) -> None:
        self._enums.add(self._named(scope))
        self._skip_block()

    def _named(self, scope: str) -> str:
        name = self._take()
        if not name.isidentifier():
            raise _unexpected(name, "a name")
        return scope + name

    def _number(self) -> int:
        text = self._take()
        try:
            number = int(text, 0)
        except ValueError:
            raise _unexpected(text, "the number of a field") from None
        if not 1 <= number <= _LARGEST_NUMBER:
            raise _unexpected(text, f"a field number from 1 to {_LARGEST_NUMBER}")
        return number

    def _skip_statement(self) -> None:
        """Skip to the semicolon; an option may have braces."""
        while self._token != ";":
            if self._token == "{":
                self._skip_block()
            else:
                self._take()
        self._want(";")

    def _skip_block(self) -> None:
        self._skip_between("{", "}")

    def _skip_list(self) -> None:
        self._skip_between("[", "]")

    def _skip_between(self, opening: str, closing: str) -> None:
        self._want(opening)
        open_ones = 1
        while open_ones:
            sign = self._take()
            open_ones += (sign == opening) - (sign == closing)

    def _take(self) -> str:
        token = self._token
        if not token:
            raise ValueError("found the end of the text in the middle of a declaration")
        self._token = next(self._words, "")
        return token

    def _want(self, wanted: str) -> None:
        token = self._take()
        if token != wanted:
            raise _unexpected(token, repr(wanted))


def _unexpected(found: str, wanted: str) -> ValueError:
    return ValueError(f"found {found[:100]!r}, wanted {wanted}")
