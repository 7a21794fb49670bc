"""Patterns mean what they mean to Python's `re`, and no pattern can stop the broker."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.common.errors import BrokerError
from broker_embedded.coordinator.group.consumer.topic_pattern import SubscriptionPattern
from ottla_wire.protocol import ErrorCode

NAMES = st.text("ab.-_Z1", min_size=1, max_size=8)

atoms = st.sampled_from(
    ["a", "b", r"\.", "-", "_", "Z", "1", ".", "[ab]", "[^a]", "[a-z]", r"\d", r"\w", r"\W", "[^-_.]"]
)
patterns = st.recursive(
    atoms | st.sampled_from(["^", "$", r"\b", r"\B", ""]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{0}", "{2}", "{1,3}", "{2,}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda each: f"({each})"),
        inner.map(lambda each: f"(?i:{each})"),
    ),
    max_leaves=6,
)


@given(pattern=patterns, name=NAMES)
def test_a_pattern_takes_the_names_that_pythons_re_takes(pattern: str, name: str) -> None:
    assert SubscriptionPattern(pattern).matches(name) == (re.fullmatch(pattern, name) is not None)


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "a*a*a*a*a*a*a*b", "(.*)*(.*)*(.*)*b", "(a?){100}a{100}b"]
)
def test_a_pattern_that_backtracking_never_finishes_is_answered_at_once(pattern: str) -> None:
    compiled = SubscriptionPattern(pattern)
    begun = time.process_time()
    assert not compiled.matches("a" * 249)
    assert compiled.matches("a" * 150 + "b")
    assert time.process_time() - begun < 2, "about 0.01 s was measured"


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(", "not a regular expression"),
        (r"(a)\1", "groupref"),
        ("(?=a)b", "assert"),
        ("(?<!a)b", "assert not"),
        ("(?>a)b", "atomic group"),
        ("a++", "possessive repeat"),
        ("(?:a{100}){100}", "too large"),
        ("a{2000}", "too large"),
        ("(" * 5000 + ")" * 5000, "not a regular expression|nested"),
    ],
)
def test_what_cannot_be_run_safely_is_refused(pattern: str, says: str) -> None:
    with pytest.raises(BrokerError, match=says) as refused:
        SubscriptionPattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
