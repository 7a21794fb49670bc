"""`--where`: what expressions mean, and that no text does anything but parse or be refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.browse.decoding import SchemaSource, decoder_of
from ottla.browse.selecting import RecordScope
from ottla.browse.where import MOST_LEVELS, NAMES, parse_where
from ottla.browse.where_tokens import MOST_CHARACTERS, BadExpression
from ottla.errors import InputError
from ottla.wire_client.fetching.record_rows import RecordRows

VALUE = {"total": 129.5, "ok": True, "none": None, "items": [{"sku": "a"}, {"sku": "b"}], "a.b": {"c d": "x"}}
HEADERS = [("source", b"app"), ("source", b"web"), ("empty", None)]
AT_MS = 1_795_341_600_000  # 2026-11-22T10:00


def scope(value: Any = VALUE, key: bytes | None = b"4711", headers: Any = HEADERS) -> RecordScope:
    raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    found = RecordScope({})
    row = (88, AT_MS, key, raw, headers)
    found.begin(RecordRows("orders", 3, False, [row]))
    return found.at(row)


def holds(expression: str, **record: Any) -> bool:
    return parse_where(expression, now_ms=AT_MS + 3_600_000)(scope(**record))


@pytest.mark.parametrize(
    "expression",
    [
        "value.total > 100",
        "value.total == 129.5 and not value.total < 100",
        "100 <= value.total",
        "value.ok",
        "value.ok == true",
        "value.none == null and value.missing == null",
        "value.items[0].sku == 'a' and value.items[-1].sku == \"b\"",
        'value["a.b"]["c d"] == "x"',
        "value.items[9].sku == null",
        "'total' in value",
        '"129.5" in value and "nothing" not in value',
        'key == "4711"',
        "key == 4711",
        "key > 4000",
        'key in ["4710", "4711"]',
        'key not in ["a"]',
        'headers.source == "web"',
        '"source" in headers and headers.empty == null',
        "partition == 3 and offset >= 88 and topic == 'orders'",
        'timestamp >= "2026-11-22T10:00" and timestamp < "2026-11-22T10:00:00.001"',
        'timestamp > "-2h" and not timestamp > "-30m"',
        f"timestamp == {AT_MS}",
        "value.total > 1000 or value.total > 100 and key == '4711'",
        "not (value.total > 1000 or key == 'a')",
        "not not value.ok",
        "value.total in [1, 129.5]",
    ],
)
def test_an_expression_holds(expression: str) -> None:
    assert holds(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "value.total > '100'",
        "value.ok > 0",
        "value.ok == 1",
        "value.none > 1",
        "value.none",
        "value.missing.deeper > 1",
        "value.total[0] == 1",
        "key < 10",
        "headers.nobody",
        'value == "x"',
    ],
)
def test_what_is_of_another_type_or_missing_does_not_hold(expression: str) -> None:
    assert not holds(expression)


@pytest.mark.parametrize(
    ("expression", "number"),
    [
        ("value.n == 1e400 and value.n == '1e400' and not value.n > 5", "1e400"),
        ("value.n == '1e-400' and not value.n == 0", "1e-400"),
        ("value.n == 0 and value.n <= 0", "-0"),
        ("value.n == 0.1234567890123456789 and value.n > 0.1", "0.1234567890123456789"),
        (f"value.n == '{'1' * 3_900}1' or value.n > 5", "1" * 3_901),
        ("'999' in value.n", "9" * 5_000),
    ],
)
def test_numbers_that_python_does_not_have_hide_no_record(expression: str, number: str) -> None:
    raw = f'{{"n": {number}, "other": "x"}}'.encode()
    assert holds(f"value.other == 'x' and ({expression})", value=raw)
    decoded = RecordScope({"value": decoder_of("json", SchemaSource())})
    row = (88, AT_MS, None, raw, ())
    decoded.begin(RecordRows("orders", 3, False, [row]))
    assert parse_where(f"value.other == 'x' and ({expression})")(decoded.at(row))


def test_values_that_are_no_json_are_text_and_have_no_fields() -> None:
    assert holds('value == "plain text"', value=b"plain text")
    assert not holds("value.total > 1", value=b"\xff\x00")
    assert holds("value == null and value.total == null", value=None)
    assert holds("value.total == null", value=b"[" * 100_000)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("", "found its end"),
        ("value.total >", "found its end at character 14"),
        ("value.total > > 1", "wanted a value"),
        ("valeu.total > 1", "wanted one of key, value"),
        ("value. > 1", "wanted a name behind '.'"),
        ("value[1.5] == 1", "behind '['"),
        ("value[1 == 1", "wanted ']'"),
        ("(value.a == 1", "or ')'"),
        ("value.a == 1)", "or the end"),
        ("value.a = 1", "an operator"),
        ("1 < value.a < 3", "wanted and, or, or the end"),
        ("key in [value.a]", "constants in a list"),
        ("key in ['a' 'b']", "',' or ']'"),
        ("key not 3", "in, behind not"),
        ("key == 'a", "a text in quotes"),
        ("timestamp > 'yesterday'", "a time as 2026-11-22T10:00"),
        ("__import__('os')", "wanted one of"),
        ("value.a == 1 and", "found its end"),
        ("1abc == 1", "an operator"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(expression: str, problem: str) -> None:
    with pytest.raises(BadExpression) as error:
        parse_where(expression)
    assert problem in str(error.value)


def test_length_and_depth_are_bounded() -> None:
    with pytest.raises(InputError, match="at most 4,000"):
        parse_where("not " * MOST_CHARACTERS + "true")
    assert holds("(" * MOST_LEVELS + "true" + ")" * MOST_LEVELS)
    for opening in "([":
        with pytest.raises(BadExpression, match="levels"):
            parse_where(opening * 3_000)
    parse_where("not " * 900 + "true")


@given(st.text(max_size=60) | st.text("()[]\"'\\.,<>=! notandrkeyvlu0123.5-_", max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        where = parse_where(text)
    except InputError:
        return
    for value in (VALUE, None, b"\xff", b"7"):
        assert where(scope(value)) in (True, False)


# A tree of (expression, what it means), made from the inside out: the meaning is Python's own of the same tree.

_numbers = st.integers(-(10**6), 10**6)
_texts = st.text("abc \"'\\\n", max_size=5)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


_comparisons = st.one_of(
    st.builds(
        lambda sign, number: (
            f"value.total {sign} {number}",
            {"<": number > 129.5, ">": number < 129.5, "==": number == 129.5, "!=": number != 129.5}[sign],
        ),
        st.sampled_from(["<", ">", "==", "!="]),
        _numbers,
    ),
    st.builds(lambda text: (f"{_quoted(text)} in {_quoted('aabbcc' + text)}", True), _texts),
    st.builds(lambda a, b: (f"{_quoted(a)} == {_quoted(b)}", a == b), _texts, _texts),
    st.builds(lambda items: (f"88 in [{', '.join(map(str, items))}]", 88 in items), st.lists(_numbers | st.just(88))),
)
_trees = st.recursive(
    _comparisons,
    lambda inner: st.one_of(
        st.builds(lambda a, b: (f"({a[0]}) and ({b[0]})", a[1] and b[1]), inner, inner),
        st.builds(lambda a, b: (f"({a[0]}) or ({b[0]})", a[1] or b[1]), inner, inner),
        st.builds(lambda a: (f"not ({a[0]})", not a[1]), inner),
    ),
    max_leaves=8,
)


@given(_trees)
def test_an_expression_means_what_its_parts_mean(tree: tuple[str, bool]) -> None:
    expression, meant = tree
    assert holds(expression) is meant


@given(st.recursive(_numbers | _texts | st.none(), lambda t: st.lists(t, max_size=2) | st.dictionaries(_texts, t)))
def test_any_value_and_any_path_is_an_answer(value: Any) -> None:
    for name in NAMES:
        for path in (name, f"{name}.a", f"{name}[0].b", f'{name}["c"]'):
            for rest in ("== 1", '> "a"', "in [null]", ""):
                if rest != '> "a"' or path != "timestamp":  # which wants a time there
                    assert holds(f"{path} {rest}", value=value) in (True, False)
