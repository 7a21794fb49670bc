"""Numbers that are not numbers, and numbers that nothing can calculate with, are refused where they are declared."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from ottla import (
    App,
    AsyncConsumer,
    AsyncProducer,
    CommitPolicy,
    ConfigError,
    Consumer,
    Dead,
    DeadLetterBudget,
    ExactlyOnce,
    FlowLimits,
    Inbox,
    Producer,
    Retry,
    RetryPolicy,
    RetryTopics,
    Skip,
)
from ottla.app.app import declarations_of
from ottla.failures.budget import BudgetMeter
from ottla.outbox import Outbox
from ottla.stores import Memory, Sqlite
from ottla.sync.serve.outbox_relay import OutboxRelay
from ottla.testing import wait_until

HUGE = 10**5_000
NO_SPANS = [math.nan, math.inf, -math.inf, True, "1", 1e300, HUGE, -1, 1j, [1]]
NO_COUNTS = [math.nan, math.inf, True, "1", 1.5, 2**63, HUGE, -1]


def handler(**options: Any) -> None:
    App("g").handler("orders", name="on_order", **options)(lambda order: None)


def consumer(kind: type[Any]) -> Callable[..., Any]:
    return lambda **options: kind("orders", group="g", bootstrap_servers="localhost:1", **options)


def consume(**options: Any) -> None:
    columnar = pytest.importorskip("ottla.columnar")
    columnar.consume("orders", group="g", bootstrap_servers="localhost:1", **options)


def relay(**options: Any) -> None:
    OutboxRelay(Outbox(Sqlite("outbox.db")), "localhost:1", **options)


SPANS: list[tuple[Callable[..., Any], list[str]]] = [
    (Retry, ["after_s"]),
    (RetryPolicy, ["initial_s", "max_s"]),
    (lambda delays_s: RetryTopics(delays_s=(1, delays_s)), ["delays_s"]),
    (DeadLetterBudget, ["every_s"]),
    (CommitPolicy, ["every_s"]),
    (FlowLimits, ["lead_s"]),
    (ExactlyOnce, ["transaction_timeout_s"]),
    (lambda **options: Inbox(Memory(), **options), ["window_s", "lease_s"]),
    (lambda busy_timeout_s: Sqlite("a.db", busy_timeout_s=busy_timeout_s), ["busy_timeout_s"]),
    (lambda **options: App("g", **options), ["drain_s", "start_timeout_s", "topics_timeout_s", "unready_after_s"]),
    (handler, ["ttl_s", "expires_grace_s"]),
    *(
        (
            consumer(kind),
            ["drain_s", "start_timeout_s", "topics_timeout_s", "unready_after_s", "ttl_s", "expires_grace_s"],
        )
        for kind in (Consumer, AsyncConsumer)
    ),
    (consume, ["drain_s", "start_timeout_s", "topics_timeout_s", "ttl_s"]),
    (relay, ["interval_s", "lease_s", "unready_after_s", "drain_s"]),
]
COUNTS: list[tuple[Callable[..., Any], list[str]]] = [
    (RetryPolicy, ["max_attempts"]),
    (DeadLetterBudget, ["burst"]),
    (CommitPolicy, ["every_records"]),
    (FlowLimits, ["high_records", "low_records", "most_records", "total_records", "hold_ms"]),
    (ExactlyOnce, ["max_records"]),
    (lambda **options: Memory(**options), ["max_ids"]),
    (handler, ["concurrency", "max_records_per_turn"]),
    (lambda **options: handler(batch=True, **options), ["max_batch", "linger_ms"]),
    (consumer(Consumer), ["max_records_per_turn"]),
    (consumer(AsyncConsumer), ["max_records_per_turn"]),
    (consume, ["max_batch", "linger_ms"]),
    (relay, ["batch_rows", "batch_bytes"]),
]


def each(table: list[tuple[Callable[..., Any], list[str]]]) -> list[Any]:
    return [
        pytest.param(make, name, id=f"{getattr(make, '__name__', 'made')}-{number}-{name}")
        for number, (make, names) in enumerate(table)
        for name in names
    ]


@pytest.mark.parametrize(("make", "name"), each(SPANS))
def test_what_is_no_span_of_time_is_refused(make: Callable[..., Any], name: str) -> None:
    wrong = [value for value in NO_SPANS if not (make is Retry and value == 1e300)]
    for value in wrong:
        with pytest.raises(ConfigError, match=name):
            make(**{name: value})


@pytest.mark.parametrize(("make", "name"), each(COUNTS))
def test_what_is_no_count_is_refused(make: Callable[..., Any], name: str) -> None:
    for value in NO_COUNTS:
        with pytest.raises(ConfigError, match=name):
            make(**{name: value})


@pytest.mark.parametrize("name", ["multiplier", "jitter"])
@pytest.mark.parametrize("value", [math.nan, math.inf, True, "2", pytest.param(HUGE, id="huge"), -1])
def test_what_is_no_factor_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        RetryPolicy(**{name: value})


@pytest.mark.parametrize("value", [math.nan, math.inf, True, "1", pytest.param(HUGE, id="huge"), -0.1])
def test_what_is_no_share_of_a_token_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="per_success"):
        DeadLetterBudget(per_success=value)


@pytest.mark.parametrize("delays", ["10", 10, None, ["1"], (), [[1]]])
def test_what_is_no_list_of_delays_is_refused(delays: Any) -> None:
    with pytest.raises(ConfigError, match="delays_s"):
        RetryTopics(delays_s=delays)


@pytest.mark.parametrize("attempts", [1, 64, 65, 10_000])
@pytest.mark.parametrize(("multiplier", "initial_s"), [(1e6, 0.1), (2_147_483_647, 30), (1, 0.1), (2, 0)])
def test_every_policy_that_was_taken_has_a_delay(attempts: int, multiplier: float, initial_s: float) -> None:
    policy = RetryPolicy(max_attempts=None, initial_s=initial_s, multiplier=multiplier, max_s=30)

    assert 0 <= policy.delay_ms(attempts, Random(7)) <= 30_000


@pytest.mark.parametrize("every_s", [0.0004, 0, math.nan])
def test_a_budget_gives_tokens_at_most_once_in_a_millisecond(every_s: float) -> None:
    with pytest.raises(ConfigError, match=r"every_s must be"):
        DeadLetterBudget(every_s=every_s)


def test_the_shortest_budget_works() -> None:
    meter = BudgetMeter(DeadLetterBudget(burst=1, every_s=0.001), now_ms=0)

    assert [meter.take(0), meter.take(0), meter.take(1)] == [None, 1, None]


def test_a_retry_waits_at_most_as_long_as_a_timer_takes() -> None:
    assert Retry(1e300).after_ms == 10**12
    assert Retry(timedelta(minutes=1)).after_ms == 60_000


@pytest.mark.parametrize("reason", [ValueError("x"), 5, None, b"bytes"])
def test_a_reason_that_is_no_text_is_refused(reason: Any) -> None:
    for outcome in (Dead, Skip, lambda reason: Retry(reason=reason)):
        with pytest.raises(ConfigError, match=": reason must be text, got "):
            outcome(reason)
    with pytest.raises(ConfigError, match="Dead: kind must be one of malformed, invalid, failed, expired, got 'bad'"):
        Dead("reason", kind="bad")  # type: ignore[arg-type]


@pytest.mark.parametrize("concurrency", [10_001, 10**6, 2**63])
def test_the_most_workers_are_said_with_the_reason(concurrency: int) -> None:
    with pytest.raises(ConfigError, match="concurrency must be at most 10,000: each is a thread or a task"):
        handler(concurrency=concurrency)


def test_a_batch_is_named_as_it_was_declared() -> None:
    with pytest.raises(ConfigError, match="on_order: max_batch must be 1 or more, got 0"):
        handler(batch=True, max_batch=0)
    with pytest.raises(ConfigError, match="on_order: max_records_per_turn must be 1 or more, got 0"):
        handler(max_records_per_turn=0)


@pytest.mark.parametrize("columns", [{"batch": True}, {"columns": True}])
def test_a_turn_of_a_batch_is_its_size(columns: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"on_order: found max_records_per_turn=5 .* wanted max_batch=5"):
        handler(max_records_per_turn=5, **columns)
    with pytest.raises(ConfigError, match=r"on_order: found max_batch=5 .* wanted batch=True"):
        handler(max_batch=5)


def test_every_span_may_be_a_timedelta() -> None:
    second = timedelta(seconds=1)
    app = App("g", drain_s=second, start_timeout_s=second, topics_timeout_s=second, unready_after_s=second)
    app.handler(
        "orders",
        ttl_s=second,
        expires_grace_s=second,
        retry=RetryPolicy(initial_s=second, max_s=second, jitter=0),
        retry_topics=RetryTopics(delays_s=(second,)),
        budget=DeadLetterBudget(every_s=second),
        dead_letter_topic="dead",
        inbox=Inbox(Memory(), window_s=second, lease_s=timedelta(seconds=10)),
    )(lambda order: None)
    [route] = declarations_of(app).routes

    assert (app.drain_s, app.start_timeout_s, app.topics_timeout_s, app.unready_after_s) == (1, 1, 1, 1)
    assert (route.expiry.ttl_ms, route.expiry.grace_ms) == (1_000, 1_000)
    assert route.retry.delay_ms(1, Random(7)) == 1_000
    assert RetryTopics(delays_s=(second,)).delay_ms(1) == 1_000
    CommitPolicy(every_s=second)
    FlowLimits(lead_s=second)
    ExactlyOnce(transaction_timeout_s=second)
    Consumer("orders", group="g", bootstrap_servers="localhost:1", drain_s=second, unready_after_s=second)


class TestTimeoutsOfCalls:
    """A call waits for nothing, for a time, or as long as a timer takes."""

    @pytest.mark.parametrize("timeout_s", [math.nan, True, "1", 1j])
    def test_what_is_no_time_is_refused_in_threads(self, kafka: Any, kafka_topic: str, timeout_s: Any) -> None:
        consumer = Consumer(kafka_topic, group="g", bootstrap_servers=kafka.bootstrap_servers)
        producer = Producer(kafka.bootstrap_servers)
        delivery, bulk = producer.send(kafka_topic, b"x"), producer.send_many(kafka_topic, [(b"y",)])
        calls: list[Callable[..., Any]] = [consumer.poll, producer.flush, producer.close, producer.start]
        calls += [bulk.result, bulk.exception]
        for call in calls:
            with pytest.raises(ConfigError, match="timeout_s must be a number of seconds or a timedelta"):
                call(timeout_s)
        delivery.result()
        producer.close(timedelta(seconds=10))

    @pytest.mark.parametrize("timeout_s", [math.nan, True, "1", 1j])
    async def test_what_is_no_time_is_refused_on_an_event_loop(
        self, kafka: Any, kafka_topic: str, timeout_s: Any
    ) -> None:
        consumer = AsyncConsumer(kafka_topic, group="g", bootstrap_servers=kafka.bootstrap_servers)
        producer = AsyncProducer(kafka.bootstrap_servers)
        with pytest.raises(ConfigError, match="timeout_s must be a number of seconds or a timedelta"):
            await producer.start(timeout_s)
        await producer.start(timedelta(seconds=10))
        for call in (consumer.poll, producer.flush, producer.close):
            with pytest.raises(ConfigError, match="timeout_s must be a number of seconds or a timedelta"):
                await call(timeout_s)
        await producer.close(timedelta(seconds=10))

    @pytest.mark.parametrize("timeout_s", [math.inf, 1e300, -math.inf, -1, 0, timedelta(seconds=10)])
    def test_every_other_one_works(self, kafka: Any, kafka_topic: str, timeout_s: Any) -> None:
        producer = Producer(kafka.bootstrap_servers)
        if producer.send(kafka_topic, b"x").result() and timeout_s in (math.inf, 1e300, timedelta(seconds=10)):
            producer.send(kafka_topic, b"y").result(timeout_s)
            producer.send_many(kafka_topic, [(b"z",)]).result(timeout_s)
        producer.flush(timeout_s)
        producer.close()
        with Consumer(kafka_topic, group="g", bootstrap_servers=kafka.bootstrap_servers) as consumer:
            wait_until(lambda: consumer.poll(1))
            if timeout_s not in (math.inf, 1e300, timedelta(seconds=10)):
                assert isinstance(consumer.poll(timeout_s), list)

    @pytest.mark.parametrize("most", NO_COUNTS, ids=range(len(NO_COUNTS)))
    def test_what_is_no_number_of_records_is_refused(self, most: Any) -> None:
        consumer = Consumer("orders", group="g", bootstrap_servers="localhost:1")
        with pytest.raises(ConfigError, match="poll: max_records must be"):
            consumer.poll(0, max_records=most)


def test_threads_that_cannot_be_started_are_said_with_the_way_out(kafka: Any, kafka_topic: str) -> None:
    app = App("crowd", bootstrap_servers=kafka.bootstrap_servers)
    app.handler(kafka_topic, concurrency=3)(lambda order: None)

    @app.on_start
    def make_threads_expensive() -> None:
        # As on a machine whose memory is used up: no stack of a terabyte can be had.
        threading.stack_size(1 << 40)

    before = threading.stack_size()
    try:
        with pytest.raises(ConfigError, match=r"thread 1 of 3 for handlers could not be started .* lower concurrency="):
            app.run(handle_signals=False)
    finally:
        threading.stack_size(before)


@pytest.mark.parametrize("weight", [0, math.nan, True, "2", 1.5, 10**9])
def test_a_weight_that_is_none_ends_the_app_with_its_name(kafka: Any, kafka_topic: str, weight: Any) -> None:
    app = App("weighted", bootstrap_servers=kafka.bootstrap_servers)
    app.handler(kafka_topic, name="on_order", weight_of=lambda partition: weight)(lambda order: None)

    with pytest.raises(ConfigError, match=rf"on_order: weight_of\({kafka_topic}-0\) must be"):
        app.run(handle_signals=False)


@pytest.mark.parametrize("make", [lambda **options: App("g", **options), consumer(Consumer), consumer(AsyncConsumer)])
@pytest.mark.parametrize("option", ["retry", "flow"])
def test_a_number_in_the_place_of_a_policy_is_refused(make: Callable[..., Any], option: str) -> None:
    with pytest.raises(ConfigError, match=rf"{option} must be of type \w+, got 5"):
        make(**{option: 5})


@pytest.mark.parametrize("declare", [handler, consumer(Consumer), consumer(AsyncConsumer)])
def test_quantum_is_accepted_with_a_warning_that_names_max_records_per_turn(declare: Callable[..., Any]) -> None:
    with pytest.warns(DeprecationWarning, match=r"quantum= is called max_records_per_turn= since 0\.2") as warned:
        declare(quantum=7)
    assert warned[0].filename == __file__
    with (
        pytest.warns(DeprecationWarning, match="quantum"),
        pytest.raises(ConfigError, match="max_records_per_turn must be 1 or more, got 0"),
    ):
        declare(quantum=0)
    with pytest.raises(ConfigError, match="found quantum= beside max_records_per_turn=, its new name"):
        declare(quantum=7, max_records_per_turn=7)
