"""Records as files: what a program reads back, and what a spreadsheet does not run."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from console_kit import HOSTILE, Running, Write, running_console
from hypothesis import given
from hypothesis import strategies as st

from ottla.admin import Admin, TopicSpec
from ottla.browse.record_export import COLUMNS, csv_text, guarded
from ottla.config import Settings
from ottla.console.masks import Masks
from ottla.console.state import ConsoleOptions


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1+1",
        "-1+1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "  =1",
        "=cmd|' /C calc'!A0",
        "-2+3+cmd|x",
        "\uff1d1",
        "|x",
    ],
)
def test_a_cell_that_a_spreadsheet_would_run_is_text(text: str) -> None:
    assert guarded(text) == f"'{text}"


@pytest.mark.parametrize("text", ["-5", "+5", "-1.5e-3", "a=1", "1-1", "", "4711", "user@example.org", '{"a": -1}'])
def test_numbers_and_plain_texts_stay_as_they_are(text: str) -> None:
    assert guarded(text) == text


@given(st.text())
def test_no_cell_begins_as_a_formula(text: str) -> None:
    item = {"partition": 0, "offset": 1, "time": "", "key": text, "value": text, "headers": []}
    # A reader that splits lines as RFC 4180 says finds the same cells.
    _, row = csv.reader(io.StringIO(csv_text([item]), newline=""))
    assert row[3] == row[4] == guarded(text)
    assert not row[3].startswith(("=", "@", "\t", "\r"))


@pytest.fixture(scope="module")
def saved(admin: Admin, write: Write) -> str:
    admin.create_topics({"saved": TopicSpec(partitions=1)})
    long = b"x" * 10_000
    write("saved", [(b"=1+1", b'{"total": 1.50, "card": "4711"}', (("a", b"@x"),)), (None, HOSTILE.encode(), ())])
    write("saved", [(b"k", long, ()), (b"\xff", b"\x00\xfe", ()), (b"gone", None, ())])
    return "saved"


def test_a_search_is_saved_whole_as_lines_and_as_a_table(console: Running, saved: str) -> None:
    found = console.get("records/export", topic=saved, **{"from": "earliest"})
    lines = [json.loads(line) for line in found["content"].splitlines()]
    assert (found["name"], found["count"], found["ended_by"]) == ("saved.jsonl", 5, "end")
    assert [line["offset"] for line in lines] == [0, 1, 2, 3, 4]
    assert lines[2]["value"] == "x" * 10_000, "the page shows the beginning, the file has all"
    assert lines[4]["value"] is None
    assert "value_bytes" not in lines[0]

    table = console.get("records/export", topic=saved, format="csv", **{"from": "earliest"})
    header, *rows = csv.reader(io.StringIO(table["content"], newline=""))
    assert (table["name"], tuple(header), len(rows)) == ("saved.csv", COLUMNS, 5)
    assert rows[0][3] == "'=1+1"
    assert json.loads(rows[0][4]) == {"total": 1.5, "card": "4711"}
    assert rows[1][4] == HOSTILE
    assert rows[3][4] != "", "bytes that are no text are Base64"
    assert rows[4][4] == ""


def test_what_is_searched_is_what_is_saved(console: Running, saved: str) -> None:
    found = console.get("records/export", topic=saved, format="csv", where="value.total > 1", **{"from": "earliest"})
    assert found["count"] == 1
    limited = console.get("records/export", topic=saved, limit=2, **{"from": "earliest"})
    assert (limited["count"], limited["ended_by"]) == (2, "limit")


def test_bounds_and_unknown_formats_are_refused(console: Running, saved: str) -> None:
    assert "10,000" in console.refused("records/export", topic=saved, limit=10_001)[1]
    assert "wanted one of json, csv" in console.refused("records/export", topic=saved, format="xlsx")[1]


def test_masks_hold_in_files(kafka: Settings, saved: str, tmp_path: Path) -> None:
    for masks in (Masks(("value.card",)), Masks((), hides_values=True)):
        with running_console(kafka, ConsoleOptions(folder=tmp_path, masks=masks)) as console:
            for form in ("json", "csv"):
                found = console.get("records/export", topic=saved, format=form, **{"from": "earliest"})
                assert found["count"] == 5
                assert "4711" not in found["content"]
