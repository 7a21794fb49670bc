"""Records as JSON lines and back; formats; times; which offsets are meant. Pure."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.browse.decoding import Decoder, SchemaSource, decoder_of
from ottla.browse.encoding import encoders_of
from ottla.browse.record_input import Given
from ottla.browse.record_json import lines_of, parse_record
from ottla.browse.record_times import time_column, time_text
from ottla.browse.spans import SpanBoundary, parse_partitions, parse_place
from ottla.cli.records.display import Display
from ottla.cli.records.printing import PrintBudget, printer_of
from ottla.cli.records.template import RecordTemplate
from ottla.errors import InputError
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST
from ottla.wire_client.fetching.record_rows import RecordRows

_parts = st.none() | st.binary(max_size=30) | st.text(max_size=10).map(lambda text: text.encode("utf-8", "replace"))
_names = st.binary(max_size=10).map(lambda name: name.decode("utf-8", "surrogateescape"))
_rows = st.tuples(
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
    _parts,
    _parts,
    st.lists(st.tuples(_names, _parts), max_size=3),
)


def block(*rows: Any) -> RecordRows:
    return RecordRows("orders", 7, False, list(rows))


@given(_rows, st.booleans())
def test_a_record_comes_back_byte_for_byte(row: Any, is_safe: bool) -> None:
    line = lines_of(block(row), is_safe=is_safe)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    again = parse_record(line)
    assert (again.key, again.value, again.headers) == (row[2], row[3], tuple(row[4]))
    assert (again.partition, again.timestamp_ms) == (7, row[1])
    assert again.key_as is again.value_as is None


def test_on_a_terminal_nothing_that_it_obeys_is_printed() -> None:
    row = (0, 0, "\u202e".encode(), b"\x1b]0;x\x07\x9b", [("\x9b", b"\x7f")])
    for form in ("table", "plain", "json", "%k %v %h\n"):
        raw = Decoder(None)
        shown = printer_of(form, key=raw, value=raw, is_terminal=True)(block(row))
        assert not set(shown.decode()) & set("\x1b\x07\x9b\u202e\x7f"), form


@given(st.binary(max_size=40))
def test_any_line_is_a_record_or_refused(line: bytes) -> None:
    try:
        parse_record(line)
    except InputError:
        pass


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
)
_fields = ["key", "value", "key_base64", "value_base64", "value_as", "headers", "partition", "timestamp", "schema"]


@given(st.dictionaries(st.sampled_from(_fields), _json))
def test_any_object_is_a_record_or_refused(given_record: Any) -> None:
    try:
        parse_record(json.dumps(given_record).encode())
    except InputError:
        pass


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"\xff", "UTF-8|JSON"),
        (b'{"value": "a"', "wanted a record as JSON"),
        (b"[" * 100_000, "wanted a record as JSON"),
        (b"[]", "found a list, wanted an object"),
        (b'{"valeu": 1}', "found the field 'valeu'"),
        (b'{"value": "a", "value_base64": "YQ=="}', "both value and value_base64"),
        (b'{"value_base64": "%%"}', "wanted base64"),
        (b'{"value_base64": 3}', "wanted base64"),
        (b'{"value_base64": null}', "found null, wanted base64"),
        (b'{"headers": 3}', "headers: found a number"),
        (b'{"headers": [3]}', r"headers\[0\]: found a number"),
        (b'{"headers": [{"value": "a"}]}', r"headers\[0\]: wanted key as text"),
        (b'{"headers": [{"key": "a", "value": 3}]}', r"headers\[0\]: wanted key as text"),
        (b'{"partition": -1}', "partition: found '-1'"),
        (b'{"partition": true}', "partition: found 'True'"),
        (b'{"timestamp": "now"}', "timestamp: found 'now'"),
        (b'{"schema": "ottla.topics.list/1"}', "wanted ottla.record/1"),
        (b'{"value_as": 3}', "value_as: found a number"),
        (b'{"value_bytes": 3}', "--headers-only"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(line: bytes, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        parse_record(line)


def test_null_is_a_tombstone_and_the_text_null_is_not() -> None:
    assert parse_record(b'{"value": null}').value is None
    assert parse_record(b'{"value": "null"}').value == b"null"
    assert parse_record(b'{"value": ""}').value == b""


def test_decoded_parts_are_json_and_say_what_they_were() -> None:
    decode = decoder_of("json", SchemaSource())
    row = (0, 0, b"k", b'{"id": 7}', [])
    found = json.loads(lines_of(block(row), value=decode))
    assert (found["value"], found["value_as"], found["schema"]) == ({"id": 7}, "json", "ottla.record/1")
    bad = json.loads(lines_of(block((0, 0, b"k", b"{\xff", [])), value=decode))
    assert base64.b64decode(bad["value_base64"]) == b"{\xff"
    assert "value_error" in bad
    assert decode.failures == 1
    parse_record(json.dumps(bad).encode())


NUMBERS = [
    *(
        b"0.1234567890123456789",
        b"1e-400",
        b"1e400",
        b"-0",
        b"-0.0",
        b"0e5",
        b"1E+2",
        b"1e16",
        b"1000000000000000000000.0",
    ),
    *(b"12345678901234567890123", b"1" * 5_000, b"0.1", b"1.50"),
]


@pytest.mark.parametrize("number", [*NUMBERS, *(b'{"a":[' + number + b',"-0"]}' for number in NUMBERS)])
def test_numbers_are_printed_and_written_again_as_they_are_written(number: bytes) -> None:
    decode = decoder_of("json", SchemaSource())
    spaced = b" " + number.replace(b",", b" ,\n")
    line = lines_of(block((0, 0, b"k", spaced, [])), value=decode.written)
    assert b'"value":' + number + b"," in line
    encoders = encoders_of("auto", SchemaSource(), subject="", option="--as")
    given_record = Given(keys=encoders, values=encoders, is_json=True).record(1, line)
    assert given_record is not None
    assert given_record.value == number
    display = Display(decode=decode.plain, is_safe=True)
    assert display.column([spaced]) == [number]
    assert encoders_of("json", SchemaSource(), subject="", option="--as").declared(number) == number
    assert decode.failures == 0


@pytest.mark.parametrize("data", [b"\xff", b'"\xff"', b"NaN", b"01", b"[" * 5_000, b'"a\nb"', b'"\\ud800"', b"[1,]"])
def test_what_is_no_json_is_not_printed_as_json(data: bytes) -> None:
    decode = decoder_of("json", SchemaSource())
    found = json.loads(lines_of(block((0, 0, b"k", data, [])), value=decode.written))
    assert "value_error" in found
    assert "value_as" not in found
    assert decode.failures == 1


def test_a_text_in_json_is_printed_without_its_quotes_and_else_as_it_is() -> None:
    decode = decoder_of("json", SchemaSource())
    display = Display(decode=decode.plain, is_safe=False)
    assert display.column([b'"a\\u0062"', b'{"a" : "\\u0062"}']) == [b"ab", b'{"a":"\\u0062"}']


ROW = (12, 1_795_341_600_123, b"key", b"100%", [("a", b"1"), ("b", None)])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (r"%t-%p@%o %k %v\n", b"orders-7@12 key 100%\n"),
        (r"%s|%S|%K|%T|%h|%%|\x41\t%D", b"100%|4|3|1795341600123|a=1,b=|%|A\t2026-11-22T10:00:00.123Z"),
        (r"%R%s", b"\x00\x00\x00\x04100%"),
        (r"\x25o literal \\", b"%o literal \\"),
        ("", b""),
        ("é", "é".encode()),
    ],
)
def test_a_format_of_kcats(text: str, line: bytes) -> None:
    raw = Display(is_safe=False)
    assert RecordTemplate(text, key=raw, value=raw).lines(block(ROW, ROW)) == line * 2


@pytest.mark.parametrize("text", ["%x", "%", r"\q", r"\x4", "%v\\"])
def test_a_format_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--format: found"):
        RecordTemplate(text, key=Display(is_safe=False), value=Display(is_safe=False))


@given(st.text("%svktpoTDhSKR\\nx41 é\"'{}", max_size=12), st.lists(_rows, max_size=3))
def test_any_format_is_filled_or_refused(text: str, rows: list[Any]) -> None:
    raw = Display(is_safe=False)
    try:
        template = RecordTemplate(text, key=raw, value=raw)
    except InputError:
        return
    template.lines(block(*rows))


@given(st.lists(_parts))
def test_what_is_safe_is_one_column_of_one_line(parts: list[bytes | None]) -> None:
    shown = Display(is_safe=True, null=b"null").column(parts)
    assert len(shown) == len(parts)
    for each in shown:
        assert not set(each.decode()) & set("\x00\t\n\r\x1b\x7f\x9b")


def test_null_and_empty_can_be_told_apart() -> None:
    assert Display(is_safe=False, null=b"NULL").column([None, b""]) == [b"NULL", b""]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", SpanBoundary(timestamp=EARLIEST)),
        ("latest", SpanBoundary(timestamp=LATEST)),
        ("now", SpanBoundary(timestamp=LATEST)),
        ("-10", SpanBoundary(last=10)),
        ("-2h", SpanBoundary(timestamp=AT - 7_200_000) if (AT := 1_795_341_600_000) else None),
        ("2026-11-22T10:00", SpanBoundary(timestamp=AT)),
        ("2026-11-22T12:00+02:00", SpanBoundary(timestamp=AT)),
        ("3:88121", SpanBoundary(offsets={3: 88_121})),
        ("0:1,2:3", SpanBoundary(offsets={0: 1, 2: 3})),
    ],
)
def test_where_reading_begins(text: str, place: SpanBoundary) -> None:
    assert parse_place(text, option="--from", now_ms=AT) == place


@pytest.mark.parametrize(
    "text", ["", "yesterday", "3:", "0:1,0:2", "0:99999999999999999999", "-2y", "9999999-01-01", "- 1"]
)
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--from: found"):
        parse_place(text, option="--from", now_ms=0)


@given(st.text(max_size=20))
def test_any_place_is_read_or_refused(text: str) -> None:
    for parse in (lambda: parse_place(text, option="--from", now_ms=0), lambda: parse_partitions(text)):
        try:
            parse()
        except InputError:
            pass


def test_partitions_are_numbers_and_ranges() -> None:
    assert parse_partitions("0,2,5-7") == {0, 2, 5, 6, 7}
    with pytest.raises(InputError, match="at most"):
        parse_partitions("0-999999999")


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_timestamp_is_text(ms: int) -> None:
    text = time_text(ms)
    assert text == "" if ms == -1 else text.endswith("Z") or text == str(ms)


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2_000, 2_000)))
def test_the_times_of_a_block_are_those_of_its_records(times: list[int]) -> None:
    assert time_column([(0, ms, None, None, ()) for ms in times]) == [time_text(ms).encode() for ms in times]


@given(st.lists(_rows, max_size=3), st.sampled_from(["%s\\n", "%k||%%", "%v", "%s"]))
def test_a_format_of_one_field_is_filled_as_others_are(rows: list[Any], text: str) -> None:
    raw = Display(is_safe=False)
    alone = RecordTemplate(text, key=raw, value=raw).lines(block(*rows))
    behind_a_space = RecordTemplate("\\x20" + text, key=raw, value=raw)
    assert alone == b"".join(behind_a_space.lines(block(row))[1:] for row in rows)


def test_a_follower_sees_so_many_a_second() -> None:
    budget = PrintBudget(10)
    assert [budget.takes(7, 1.0), budget.takes(7, 1.5), budget.takes(7, 2.0)] == [7, 3, 7]
    assert budget.left_out == 4
