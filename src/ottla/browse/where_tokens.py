"""The words of a `--where` expression, each with its column."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ottla.browse.json_numbers import number_of
from ottla.errors import InputError

MOST_CHARACTERS: Final = 4_000

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)(?![\w.])
      | (?P<text>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
      | (?P<name>[A-Za-z_]\w*)
      | (?P<sign>==|!=|<=|>=|<|>|\(|\)|\[|\]|\.|,)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}


class BadExpression(InputError, has_page=False):
    """Correct the expression: the message shows the place."""

    def __init__(self, expression: str, column: int, wanted: str) -> None:
        start = max(0, column - 40)
        shown = expression[start : column + 20]
        end = column >= len(expression.rstrip())
        found = "its end" if end else repr(expression[column : column + 12])
        super().__init__(f"--where: found {found} at character {column + 1} of {shown!r}, wanted {wanted}")


class WhereToken(NamedTuple):
    kind: str
    """`number`, `text`, `name`, `sign`, or `end`."""
    text: str
    value: Any
    column: int


def tokens(expression: str) -> Iterator[WhereToken]:
    """Yield all tokens, then one of kind `end`. Raises `BadExpression` for invalid text."""
    if len(expression) > MOST_CHARACTERS:
        raise InputError(f"--where: found {len(expression):,} characters, wanted at most {MOST_CHARACTERS:,}")
    position = 0
    end = len(expression.rstrip())
    while position < end:
        found = _TOKEN.match(expression, position)
        if found is None:
            column = position + len(expression[position:]) - len(expression[position:].lstrip())
            raise BadExpression(expression, column, "a name, a number, a text in quotes or an operator")
        kind = found.lastgroup or ""
        text = found[kind]
        yield WhereToken(kind, text, _value(kind, text), found.start(kind))
        position = found.end()
    yield WhereToken("end", "", None, len(expression))


def _value(kind: str, text: str) -> Any:
    if kind == "number":
        return int(text) if text.lstrip("-").isdigit() else number_of(text)
    if kind == "text":
        return _ESCAPE.sub(lambda escape: _ESCAPES.get(escape[1], escape[1]), text[1:-1])
    return text
