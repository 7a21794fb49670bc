"""Retry policies made of tenacity's strategies: the same waits and the same end as tenacity's own loop has."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import tenacity
from hypothesis import given
from hypothesis import strategies as st
from tenacity import (
    RetryCallState,
    Retrying,
    TryAgain,
    retry_if_exception,
    retry_if_exception_message,
    retry_if_exception_type,
    retry_if_not_exception_type,
    stop_after_attempt,
    stop_after_delay,
    stop_before_delay,
    stop_never,
    wait_chain,
    wait_exponential,
    wait_exponential_jitter,
    wait_fixed,
    wait_incrementing,
    wait_random,
    wait_random_exponential,
)

from ottla.errors import ConfigError, RegistryUnavailable
from ottla.failures import Dead, ExceptionTable, Failure, FailurePolicy, Retry, RetryPolicy, RetryTopics
from ottla.failures.failure import DeadLetter, Decision, Postpone, RetryAt, Stop

ERRORS = (TimeoutError("late"), ConnectionError("gone"), KeyError("k"), ValueError("bad"))
LONGEST = 12
"""A loop that has not ended after so many attempts is not followed any further."""


class ByError(tenacity.wait.wait_base):
    """Waits as long as the exception says."""

    def __call__(self, retry_state: RetryCallState) -> float:
        assert retry_state.outcome is not None
        return len(str(retry_state.outcome.exception())) / 2


spans = st.integers(0, 40).map(lambda quarters: quarters / 4)
waits = st.recursive(
    st.one_of(
        spans.map(wait_fixed),
        st.builds(wait_incrementing, spans, spans, spans),
        st.builds(lambda m, top: wait_exponential(multiplier=m, max=top), spans, spans),
        st.builds(lambda m, top: wait_random_exponential(multiplier=m, max=top), spans, spans),
        st.builds(lambda m, top, j: wait_exponential_jitter(max=top, jitter=j, exp_base=m), spans, spans, spans),
        st.builds(lambda least, more: wait_random(least, least + more), spans, spans),
        st.just(ByError()),
    ),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.lists(inner, min_size=1, max_size=3).map(lambda s: wait_chain(*s)),
    ),
    max_leaves=4,
)
stops = st.recursive(
    st.one_of(
        st.integers(1, 8).map(stop_after_attempt),
        spans.map(stop_after_delay),
        spans.map(stop_before_delay),
        st.just(stop_never),
    ),
    lambda inner: st.one_of(st.builds(lambda a, b: a | b, inner, inner), st.builds(lambda a, b: a & b, inner, inner)),
    max_leaves=3,
)
retries = st.recursive(
    st.one_of(
        st.lists(st.sampled_from([type(each) for each in ERRORS]), min_size=1).map(
            lambda kinds: retry_if_exception_type(tuple(kinds))
        ),
        st.sampled_from([type(each) for each in ERRORS]).map(retry_if_not_exception_type),
        st.sampled_from(["late", "gone"]).map(lambda text: retry_if_exception_message(match=text)),
        st.just(retry_if_exception(lambda error: len(str(error)))),  # type: ignore[arg-type, return-value]
    ),
    lambda inner: st.one_of(st.builds(lambda a, b: a | b, inner, inner), st.builds(lambda a, b: a & b, inner, inner)),
    max_leaves=3,
)


def ask_policy(policy: RetryPolicy, errors: list[BaseException]) -> tuple[list[int], str]:
    """The waits of a record that fails with `errors`, and how it ends."""
    table, now_ms, delays = ExceptionTable(keeps_errors=True), 0, list[int]()
    for attempts, error in enumerate(errors, 1):
        decision = FailurePolicy(retry=policy, dead_letter_topic="dead").decide(
            table.failure_of(error), attempts=attempts, outages=0, now_ms=now_ms, random=Random(1), elapsed_ms=now_ms
        )
        if not isinstance(decision, RetryAt):
            assert decision == DeadLetter("dead")
            return delays, "over"
        delays.append(decision.due_ms - now_ms)
        now_ms = decision.due_ms
    return delays, "goes on"


class Enough(Exception):
    """There are no more failures."""


def ask_tenacity(loop: dict[str, Any], errors: list[BaseException]) -> tuple[list[int], str]:
    """The same of tenacity's own loop, whose sleep moves the clock."""
    delays, left = list[int](), list(errors)

    def sleep(seconds: float) -> None:
        delays.append(round(seconds * 1_000))
        if not left:
            raise Enough

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tenacity, "time", SimpleNamespace(monotonic=lambda: sum(delays) / 1_000))
        try:
            for attempt in Retrying(sleep=sleep, **loop):
                with attempt:
                    raise left.pop(0)
        except Enough:
            return delays, "goes on"
        except Exception:
            return delays, "over"
    raise AssertionError("it cannot succeed")


