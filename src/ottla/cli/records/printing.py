"""Output of `ottla consume` for a block of records: a table, plain lines, JSON, or a kcat format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from ottla.browse.decoding import Decoder
from ottla.browse.record_json import lines_of
from ottla.cli.records.display import Display
from ottla.cli.records.template import RecordTemplate
from ottla.errors import InputError
from ottla.wire_client.fetching.record_rows import RecordRows

PLAIN: Final = "%p\\t%o\\t%D\\t%k\\t%v\\t%h\\n"
PLAIN_HEADERS: Final = "%p\\t%o\\t%D\\t%k\\t%S\\t%h\\n"
PLAIN_NAMES: Final = "partition\toffset\ttime\tkey\tvalue\theaders\n"
_TABLE: Final = "%p:%o  %D  %k  %v  {dim}%h{normal}\\n"
_TABLE_HEADERS: Final = "%p:%o  %D  %k  {dim}%S bytes{normal}  %h\\n"
_DIM: Final = {"dim": "\\x1b[2m", "normal": "\\x1b[0m"}
_NO_COLOR: Final = {"dim": "", "normal": ""}

Printer: TypeAlias = Callable[[RecordRows], bytes]


def printer_of(
    form: str,
    *,
    key: Decoder,
    value: Decoder,
    has_values: bool = True,
    is_terminal: bool = False,
    has_color: bool = False,
    null: str = "",
) -> Printer:
    """Return the printer of a format: `table`, `plain`, `json`, or one with `%` in it. Raises `InputError` for anything
    else."""
    if form == "json":
        keys, values = (None if each.is_raw else each.written for each in (key, value))
        return lambda block: lines_of(block, key=keys, value=values, is_safe=is_terminal, has_values=has_values)
    null_bytes = null.encode("utf-8", "surrogateescape")
    if form == "plain":
        text = PLAIN if has_values else PLAIN_HEADERS
    elif form == "table":
        text = (_TABLE if has_values else _TABLE_HEADERS).format(**(_DIM if has_color else _NO_COLOR))
        null_bytes = null_bytes or b"null"
    elif "%" in form:
        text = form
    else:
        raise InputError(f"--format: found {form!r}, wanted table, plain, json, or a format as '%t-%p@%o %k %v\\n'")
    is_safe = is_terminal or form in ("plain", "table")
    template = RecordTemplate(
        text,
        key=Display(decode=None if key.is_raw else key.plain, is_safe=is_safe, null=null_bytes),
        value=Display(decode=None if value.is_raw else value.plain, is_safe=is_safe, null=null_bytes),
        is_safe=is_safe,
        null=null_bytes,
    )
    return template.lines


class PrintBudget:
    """At most so many records a second, for a person who follows a topic. Pure: the time is an argument."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._second = -1
        self._left = 0
        self.left_out = 0

    def takes(self, count: int, now_s: float) -> int:
        """Return how many of `count` records may be printed now. The others are counted as left out."""
        if int(now_s) != self._second:
            self._second, self._left = int(now_s), self._per_second
        taken = min(count, self._left)
        self._left -= taken
        self.left_out += count - taken
        return taken
