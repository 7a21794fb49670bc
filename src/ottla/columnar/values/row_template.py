"""What stands between the values of a JSON object: `{"shop": `, `, "number": ` and so on to `}`.

Whoever writes a topic writes objects with the same fields in the same order, with the same blanks. So the bytes between
values are the same in most rows, and one row says what they are. Where they are found again in another row, its values
are what lies between them.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Final, NamedTuple

from ottla.columnar.values.json_types import JsonField, JsonRecord

LONGEST: Final = 4096
"""A layout with more bytes or fields than that is left to the row decoder: it is compared with all rows."""
MOST_FIELDS: Final = 256

_BLANK: Final = rb"[ \t\n\r]*"
_NAME: Final = rb'"([^"\\\x00-\x1f]*)"' + _BLANK + rb":" + _BLANK
_FIRST: Final = re.compile(_BLANK + rb"\{" + _BLANK + _NAME)
_NEXT: Final = re.compile(_BLANK + rb"," + _BLANK + _NAME)
_LAST: Final = re.compile(_BLANK + rb"\}" + _BLANK + rb"\Z")
_SCALAR: Final = re.compile(rb'"[^"\\\x00-\x1f]*"|[-+.0-9eE]+|true|false|null')
"""Text without escapes, or what may be a number: whether it is one is found out with all others of its column."""


class FieldSlot(NamedTuple):
    """A value's place in a layout."""

    field: JsonField | None
    """None for the value of an unused field."""
    is_text: bool
    """Whether it is text in every row, so that its quotes belong to the bytes around it."""


@dataclasses.dataclass(frozen=True, slots=True)
class RowTemplate:
    """The bytes between values, and which field each value belongs to."""

    literals: tuple[bytes, ...]
    """The text before each value, and after the last: one more than there are values."""
    places: tuple[FieldSlot, ...]

    @property
    def controls(self) -> int:
        """Return the number of control characters: line ends and tabs between values."""
        return sum(byte < 0x20 for literal in self.literals for byte in literal)


def template_of(record: JsonRecord, row: bytes) -> RowTemplate | None:
    """Return the layout of a row; None if it has none of which the columns can be made: the row decoder knows what it
    is.

    Every field that has no default is there, no field is there twice, nothing is nested or escaped, and text stands for
    no number and no boolean: without its quotes it would be one.
    """
    literals: list[bytes] = []
    names: list[bytes] = []
    places: list[FieldSlot] = []
    quote, at, pattern = b"", 0, _FIRST
    while (found := pattern.match(row, at)) is not None:
        value = _SCALAR.match(row, found.end())
        if value is None or len(names) == MOST_FIELDS:
            return None
        field, is_text = record.field(found[1]), value[0].startswith(b'"')
        if is_text and field is not None and field.kind != "str":
            return None
        place = _place(field, is_text=is_text)
        literals.append(quote + found[0])
        quote = b'"' if place.is_text else b""
        literals[-1] += quote
        names.append(found[1])
        places.append(place)
        at, pattern = value.end(), _NEXT
    last = _LAST.match(row, at)
    if last is None or not names or len(set(names)) < len(names):
        return None
    literals.append(quote + last[0])
    is_complete = all(field.name in names or field.has_default for field in record.fields)
    is_welcome = record.takes_unknown_fields or all(place.field for place in places)
    if not is_complete or not is_welcome or sum(map(len, literals)) > LONGEST:
        return None
    return RowTemplate(tuple(literals), tuple(places))


def _place(field: JsonField | None, *, is_text: bool) -> FieldSlot:
    """Return the place of a value. Text that may be null elsewhere is not text in every row."""
    return FieldSlot(field, is_text and (field is None or not field.is_optional))
