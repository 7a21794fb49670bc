"""The demo's events, its topics, and which records are made to fail.

Nothing here is random: whether a record is truncated or flaky follows from its event id, so two runs of the same size
have the same account, and the account can say beforehand what it expects.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

FLIGHTS_TOPIC = "flights"
WEATHER_TOPIC = "weather"
GATES_TOPIC = "gates.departures"
HANDLED_TOPIC = "flights.handled"
DEAD_LETTER_TOPIC = "flights.dead-letters"
PIPELINE_DEAD_LETTER_TOPIC = "flights.pipeline-dead-letters"
DELAYS_TOPIC = "delays.by-carrier-and-hour"
HANDLER_GROUP = "flight-board"
PIPELINE_GROUP = "delay-report"
FLIGHTS_PARTITIONS = 6

EVENT_ID_HEADER = "event-id"
"""The producer gives each event an id of its own: the account counts these, not offsets."""

TRUNCATED_ONE_IN = 500
FLAKY_ONE_IN = 1_000


@dataclass(frozen=True, slots=True)
class Flight:
    """One flight out of New York, as its event carries it. A cancelled flight has no departure time or delay."""

    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    scheduled_ms: int
    dep_time: int | None
    dep_delay: int | None
    arr_delay: int | None
    distance: int


@dataclass(frozen=True, slots=True)
class Departure:
    """A line of the board on which the handler service puts each departure."""

    flight: str
    origin: str
    dest: str
    scheduled_ms: int
    delay_minutes: int | None


@dataclass(frozen=True, slots=True)
class Weather:
    """The weather at one airport in one hour. `hour_ms` is the start of the hour, milliseconds since the epoch, UTC."""

    origin: str
    hour_ms: int
    temp: float | None
    wind_speed: float | None
    precip: float | None
    visib: float | None


def is_truncated(event_id: int) -> bool:
    """Return whether this event leaves the producer with half of its bytes missing."""
    return _draw(b"truncated", event_id, TRUNCATED_ONE_IN)


def is_flaky(event_id: int) -> bool:
    """Return whether the handler fails twice on this event before it succeeds."""
    return _draw(b"flaky", event_id, FLAKY_ONE_IN)


def _draw(salt: bytes, event_id: int, one_in: int) -> bool:
    return zlib.crc32(b"%s-%d" % (salt, event_id)) % one_in == 0
