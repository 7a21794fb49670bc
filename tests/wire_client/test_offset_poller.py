"""Logs looked at in a thread beside another client: what is answered, and what is said when nothing is found out."""

from __future__ import annotations

import socket
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest

from ottla.records import TopicPartition
from ottla.testing.waiting import wait_until
from ottla.wire_client.fetching.offset_poller import LogBounds, OffsetPoller


class Asking(list[TopicPartition]):
    tails: Mapping[TopicPartition, int] = {}


class Asked:
    """What came of the questions."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.answers: list[tuple[list[TopicPartition], Mapping[TopicPartition, LogBounds], Collection[str]]] = []
        self.failures: list[tuple[str, str]] = []
        self.looks: OffsetPoller[Asking] = OffsetPoller(
            settings,
            name="looks",
            answer=lambda question, looked: self.answers.append((question, looked.logs, looked.missing)),
            failed=lambda code, error: self.failures.append((code, error)),
        )


@pytest.fixture
def asked(request: pytest.FixtureRequest, kafka: Any) -> Iterator[Asked]:
    made = Asked({"bootstrap.servers": kafka.bootstrap_servers, **getattr(request, "param", {})})
    yield made
    made.looks.stop()


def test_the_ends_of_logs_and_the_topic_they_are_of(asked: Asked, kafka: Any, kafka_topic: str) -> None:
    place, missing = TopicPartition(kafka_topic, 0), TopicPartition("not-there", 0)
    asked.looks.ask(Asking([place, missing]))
    wait_until(lambda: asked.answers)
    kafka.produce(kafka_topic, [b"1", b"2"], partition=0)
    asked.looks.ask(Asking([place]))
    wait_until(lambda: len(asked.answers) == 2)

    (_, before, absent), (_, after, _) = asked.answers
    assert absent == {"not-there"}
    assert before.keys() == {place}, "a topic that is not there is left out"
    assert (before[place].start, before[place].end, after[place].end) == (0, 0, 2)
    assert before[place].topic_id is not None
    assert before[place].topic_id == after[place].topic_id
    assert asked.failures == []


@pytest.mark.parametrize("asked", [{"bootstrap.servers": "localhost:9"}], indirect=True)
def test_a_question_that_no_broker_answers_is_answered_with_nothing(asked: Asked) -> None:
    asked.looks.ask(Asking([TopicPartition("orders", 0)]))
    wait_until(lambda: asked.answers)

    assert asked.answers == [([TopicPartition("orders", 0)], {}, set())]
    ((code, error),) = asked.failures
    assert code == "logs_unseen"
    assert "localhost:9" in error


@pytest.mark.parametrize("asked", [{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}], indirect=True)
def test_a_way_to_authenticate_that_it_does_not_have_is_said_once(asked: Asked) -> None:
    asked.looks.ask(Asking([TopicPartition("orders", 0)]))
    wait_until(lambda: asked.failures)
    asked.looks.ask(Asking([TopicPartition("orders", 0)]))
    asked.looks.stop()

    ((code, error),) = asked.failures
    assert code == "logs_not_watched"
    assert "sasl.mechanism" in error
    assert asked.answers == []


def test_a_stopped_watch_reports_nothing_of_the_question_that_waited() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        asked = Asked({"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"})
        asked.looks.ask(Asking([TopicPartition("orders", 0)]))
        connection, _ = silent.accept()
        asked.looks.stop()
        connection.close()
    wait_until(lambda: "looks" not in {each.name for each in threading.enumerate()})
    assert (asked.answers, asked.failures) == ([], [])
