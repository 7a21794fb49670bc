"""`consumer_for` with retry topics: a record goes through them without a broker, and without waiting."""

from __future__ import annotations

from ottla import App, Context, Json, RetryTopics, Str
from ottla.testing import consumer_for

TOPICS = RetryTopics(delays_s=(10, 60))


def test_a_record_that_fails_twice_is_done_after_both_delays() -> None:
    seen: list[tuple[str, int, int]] = []

    def handle(value: int, context: Context) -> None:
        seen.append((str(context.topic_partition), value, context.attempt))
        if context.attempt < 3:
            raise RuntimeError("not yet")

    delivery = consumer_for(handle, value=Json(), retry_topics=TOPICS).deliver(1)

    assert (delivery.outcome, delivery.attempts) == ("done", 3)
    assert delivery.waited_s >= 70
    assert seen == [("test-0", 1, 1), ("test-0", 1, 2), ("test-0", 1, 3)]


def test_one_that_always_fails_is_a_dead_letter_of_its_own_topic() -> None:
    def handle(value: int) -> None:
        raise RuntimeError("never")

    delivery = consumer_for(handle, value=Json(), retry_topics=TOPICS, dead_letter_topic="dead").deliver(1)

    assert (delivery.outcome, delivery.attempts) == ("dead", 3)
    assert delivery.dead_letter is not None
    assert delivery.dead_letter.view.topic == "test"
    assert delivery.dead_letter.view.offset == 0


def test_a_key_stays_in_order_behind_its_failed_record() -> None:
    done: list[int] = []
    app = App("billing")

    @app.handler("orders", value=Json(), key=Str(), retry_topics=TOPICS)
    def handle(value: int, context: Context) -> None:
        if value == 0 and context.attempt < 3:
            raise RuntimeError("not yet")
        done.append(value)

    deliveries = consumer_for(app).deliver_all([0, 1, 2, 3], keys=["a", "b", "a", "b"])

    assert done == [1, 3, 0, 2]
    assert [delivery.outcome for delivery in deliveries] == ["done"] * 4


def test_without_a_dead_letter_topic_the_end_of_the_line_stops() -> None:
    def handle(value: int) -> None:
        raise RuntimeError("never")

    delivery = consumer_for(handle, value=Json(), retry_topics=TOPICS).deliver(1)

    assert delivery.outcome == "stopped"
    assert "never" in delivery.reason
