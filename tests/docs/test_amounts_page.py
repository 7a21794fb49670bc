"""The forms on the page of times, durations and sizes are those that the parsers read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.amounts import parse_duration_ms, parse_size, parse_time_ms

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "amounts.md").read_text(encoding="utf-8")
READERS = {
    "duration": parse_duration_ms,
    "size in bytes": parse_size,
    "time": lambda text: parse_time_ms(text, now_ms=10**12),
}


@pytest.mark.parametrize("what", READERS)
def test_every_form_on_the_page_is_read(what: str) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {what} |")]
    forms = re.findall("`([^`]+)`", row)
    assert len(forms) >= 5
    assert [form for form in forms if READERS[what](form) is None] == []


def test_every_unit_on_the_page_is_read() -> None:
    (units,) = [line for line in PAGE.splitlines() if line.startswith("- Units of durations")]
    durations, sizes = units.split("Units of sizes")
    for unit in ("ms", "s", "m", "min", "h", "d", "w"):
        assert re.search(rf"\b{unit}\b", durations)
        assert parse_duration_ms(f"2{unit}")
    for unit in re.findall(r"\b[kKMGT]?i?B\b", sizes):
        assert parse_size(f"2{unit}")
