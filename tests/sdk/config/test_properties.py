"""Files of properties are read as Java reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config.properties import parse_properties
from ottla.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1\nb = 2\n\tc:3\nd 4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("a=1=2:3", {"a": "1=2:3"}),
        ("a==1", {"a": "=1"}),
        ("a=1 # no comment", {"a": "1 # no comment"}),
        (" # one\n ! two\na=", {"a": ""}),
        ("a=1\\\n  2\\\n#3", {"a": "12#3"}),
        ("# a comment goes not on \\\na=1", {"a": "1"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        (r"a\ b\=c=\u0041\t\x", {"a b=c": "A\tx"}),
        (r"a=\ud83d\ude00", {"a": "\N{GRINNING FACE}"}),
        ("a=1\ra=2\r\nb=3", {"a": "2", "b": "3"}),
        ("", {}),
    ],
)
def test_names_and_values_are_those_that_java_finds(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text.encode(), source="here") == found


@pytest.mark.parametrize(
    ("text", "problem"), [("a=1\n\n=2", "here: line 3: found no name"), ("hunter2", "here: line 1: found no value")]
)
def test_a_line_that_is_no_setting_is_named_without_its_text(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as error:
        parse_properties(text.encode(), source="here")
    assert "hunter2" not in str(error.value)


@given(st.binary(max_size=300))
def test_any_bytes_are_properties_or_a_config_error(data: bytes) -> None:
    try:
        found = parse_properties(data, source="here")
    except ConfigError:
        return
    for text in (*found, *found.values()):
        text.encode()
