"""What a producer refuses is refused without a broker as well: a test must not pass where the service would fail."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from ottla import App, InputError, Outbox
from ottla.producer.signature import RecordOptions, SendOptions
from ottla.testing import consumer_for
from ottla.testing.captured import Captured


@pytest.mark.parametrize(
    "arguments",
    [{"partition": -1}, {"partition": True}, {"timestamp_ms": float("nan")}, {"headers": [("caf\udce9", b"x")]}],
)
def test_a_record_that_no_client_can_write_fails_its_handler_offline(arguments: dict[str, Any]) -> None:
    app = App("billing", dead_letter_topic="dead")
    producer = app.producer()
    errors: list[Exception] = []

    @app.handler("orders")
    def forward(value: bytes) -> None:
        try:
            producer.send("out", value, **arguments)
        except InputError as error:
            errors.append(error)

    consumer_for(app).deliver(b"v")
    assert len(errors) == 1


@pytest.mark.parametrize("name", ["expire_after", "message_id", "schedule_id", "event_id", "headers"])
@pytest.mark.parametrize("records", [[], [(b"v",), (b"w",)]], ids=["none", "two"])
def test_an_option_that_send_many_does_not_have_is_refused_offline(name: str, records: list[tuple[bytes]]) -> None:
    app = App("billing")
    producer = app.producer()
    wrong: Any = {name: "a"}

    @app.handler("orders")
    def forward(value: bytes) -> None:
        with pytest.raises(TypeError, match=rf"^Producer\.send_many\(\) got an unexpected keyword argument '{name}'"):
            producer.send_many("out", records, **wrong)

    consumer = consumer_for(app)
    assert consumer.deliver(b"v").outcome == "done"
    assert consumer.sent == []


@pytest.mark.parametrize("name", ["expire_after", "message_id"])
async def test_an_option_that_send_many_does_not_have_is_refused_offline_on_asyncio(name: str) -> None:
    app = App("billing")
    producer = app.async_producer()
    wrong: Any = {name: "a"}

    @app.handler("orders")
    async def forward(value: bytes) -> None:
        with pytest.raises(TypeError, match=rf"^AsyncProducer\.send_many\(\) got an unexpected .* '{name}'"):
            await producer.send_many("out", [(b"v",), (b"w",)], **wrong)

    consumer = consumer_for(app)
    assert (await consumer.deliver_async(b"v")).outcome == "done"
    assert consumer.sent == []


def test_captured_sends_and_rows_of_an_outbox_have_the_options_of_a_send() -> None:
    of_send = {"topic", "value", "key", "on_delivery"}
    assert options_of(Captured.send) - of_send == SendOptions.__optional_keys__
    assert options_of(Outbox._row) - of_send == RecordOptions.__optional_keys__


def options_of(method: Any) -> set[str]:
    return {name for name in inspect.signature(method).parameters if name != "self"}
