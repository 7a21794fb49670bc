"""The demo's producer service: weather as JSON, flights as Avro keyed by aircraft, some of them truncated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ottla.cli.demo.background import Background
from ottla.cli.demo.data import read_weather
from ottla.cli.demo.display import DemoStage
from ottla.cli.demo.model import EVENT_ID_HEADER, FLIGHTS_TOPIC, WEATHER_TOPIC, Flight, Weather, is_truncated
from ottla.records import Header
from ottla.serdes import Avro, Json, Serde, SerdeContext, Str
from ottla.sync.produce.producer import Producer

_REPORT_EVERY = 500

Around = Callable[[int, Flight], AbstractContextManager[Any]]
"""Context manager around each send, by event id and flight."""


class ProducerService(Background):
    """The weather up to the last flight, then the flights."""

    def __init__(self, bootstrap_servers: str, flights: Sequence[Flight], *, stage: DemoStage, around: Around) -> None:
        super().__init__("demo-producer", stage)
        self._bootstrap = bootstrap_servers
        self._flights = flights
        self._around = around
        self._stop = threading.Event()
        self.is_weather_sent = False

    @property
    def is_half_done(self) -> bool:
        return self._stage.done * 2 >= len(self._flights)

    def stop(self) -> None:
        """End early. Returns when the thread has ended."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def _work(self) -> None:
        replay_weather(self._bootstrap, read_weather(until_ms=self._flights[-1].scheduled_ms))
        self.is_weather_sent = True
        replay_flights(self._bootstrap, self._flights, report=self._report, stop=self._stop, around=self._around)

    def _report(self, sent: int) -> None:
        self._stage.done = sent


def replay_weather(bootstrap_servers: str, weather: Iterable[Weather]) -> int:
    """Produce the weather. Returns how many records were acknowledged; raises `DeliveryError` if one was not."""
    sent = 0
    with Producer(bootstrap_servers, profile="high_throughput", key=Str(), value=Json(Weather)) as producer:
        for observation in weather:
            producer.send(WEATHER_TOPIC, observation, key=observation.origin)
            sent += 1
    return sent


def replay_flights(
    bootstrap_servers: str,
    flights: Sequence[Flight],
    *,
    report: Callable[[int], None],
    stop: threading.Event,
    around: Around = lambda event_id, flight: nullcontext(),
) -> None:
    """Produce the flights in time order. Returns when all are acknowledged, or early when `stop` is set.

    Each send is inside of what `around` gives. The value is serialized here because the demo wants to send broken
    bytes, which a producer with a serde never would.
    """
    serde: Serde[Flight] = Avro(Flight)
    context = SerdeContext(FLIGHTS_TOPIC, "value", ())
    with Producer(bootstrap_servers, profile="high_throughput", key=Str()) as producer:
        for event_id, flight in enumerate(flights):
            value = serde.serialize(flight, context) or b""
            if is_truncated(event_id):
                value = value[: len(value) // 2]
            headers: list[Header] = [(EVENT_ID_HEADER, b"%d" % event_id)]
            with around(event_id, flight):
                producer.send(FLIGHTS_TOPIC, value, key=flight.tailnum, headers=headers)
            if event_id % _REPORT_EVERY == 0:
                report(event_id)
                if stop.is_set():
                    return
    report(len(flights))
