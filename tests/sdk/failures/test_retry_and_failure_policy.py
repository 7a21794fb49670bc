"""When a failed record is delivered again, and what follows when it is not."""

from __future__ import annotations

import gc
import weakref
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla import App
from ottla.errors import ConfigError, RegistryUnavailable
from ottla.failures import (
    NO_RETRY,
    Ack,
    Dead,
    ExceptionTable,
    Failure,
    FailurePolicy,
    InvalidRecord,
    Retry,
    RetryTopics,
    Skip,
)
from ottla.failures import RetryPolicy as Policy
from ottla.failures.exceptions import STACK_TRACE_LIMIT_BYTES, cap_text, stack_trace_of
from ottla.failures.failure import DeadLetter, Finish, Postpone, RetryAt, Stop
from ottla.records import Malformed

NOW = 1_000_000


def decide(failure: Failure, *, attempts: int = 1, outages: int = 0, **policy: object):  # type: ignore[no-untyped-def]
    return FailurePolicy(**policy).decide(  # type: ignore[arg-type]
        failure, attempts=attempts, outages=outages, now_ms=NOW, random=Random(1)
    )


@given(
    attempts=st.integers(1, 10_000),
    initial_s=st.floats(0, 10),
    multiplier=st.floats(1, 10),
    jitter=st.floats(0, 1),
    seed=st.integers(),
)
def test_a_delay_lies_between_the_unjittered_part_and_the_backoff(
    attempts: int, initial_s: float, multiplier: float, jitter: float, seed: int
) -> None:
    policy = Policy(initial_s=initial_s, max_s=60, multiplier=multiplier, jitter=jitter)

    backoff_ms = min(60.0, initial_s * multiplier ** min(attempts - 1, 64)) * 1_000
    delay_ms = policy.delay_ms(attempts, Random(seed))

    assert backoff_ms * (1 - jitter) - 1 <= delay_ms <= backoff_ms + 1


def test_the_backoff_doubles_until_its_bound() -> None:
    policy = Policy(initial_s=1, max_s=5, multiplier=2, jitter=0)

    assert [policy.delay_ms(n, Random()) for n in range(1, 6)] == [1_000, 2_000, 4_000, 5_000, 5_000]


