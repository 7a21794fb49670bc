"""What a producer refuses is refused without a broker as well: a test must not pass where the service would fail."""

from __future__ import annotations

from typing import Any

import pytest

from ottla import App, InputError
from ottla.testing import consumer_for


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