@given(
    wait=waits,
    stop=stops,
    retry=retries,
    errors=st.lists(st.sampled_from([*ERRORS, TryAgain()]), min_size=1, max_size=LONGEST),
    seed=st.integers(0, 2**32),
)
def test_a_policy_waits_and_ends_as_tenacitys_own_loop(
    wait: Any, stop: Any, retry: Any, errors: list[BaseException], seed: int
) -> None:
    loop = {"wait": wait, "stop": stop, "retry": retry}

    random.seed(seed)
    of_policy = ask_policy(RetryPolicy(**loop), errors)
    random.seed(seed)

    assert of_policy == ask_tenacity(loop, errors)


def decide(policy: RetryPolicy, failure: Failure, *, attempts: int = 1, **more: Any) -> Decision:
    return FailurePolicy(retry=policy, dead_letter_topic="dead", **more).decide(
        failure, attempts=attempts, outages=0, now_ms=0, random=Random(1)
    )


def failed(error: BaseException, table: ExceptionTable | None = None) -> Failure:
    return (table or ExceptionTable(keeps_errors=True)).failure_of(error)


def test_what_is_left_out_is_as_without_strategies() -> None:
    policy = RetryPolicy(retry=retry_if_exception_type(TimeoutError))
    plain = RetryPolicy()

    for attempts in range(1, 7):
        expected = decide(plain, failed(TimeoutError()), attempts=attempts)
        assert decide(policy, failed(TimeoutError()), attempts=attempts) == expected
    assert decide(policy, failed(KeyError())) == DeadLetter("dead")


def test_a_handler_that_asks_for_a_retry_is_not_asked_which_exception_it_was() -> None:
    policy = RetryPolicy(wait=wait_fixed(3), stop=stop_after_attempt(2), retry=retry_if_exception_type(TimeoutError))

    assert decide(policy, Failure.of_outcome(Retry())) == RetryAt(3_000)
    assert decide(policy, Failure.of_outcome(Retry(after_s=7))) == RetryAt(7_000)
    assert decide(policy, Failure.of_outcome(Retry(after_s=7)), attempts=2) == DeadLetter("dead")


def test_what_on_error_names_is_not_asked_of_retry() -> None:
    policy = RetryPolicy(wait=wait_fixed(3), retry=retry_if_exception_type(TimeoutError))
    table = ExceptionTable({KeyError: Retry(), ValueError: Dead("no")}, keeps_errors=True)

    assert decide(policy, failed(KeyError(), table)) == RetryAt(3_000)
    assert decide(policy, failed(ValueError(), table)) == DeadLetter("dead")
    assert decide(policy, failed(IndexError(), table)) == DeadLetter("dead")


def test_an_outage_is_no_business_of_a_strategy() -> None:
    policy = RetryPolicy(stop=stop_after_attempt(1), retry=retry_if_exception_type(TimeoutError))

    assert isinstance(decide(policy, failed(RegistryUnavailable("503"))), RetryAt)