@pytest.mark.parametrize(
    ("given_values", "named"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"initial_s": -1}, "initial_s"),
        ({"initial_s": 5, "max_s": 1}, "max_s"),
        ({"multiplier": 0.5}, "multiplier"),
        ({"jitter": 1.5}, "jitter"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_name(given_values: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Policy(**given_values)  # type: ignore[arg-type]


def test_an_undeclared_exception_is_retried_and_then_dead_lettered() -> None:
    failure = ExceptionTable().failure_of(KeyError("missing"))

    assert isinstance(decide(failure, attempts=4, retry=Policy(max_attempts=5), dead_letter_topic="dead"), RetryAt)
    assert decide(failure, attempts=5, retry=Policy(max_attempts=5), dead_letter_topic="dead") == DeadLetter("dead")


def test_an_exception_whose_text_cannot_be_had_is_evidence_all_the_same() -> None:
    class Shy(Exception):
        def __str__(self) -> str:
            raise LookupError("no text")

    failure = ExceptionTable().failure_of(Shy())

    assert failure.error_type.endswith("Shy")
    assert failure.message == "<no text: LookupError in __str__>"
    assert "Shy" in failure.stack_trace
    assert isinstance(decide(failure), RetryAt)


def test_without_a_dead_letter_topic_an_exhausted_record_stops_its_partition() -> None:
    decision = decide(ExceptionTable().failure_of(KeyError("missing")), attempts=3, retry=Policy(max_attempts=3))

    assert isinstance(decision, Stop)
    assert "after 3 attempts" in decision.reason
    assert "no dead letter topic" in decision.reason
    assert "missing" in decision.reason


def test_an_endless_policy_never_gives_up() -> None:
    failure = ExceptionTable().failure_of(KeyError("missing"))

    assert isinstance(decide(failure, attempts=10_000, retry=Policy(max_attempts=None)), RetryAt)


@pytest.mark.parametrize("error", [InvalidRecord("no amount")])
def test_an_invalid_record_is_dead_at_its_first_failure(error: Exception) -> None:
    failure = ExceptionTable().failure_of(error)

    assert failure.kind == "invalid"
    assert decide(failure, dead_letter_topic="dead") == DeadLetter("dead")


def test_the_validation_errors_of_pydantic_and_msgspec_mean_invalid() -> None:
    import msgspec
    import pydantic

    class Order(pydantic.BaseModel):
        amount: int

    with pytest.raises(pydantic.ValidationError) as of_pydantic:
        Order(amount="many")  # type: ignore[arg-type]
    with pytest.raises(msgspec.ValidationError) as of_msgspec:
        msgspec.convert("many", int)

    for error in (of_pydantic.value, of_msgspec.value):
        assert ExceptionTable().failure_of(error).kind == "invalid"


def test_malformed_bytes_are_dead_without_a_retry() -> None:
    evidence = Malformed(part="value", raw=b"{", error="not JSON", error_type="DecodeError")

    assert decide(Failure.of_malformed(evidence), retry=Policy(), dead_letter_topic="dead") == DeadLetter("dead")


def test_a_message_that_another_one_has_claimed_is_tried_again_long_before_the_claim_expires() -> None:
    busy = Failure(outcome=Retry(after_s=600), error_type="MessageBusy", message="claimed", is_outage=True)
    waits = [decide(busy, attempts=0, outages=outages, retry=NO_RETRY).due_ms - NOW for outages in (1, 3, 100)]
    assert waits[0] < waits[1] < waits[2] <= 15_000
    soon = Failure(outcome=Retry(after_s=0.05), error_type="MessageBusy", message="claimed", is_outage=True)
    assert decide(soon, attempts=0, outages=100, retry=NO_RETRY) == RetryAt(NOW + 50)


def test_a_registry_outage_is_retried_for_ever_and_never_a_dead_letter() -> None:
    failure = ExceptionTable().failure_of(RegistryUnavailable("503"))

    assert failure.is_outage
    for outages in (1, 100, 10_000):
        decision = decide(failure, attempts=0, outages=outages, retry=NO_RETRY, dead_letter_topic="dead")
        assert isinstance(decision, RetryAt)
        assert decision.due_ms - NOW <= 15_000


def test_a_handler_may_say_when_to_retry() -> None:
    failure = Failure.of_outcome(Retry(after_s=2.5))

    assert decide(failure, retry=Policy(max_attempts=2)) == RetryAt(NOW + 2_500)
    assert isinstance(decide(failure, attempts=2, retry=Policy(max_attempts=2)), Stop)


@pytest.mark.parametrize("outcome", [Ack(), Skip("old")])
def test_an_exception_declared_as_ack_or_skip_finishes_the_record(outcome: Ack | Skip) -> None:
    failure = ExceptionTable({LookupError: outcome}).failure_of(KeyError("x"))

    assert decide(failure) == Finish()


def test_the_nearest_declared_base_class_wins() -> None:
    table = ExceptionTable({LookupError: Dead("lookup"), KeyError: Retry(after_s=1), Exception: Skip()})

    assert table.outcome_of(KeyError()) == Retry(after_s=1)
    assert table.outcome_of(IndexError()) == Dead("lookup")
    assert table.outcome_of(ValueError()) == Skip()


def test_the_users_table_wins_over_the_built_in_one() -> None:
    table = ExceptionTable({InvalidRecord: Retry(after_s=1), RegistryUnavailable: Dead("gone")})

    assert table.outcome_of(InvalidRecord()) == Retry(after_s=1)
    assert not table.failure_of(RegistryUnavailable("503")).is_outage


@pytest.mark.parametrize(("table", "named"), [({"KeyError": Ack()}, "KeyError"), ({KeyError: Ack}, "KeyError")])
def test_a_table_with_something_else_in_it_is_refused(table: dict[object, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        ExceptionTable(table)  # type: ignore[arg-type]


def test_a_failure_keeps_text_and_not_the_frames() -> None:
    def deep() -> None:
        secret = "local"  # noqa: F841
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError) as caught:
        deep()
    failure = ExceptionTable().failure_of(caught.value)

    assert failure.error_type == "RuntimeError"
    assert failure.message == "boom"
    assert "in deep" in failure.stack_trace
    assert not any(hasattr(getattr(failure, name), "tb_frame") for name in failure.__slots__)


@given(text=st.text(max_size=500), limit=st.integers(16, 400))
def test_capped_text_fits_and_keeps_its_beginning(text: str, limit: int) -> None:
    capped = cap_text(text, limit)

    assert len(capped.encode()) <= limit
    plain = text.encode("utf-8", "backslashreplace").decode()
    assert capped == plain or (capped.endswith("…") and plain.startswith(capped[:-1]))


def test_a_long_stack_trace_keeps_its_end() -> None:
    def ping(depth: int) -> None:
        if depth == 0:
            raise RuntimeError("at the bottom: ü" * 10)
        pong(depth - 1)

    def pong(depth: int) -> None:  # two functions in turn: Python folds the frames of one
        ping(depth - 1)

    with pytest.raises(RuntimeError) as caught:
        ping(200)
    trace = stack_trace_of(caught.value, 1_000)

    assert len(trace.encode()) <= 1_000
    assert trace.startswith("[… cut]")
    assert trace.rstrip().endswith("at the bottom: ü")
    assert len(stack_trace_of(caught.value).encode()) <= STACK_TRACE_LIMIT_BYTES


def test_classes_of_exceptions_that_are_made_at_run_time_are_not_kept() -> None:
    table = ExceptionTable({ConnectionError: Skip("away")})
    made = [type(f"Client{number}Error", (ConnectionError,), {}) for number in range(100)]
    assert {table.outcome_of(each()) for each in made} == {Skip("away")}
    kept = [weakref.ref(each) for each in made]

    made.clear()
    gc.collect()  # a class is part of a cycle

    assert not [each for each in kept if each() is not None]


@pytest.mark.parametrize(
    ("stage", "carried", "wanted"),
    [
        pytest.param(0, 0, Postpone(1, 6_000), id="it fails in its own topic"),
        pytest.param(1, 1, Postpone(2, 12_000), id="and again in the first retry topic"),
        pytest.param(1, 0, Postpone(2, 6_000), id="it came there behind an earlier record of its key, unhandled"),
        pytest.param(2, 0, RetryAt(NOW + 6_000), id="it came so to the last retry topic"),
    ],
)
def test_the_delay_is_that_of_the_failures_and_not_of_the_topic(stage: int, carried: int, wanted: object) -> None:
    policy = FailurePolicy(retry=NO_RETRY, retry_topics=RetryTopics(delays_s=(6, 12)))
    failure = Failure(outcome=Retry(), error_type="TimeoutError")
    found = policy.decide(failure, attempts=1, outages=0, now_ms=NOW, random=Random(1), stage=stage, carried=carried)
    assert found == wanted


def test_a_group_whose_name_no_topic_may_have_is_refused_where_its_retry_topics_are_declared() -> None:
    app = App("my group")
    with pytest.raises(
        ConfigError, match=r"name of their group, 'my group', in theirs: topic: found 'orders\.my group"
    ):
        app.handler("orders", retry_topics=RetryTopics())(lambda value: None)
