"""Values that take long to decode keep an event loop for some milliseconds at a time, not for a whole run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla import App, AsyncConsumer, Inbox
from ottla.app.app import declarations_of
from ottla.app.delivery import run_decoder
from ottla.consumer.model.run import Run, RunResult
from ottla.errors import RegistryUnavailable
from ottla.records import Malformed, Record, TopicPartition
from ottla.serdes import Serde, SerdeContext
from ottla.stores import Memory

COUNT = 200
DECODES_S = 0.001


class Slow(Serde[int]):
    """Numbers that take a millisecond each, of a clock of its own. Some are malformed, or unknown from one on."""

    def __init__(self, malformed: int = -1, unknown_from: int = COUNT) -> None:
        self.decoded = 0
        self.malformed = malformed
        self.unknown_from = unknown_from

    def serialize(self, value: int | None, ctx: SerdeContext) -> bytes | None:
        raise NotImplementedError

    def deserialize(self, data: bytes | None, ctx: SerdeContext) -> int | Malformed | None:
        assert data is not None
        self.decoded += 1
        if int(data) >= self.unknown_from:
            raise RegistryUnavailable("http://registry does not answer")
        if int(data) == self.malformed:
            return Malformed(part="value", raw=data, error="found no number", error_type="ValueError")
        return int(data)

    def now_s(self) -> float:
        return self.decoded * DECODES_S


def records() -> list[Record[Any]]:
    return [Record("orders", 0, offset, 0, b"k", b"%d" % offset, [], b"k", b"%d" % offset) for offset in range(COUNT)]


def run_of(records: list[Record[Any]]) -> Run:
    name = TopicPartition("orders", 0)
    return Run(topic_partition=name, epoch=1, route="orders", records=records, attempt=1, started_ms=0)


def deliver(app: App, serde: Slow, monkeypatch: pytest.MonkeyPatch) -> tuple[RunResult, list[int]]:
    """Deliver one run to the app's only handler. Returns the result, and what was decoded at each breath."""
    monkeypatch.setattr(run_decoder, "monotonic", serde.now_s)
    (route,) = declarations_of(app).routes
    run = run_of(records())
    run.route = route.name
    breaths: list[int] = []

    async def breathe() -> None:
        if serde.decoded < COUNT:
            breaths.append(serde.decoded)

    invoker: Any = route.invoker(list(declarations_of(app).all_middlewares), {})
    result = asyncio.run(invoker.deliver_async(run, breathe))
    assert isinstance(result, RunResult)
    return result, breaths


@pytest.mark.parametrize("is_batch", [False, True], ids=["records", "batch"])
def test_the_loop_breathes_while_a_run_is_decoded(is_batch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    app, serde = App("billing"), Slow()
    seen: list[int] = []
    if is_batch:

        @app.handler("orders", value=serde, batch=True, max_batch=COUNT)
        async def of_batch(values: list[int]) -> None:
            seen.extend(values)
    else:

        @app.handler("orders", value=serde)
        async def of_record(value: int) -> None:
            seen.append(value)

    result, breaths = deliver(app, serde, monkeypatch)

    assert (result.done, seen) == (None, list(range(COUNT)))
    assert max(after - before for before, after in zip([0, *breaths], [*breaths, COUNT], strict=True)) <= 10


def test_the_loop_breathes_while_a_run_is_decoded_for_the_ids_of_an_inbox(monkeypatch: pytest.MonkeyPatch) -> None:
    app, serde = App("billing"), Slow()
    seen: list[int] = []

    @app.handler("orders", value=serde, inbox=Inbox(Memory(), id=lambda record: str(record.value)))
    async def handle(value: int) -> None:
        seen.append(value)

    result, breaths = deliver(app, serde, monkeypatch)

    assert (result.done, seen) == (None, list(range(COUNT)))
    assert max(after - before for before, after in zip([0, *breaths], [*breaths, COUNT], strict=True)) <= 10


def test_the_loop_breathes_while_a_consumer_decodes_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    serde = Slow()
    monkeypatch.setattr(run_decoder, "monotonic", serde.now_s)
    breaths: list[int] = []

    async def breathe() -> None:
        while serde.decoded < COUNT:
            breaths.append(serde.decoded)
            await asyncio.sleep(0)

    async def decode() -> None:
        consumer = AsyncConsumer("orders", group="billing", bootstrap_servers="localhost:9", value=serde)
        neighbour = asyncio.create_task(breathe())
        assert await consumer._decode(run_of(records())) == (False, None)
        await neighbour

    asyncio.run(decode())
    assert max(after - before for before, after in zip([0, *breaths], [*breaths, COUNT], strict=True)) <= 10


def test_a_malformed_value_in_a_later_part_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    app, serde = App("billing"), Slow(malformed=150)
    seen: list[int] = []

    @app.handler("orders", value=serde, ordering="unordered", dead_letter_topic="letters")
    async def handle(value: int) -> None:
        seen.append(value)

    result, _ = deliver(app, serde, monkeypatch)

    assert [record.offset for record, _ in result.failures] == [150]
    assert seen == [number for number in range(COUNT) if number != 150]


def test_a_registry_that_does_not_answer_for_a_later_part_fails_the_run_before_the_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, serde = App("billing"), Slow(unknown_from=150)
    seen: list[int] = []

    @app.handler("orders", value=serde)
    async def handle(value: int) -> None:
        seen.append(value)

    result, _ = deliver(app, serde, monkeypatch)

    assert (result.done, seen) == ((), [])
    assert [record.offset for record, _ in result.failures] == [0]
    assert [record.offset for record in result.untouched] == list(range(1, COUNT))
