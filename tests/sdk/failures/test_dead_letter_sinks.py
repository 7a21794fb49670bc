"""The sinks answer for every letter, whatever comes of it."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.aio.consume.dead_letters import ProducerSink as AsyncSink
from ottla.consumer.model.failed_writes import Write, WriteDeadLetter
from ottla.failures import Failure
from ottla.failures.dead_letter import DeadLetterReason
from ottla.failures.outcomes import Dead
from ottla.records import Record, TopicPartition
from ottla.sync.consume.dead_letters import ProducerSink

NOT_OURS = ValueError("not an error of Ottla's")


class RaisesAtSend:
    is_started = True

    def send(self, *arguments: Any, **options: Any) -> Any:
        raise NOT_OURS


NO_HEADERS: Any = [5]
"""What no dead letter can be made of."""


def letter(headers: Any = ()) -> WriteDeadLetter:
    record: Record[Any] = Record("orders", 0, 7, 0, None, b"v", list(headers), None, b"v")
    failure = Failure.of_outcome(Dead("bad"))
    reason = DeadLetterReason.of(failure, attempts=1, group="g", first_failure_ms=0, dead_lettered_ms=0)
    return WriteDeadLetter(TopicPartition("orders", 0), 1, record, "dead", reason)


def test_a_letter_is_answered_in_threads_whatever_the_producer_raises() -> None:
    sink = ProducerSink("localhost:9", {})
    producer: Any = RaisesAtSend()
    sink._producer = producer
    answers: list[tuple[Write, str | None]] = []
    sink.write(one := letter(), lambda of, error: answers.append((of, error)))

    assert answers == [(one, f"ValueError: {NOT_OURS}")]


def test_a_letter_is_answered_on_asyncio_whatever_the_producer_raises() -> None:
    async def main() -> None:
        sink = AsyncSink("localhost:9", {})
        producer: Any = RaisesAtSend()
        sink._producer = producer
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        sink.write(letter(), lambda of, error: answer.set_result(error))
        async with asyncio.timeout(30):
            assert await answer == f"ValueError: {NOT_OURS}"

    asyncio.run(main())


def test_a_letter_that_cannot_be_made_is_answered_in_threads() -> None:
    answers: list[str | None] = []
    ProducerSink("localhost:9", {}).write(letter(NO_HEADERS), lambda _, error: answers.append(error))

    (error,) = answers
    assert error is not None
    assert error.startswith("TypeError: ")


def test_a_letter_that_cannot_be_made_is_answered_on_asyncio_and_holds_up_none_behind_it() -> None:
    async def main() -> None:
        sink = AsyncSink("localhost:9", {})
        producer: Any = RaisesAtSend()
        sink._producer = producer
        answers: asyncio.Queue[str | None] = asyncio.Queue()
        for headers in (NO_HEADERS, ()):
            sink.write(letter(headers), lambda _, error: answers.put_nowait(error))
        async with asyncio.timeout(30):
            found = [await answers.get(), await answers.get()]
        assert f"ValueError: {NOT_OURS}" in found
        assert any(error is not None and error.startswith("TypeError: ") for error in found)

    asyncio.run(main())
