"""The demo's gate sensors publish departures by MQTT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.cli.demo import gates
from ottla.cli.demo.display import DemoStage
from ottla.cli.demo.gates import GateSensors, departures_of
from ottla.cli.demo.model import Flight
from ottla.testing import Kafka


def flight(origin: str, number: int, *, is_cancelled: bool = False) -> Flight:
    return Flight("UA", number, None, origin, "IAH", 0, None if is_cancelled else 517, None, None, 1_400)


FLIGHTS = [flight(("EWR", "JFK", "LGA")[number % 3], number, is_cancelled=number % 10 == 3) for number in range(500)]


def test_a_cancelled_flight_has_no_departure():
    found = departures_of(FLIGHTS[:12])
    assert {airport: [event_id for event_id, _ in events] for airport, events in found.items()} == {
        "EWR": [0, 6, 9],
        "JFK": [1, 4, 7, 10],
        "LGA": [2, 5, 8, 11],
    }


def test_every_departure_that_is_acknowledged_is_in_kafka(
    kafka: Kafka, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gates, "GATES_TOPIC", make_topic(partitions=3))
    stage = DemoStage(name="gate sensors", unit="departures")
    sensors = GateSensors(kafka.bootstrap_servers, FLIGHTS, stage=stage)
    sensors.start()
    sensors.finish()
    line: Any = sensors.line()
    assert (line.found, line.holds) == ("450 acknowledged, 450 in Kafka", True)
    assert stage.count() == "450 of 450 departures"
    sensors.acknowledged.discard(0)
    assert not sensors.line().holds, "what is written and not acknowledged does not balance"
