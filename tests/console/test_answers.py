"""Old answers with their age, where new ones do not come at once. No cluster, no clock that runs."""

from __future__ import annotations

import threading

import pytest

from ottla.console.answers import Answers
from ottla.errors import BrokerUnavailable
from ottla.testing import wait_until


class Asked:
    """A question whose answer is given by hand."""

    def __init__(self) -> None:
        self.given = threading.Event()
        self.count = 0

    def __call__(self) -> dict[str, int]:
        self.count += 1
        number = self.count
        assert self.given.wait(60)
        return {"number": number}


def test_a_quick_answer_is_always_new() -> None:
    answers = Answers(lambda: 5, patience_s=60)
    asked = Asked()
    asked.given.set()
    assert [answers.of("groups", asked)["number"] for _ in range(3)] == [1, 2, 3]
    assert answers.of("groups", asked)["asked"] == {"age_ms": 0, "problem": None}


def test_a_slow_answer_leaves_the_last_one_with_its_age_and_is_the_next() -> None:
    now_ms = [1_000]
    answers = Answers(lambda: now_ms[0], patience_s=0.01)
    asked = Asked()
    asked.given.set()
    assert answers.of("groups", asked)["number"] == 1

    asked.given.clear()
    now_ms[0] += 7_000
    for _ in range(3):
        old = answers.of("groups", asked)
        assert (old["number"], old["asked"]) == (1, {"age_ms": 7_000, "problem": None})
    assert asked.count == 2, "one asking at a time"
    asked.given.set()
    wait_until(lambda: answers.of("groups", asked)["number"] >= 2, 60)


def test_a_question_that_fails_leaves_the_last_answer_with_the_reason() -> None:
    now_ms = [1_000]
    answers = Answers(lambda: now_ms[0], patience_s=60)

    def fail() -> dict[str, int]:
        raise BrokerUnavailable("nobody answers")

    with pytest.raises(BrokerUnavailable, match="nobody answers"):
        answers.of("groups", fail)
    assert answers.of("groups", lambda: {"number": 1})["number"] == 1
    now_ms[0] += 3_000
    old = answers.of("groups", fail)
    assert (old["number"], old["asked"]) == (1, {"age_ms": 3_000, "problem": "nobody answers"})


def test_a_mistake_is_raised_where_it_can_be_logged() -> None:
    answers = Answers(lambda: 0, patience_s=60)
    answers.of("groups", lambda: {"number": 1})

    def mistake() -> dict[str, int]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        answers.of("groups", mistake)


def test_questions_are_told_apart_and_only_so_many_are_kept() -> None:
    answers = Answers(lambda: 0, patience_s=60)
    found = [answers.of(number, lambda number=number: {"number": number})["number"] for number in range(100)]
    assert found == list(range(100))
    assert len(answers._kept) <= 32


def test_what_is_forgotten_is_asked_anew_and_an_asking_of_before_does_not_count() -> None:
    answers = Answers(lambda: 0, patience_s=0.01)
    slow = Asked()
    answers.of("doctor", lambda: {"number": 7})
    assert answers.of("doctor", slow)["number"] == 7
    answers.forget("doctor")
    assert answers.of("doctor", lambda: {"number": 8})["number"] == 8
    slow.given.set()
    wait_until(lambda: not [each for each in threading.enumerate() if each.name == "ottla-console-asking"], 60)
    late = Asked()
    assert answers.of("doctor", late)["number"] == 8
    late.given.set()
