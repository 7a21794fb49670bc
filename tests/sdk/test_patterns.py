"""Regular expressions that users type."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from ottla.errors import InputError
from ottla.patterns import MOST_CHARACTERS, Pattern

CATASTROPHIC = ["(a+)+b", "(a|aa)+$x", "(.*.*.*.*)*zzz", "^(([a-z])+.)+[A-Z]([a-z])+$", "(?:a?){60}a{60}b", "(a*)*b"]


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_a_pattern_that_backtracks_takes_a_megabyte_in_no_time(pattern: str) -> None:
    compiled = Pattern(pattern, name="--grep")
    before = time.thread_time()
    assert not compiled.is_in(b"a" * 1_000_000)
    assert time.thread_time() - before < 5


def test_other_threads_go_on_while_a_long_text_is_searched() -> None:
    slow = Pattern("(?:a|b)*a(?:a|b){900}c", name="--grep")
    ended: list[bool] = []
    searching = threading.Thread(target=lambda: ended.append(slow.is_in(b"ab" * 5_000_000)))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1_000)  # a thread gives the interpreter away of its own accord only
    try:
        searching.start()
        time.sleep(0)
        goes_on_beside_it = not ended
    finally:
        sys.setswitchinterval(interval)
    searching.join()
    assert goes_on_beside_it


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"(a)\1", r"\1"),
        ("(?=a)b", "(?="),
        ("(?!a)b", "(?!"),
        ("(?<=a)b", "(?<="),
        ("(?<!a)b", "(?<!"),
        ("(?>a)b", "(?>"),
        ("a*+b", "*+"),
        (r"a\Z", r"\Z"),
        ("(", "missing )"),
        ("[z-a]", "range"),
        ("a{5000}", "{5000}"),
        ("(?:[ab]{1000}){1000}", "repetition"),
        (".{900}", "states"),
        ("a" * (MOST_CHARACTERS + 1), "1,001 characters"),
        ("\ud800", "surrogate"),
    ],
)
def test_what_cannot_be_matched_in_linear_time_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        Pattern(pattern, name="--grep")
    assert reason in str(caught.value)
    assert str(caught.value).startswith("--grep: found ")


@pytest.mark.parametrize(
    ("pattern", "data", "is_there"),
    [
        ("(?i)été", "L'ÉTÉ", True),
        ("^.[éü]$", "aé", True),
        ("^.$", "é", True),
        (r"^\w+$", "é", False),
        (r"^\pL+$", "éЖ", True),
        (r"\d", "٣", False),
        ("a.c", "a\nc", False),
        ("(?s)a.c", "a\nc", True),
        ("^b", "a\nb", False),
        ("(?m)^b$", "a\nb\n", True),
        ("b$", "b\n", False),
        ("", "", True),
        (r"\x00", "a\0b", True),
    ],
)
def test_characters_and_cases_are_those_of_unicode_and_classes_those_of_ascii(
    pattern: str, data: str, is_there: bool
) -> None:
    compiled = Pattern(pattern, name="--grep")
    assert compiled.is_in(data.encode()) is compiled.is_in_text(data) is is_there


def test_text_within_bytes_that_are_not_utf8_is_found() -> None:
    assert Pattern("tot.l", name="--grep").is_in(b"\xff\x00\xfe total\xff")
    assert not Pattern("a.b", name="--grep").is_in(b"a\xffb")
    assert Pattern(r"a\Cb", name="--grep").is_in(b"a\xffb")
    argument = b"\xff".decode("utf-8", "surrogateescape")  # as a terminal gives it
    assert Pattern(argument, name="--grep").is_in(b"\x00\xff")


def test_the_whole_of_a_name_is_matched_from_its_beginning_to_its_end() -> None:
    assert Pattern("orders|orders-eu", name="subscribePattern").is_whole("orders-eu")
    assert not Pattern("orders", name="subscribePattern").is_whole("orders-eu")
    assert not Pattern("orders", name="subscribePattern").is_whole("orders\n")