def test_in_retry_topics_strategies_decide_in_place_and_what_they_refuse_skips_the_topics() -> None:
    policy = RetryPolicy(wait=wait_fixed(3), stop=stop_after_attempt(2), retry=retry_if_exception_type(TimeoutError))
    topics = RetryTopics(delays_s=(10, 60))

    assert decide(policy, failed(TimeoutError()), retry_topics=topics) == RetryAt(3_000)
    assert decide(policy, failed(TimeoutError()), attempts=2, retry_topics=topics) == Postpone(1, 10_000)
    assert decide(policy, failed(KeyError()), retry_topics=topics) == DeadLetter("dead")


def broken(state: RetryCallState) -> Any:
    raise LookupError("a mistake in the strategy")


async def asynchronous(state: RetryCallState) -> bool:
    return True


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"wait": broken}, "wait=broken raised LookupError: a mistake in the strategy"),
        ({"stop": broken}, "stop=broken raised LookupError"),
        ({"retry": broken}, "retry=broken raised LookupError"),
        ({"retry": retry_if_exception(broken)}, "retry=retry_if_exception raised LookupError"),
        ({"wait": lambda state: -1}, "found -1 returned, wanted seconds, 0 or more"),
        ({"wait": lambda state: math.nan}, "found nan returned"),
        ({"wait": lambda state: None}, "found None returned"),
        ({"wait": lambda state: "soon"}, "ValueError"),
        ({"wait": wait_chain(wait_fixed(1), broken)}, "wait=wait_chain raised"),  # type: ignore[arg-type]
    ],
)
def test_a_strategy_that_raises_stops_the_record_and_says_which(options: dict[str, Any], said: str) -> None:
    decision = decide(RetryPolicy(**options), failed(KeyError("k")), attempts=2)

    assert isinstance(decision, Stop)
    assert said in decision.reason
    assert "asked about KeyError: 'k'" in decision.reason


def test_a_wait_without_end_is_as_long_as_a_timer_takes() -> None:
    assert decide(RetryPolicy(wait=lambda state: math.inf), failed(KeyError())) == RetryAt(1_000_000_000_000)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"wait": 3}, "wait must be a strategy of tenacity, such as wait_random_exponential"),
        ({"stop": stop_after_attempt}, "stop must be a strategy of tenacity, .* got the class stop_after_attempt"),
        ({"retry": TimeoutError}, "retry must be a strategy of tenacity, such as retry_if_exception_type"),
        ({"retry": asynchronous}, "asynchronous"),
        ({"retry": tenacity.asyncio.retry_if_exception(asynchronous)}, "asynchronous"),  # type: ignore[arg-type]
        ({"max_attempts": 3, "wait": wait_fixed(1)}, r"write stop=stop_after_attempt\(3\)"),
        ({"max_attempts": None, "stop": stop_never}, "max_attempts and stop= are two ways"),
        ({"initial_s": 1, "stop": stop_never}, "initial_s and stop= are two ways to say one thing"),
        ({"jitter": 0, "max_s": 5, "wait": wait_fixed(1)}, "leave max_s, jitter out"),
    ],
)
def test_what_cannot_be_asked_or_is_mixed_is_refused_by_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        RetryPolicy(**options)


@pytest.mark.parametrize("stop", [stop_after_delay(5), stop_after_attempt(5) | stop_after_delay(5), stop_never])
def test_retry_topics_need_a_number_of_deliveries(stop: Callable[[RetryCallState], bool]) -> None:
    from ottla import App

    app = App("group")
    with pytest.raises(ConfigError, match="on_order: retry_topics= counts the deliveries"):
        app.handler("orders", name="on_order", retry=RetryPolicy(stop=stop), retry_topics=RetryTopics())(print)
    app.handler("orders", retry=RetryPolicy(stop=stop_after_attempt(2)), retry_topics=RetryTopics())(lambda value: None)


def test_a_failure_has_its_exception_only_where_a_strategy_asks() -> None:
    error = KeyError("k")

    assert ExceptionTable().failure_of(error).error is None
    kept = ExceptionTable(keeps_errors=True).failure_of(error)
    assert kept.error is error
    assert kept.without_error().error is None
    assert kept == kept.without_error()
