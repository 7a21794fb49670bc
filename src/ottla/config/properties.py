"""Files of properties as Java's `Properties.load` reads them: what Kafka's own tools take as `--command-config`. Pure.

- A name ends at the first `=`, `:` or blank. Blanks around the separator do not count; those at the end of a value do
  not count either, for Kafka drops them.
- `#` and `!` begin a comment, at the beginning of a line only.
- A backslash at the end of a line continues it; the blanks that begin the next line do not count.
- Backslash escapes: `\\t`, `\\n`, `\\r`, `\\f`, `\\uXXXX`; before any other character it is dropped.

Text is UTF-8 with or without a byte order mark, else Latin-1, which Java reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ottla.errors import ConfigError

_BLANKS = " \t\f"
_NAME = re.compile(r"(?:[^\\=: \t\f]|\\.)+")
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(data: bytes, *, source: str) -> dict[str, str]:
    """Return names and values; the last of a repeated name counts. ConfigError names the line, and never shows a
    value.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        name = _NAME.match(line)
        if name is None:
            raise ConfigError(f"{source}: line {number}: found no name, wanted NAME=VALUE")
        separator = _SEPARATOR.match(line, name.end())
        value = line[name.end() if separator is None else separator.end() :]
        if not value and "=" not in line and ":" not in line:
            raise ConfigError(f"{source}: line {number}: found no value, wanted NAME=VALUE")
        found[_unescaped(name[0])] = _unescaped(value).strip()
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines joined with their continuations, each with its first line number; without comments and empty
    lines.
    """
    pieces: list[str] = []
    first = 0
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        stripped = line.lstrip(_BLANKS)
        if not pieces:
            if not stripped or stripped[0] in "#!":
                continue
            first = number
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        is_continued = backslashes % 2 == 1
        pieces.append(stripped[:-1] if is_continued else stripped)
        if not is_continued:
            yield first, "".join(pieces)
            pieces = []
    if pieces:
        yield first, "".join(pieces)


def _unescaped(text: str) -> str:
    plain = _ESCAPE.sub(lambda found: _character(found[1]), text)
    # Java writes what is beyond 16 bits as two of them.
    return plain if plain.isascii() else plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _character(escaped: str) -> str:
    if len(escaped) == 5:
        return chr(int(escaped[1:], 16))
    return _ESCAPED.get(escaped, escaped)
