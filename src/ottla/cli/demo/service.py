"""The demo's handler service, run by `ottla run ottla.cli.demo.service:app`: what a user's own service looks like.

It puts each departure on a board (a topic), refuses cancelled flights, and talks to a gate system that sometimes needs
a third call. At least once: a flight's offset is committed after its departure is acknowledged, never before.
"""

from __future__ import annotations

import os

from ottla import App, Avro, Context, Delivery, InvalidRecord, Producer, Record, RetryPolicy, Str
from ottla.cli.demo.model import (
    DEAD_LETTER_TOPIC,
    EVENT_ID_HEADER,
    FLIGHTS_TOPIC,
    HANDLED_TOPIC,
    HANDLER_GROUP,
    Departure,
    Flight,
    is_flaky,
)

ATTEMPT_HEADER = "attempt"


class GateSystemBusy(Exception):
    """The gate system did not answer in time. Nothing is wrong with the flight."""


app = App(HANDLER_GROUP, dead_letter_topic=DEAD_LETTER_TOPIC, retry=RetryPolicy(initial_s=0.05, max_s=1.0))
board = Producer(os.environ["OTTLA_BOOTSTRAP_SERVERS"], key=Str(), value=Avro(Departure))
app.on_stop(board.close)


@app.handler(FLIGHTS_TOPIC, value=Avro(Flight), key=Str(), concurrency=2)
def put_on_board(flight: Flight, record: Record[Flight], context: Context) -> Delivery:
    """Confirm the gate and publish the departure."""
    if flight.dep_time is None:
        raise InvalidRecord("dep_time: found null, wanted a time: the flight was cancelled")
    event_id = int(record.header(EVENT_ID_HEADER) or -1)
    if is_flaky(event_id) and context.attempt <= 2:
        raise GateSystemBusy(f"no answer for flight {flight.carrier}{flight.flight} within 50 ms")
    departure = Departure(
        flight=f"{flight.carrier}{flight.flight}",
        origin=flight.origin,
        dest=flight.dest,
        scheduled_ms=flight.scheduled_ms,
        delay_minutes=flight.dep_delay,
    )
    headers = [(EVENT_ID_HEADER, b"%d" % event_id), (ATTEMPT_HEADER, b"%d" % context.attempt)]
    return board.send(HANDLED_TOPIC, departure, key=record.key, headers=headers)
