"""Records as files: JSON lines, or CSV that a spreadsheet does not take for formulas. Pure."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

COLUMNS: Final = ("partition", "offset", "time", "key", "value", "headers")
_ONLY_SHOWN: Final = ("key_bytes", "value_bytes", "key_text", "value_text", "headers_left_out")
"""Fields that a page needs and a record does not have."""
_FORMULA: Final = re.compile(r"\s*[=+\-@|%\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def json_lines(items: Iterable[Mapping[str, Any]]) -> str:
    """Return one line for each record, as `ottla consume --format json` prints it."""
    return "".join(
        json.dumps({name: value for name, value in item.items() if name not in _ONLY_SHOWN}, ensure_ascii=False) + "\n"
        for item in items
    )


def csv_text(items: Iterable[Mapping[str, Any]]) -> str:
    """Return a table with a header line. A text that a spreadsheet would calculate has an apostrophe before it."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for item in items:
        writer.writerow([guarded(_cell(item, column)) for column in COLUMNS])
    return out.getvalue()


def guarded(text: str) -> str:
    """Return a cell that stays text: programs run what begins with =, +, -, @ or a tab, and records are foreign."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _cell(item: Mapping[str, Any], column: str) -> str:
    value = item.get(column)
    if column in ("key", "value"):
        value = item.get(f"{column}_text", value)
        if value is None:
            value = item.get(f"{column}_base64")
    if column == "headers" and not value:
        return ""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
