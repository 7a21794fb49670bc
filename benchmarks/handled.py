"""Records that one handler handles without a broker: the session hands them out, the handler gets them, the session
settles them. All in one thread, so that its instructions can be counted and its time is its CPU time.

    python benchmarks/handled.py count JSON 200     # feeds so many batches of what was prepared: for cachegrind
    python benchmarks/handled.py time 200           # prints seconds of CPU per record of each handler, in turns

An older checkout of `src` in PYTHONPATH is measured by the same code, as far as it has what a handler uses.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from goals_of_handlers import COSTING

from ottla import App, Avro, Json
from ottla.app.app import declarations_of
from ottla.consumer.model import events
from ottla.consumer.model.effects import Dispatch
from ottla.consumer.session import Session
from ottla.records import Header, Record, TopicPartition
from ottla.serdes import SchemaRegistry, SerdeContext

BATCH = 512
MADE = 120
"""Batches that are made whose instructions are counted, however many of them are handled."""
BATCH_MS = 5
TOPIC = "orders"
PARTITION = TopicPartition(TOPIC, 0)
TYPES = (("order.created", 7), ("order.shipped", 8))

BYTES, JSON, AVRO = "bytes", "JSON", "Avro"
MAX_RATE, HEADER, TEXT, NUMBER, SCHEMA = COSTING
PLAIN = {MAX_RATE: JSON, HEADER: JSON, TEXT: JSON, NUMBER: JSON, SCHEMA: AVRO}
"""The handler beside which each is measured: it decodes the same values."""


@dataclass
class Created:
    """The value of both types: two handlers decode it, so their bytes cost the same."""

    id: int
    name: str


@dataclass
class Shipped:
    """The same under another name, which its schema has."""

    id: int
    name: str


def on_created(order: Created) -> None:
    """Do nothing."""


def on_shipped(order: Created) -> None:
    """Do nothing."""


def on_bytes(value: bytes) -> None:
    """Do nothing."""


def declare(name: str, registry: str) -> App:
    """Return a service with this one handler, or one for each of two types."""
    app = App("handled")
    if name == BYTES:
        app.handler(TOPIC)(on_bytes)
    elif name == AVRO:
        app.handler(TOPIC, value=Avro(Created, registry=registry))(on_created)
    elif name == JSON:
        app.handler(TOPIC, value=Json(Created))(on_created)
    elif name == MAX_RATE:
        from ottla import Rate

        app.handler(TOPIC, value=Json(Created), max_rate=Rate(1e9))(on_created)
    else:
        declare_types(app, name, registry)
    return app


def declare_types(app: App, name: str, registry: str) -> None:
    from ottla import SchemaName, TagField, TagHeader

    by = {HEADER: TagHeader("type"), TEXT: TagField("type"), NUMBER: TagField("number")}
    topic = app.topic(TOPIC, by=by.get(name) or SchemaName(registry))
    if name == SCHEMA:
        topic.on("Created", value=Avro(Created, registry=registry))(on_created)
        topic.on("Shipped", value=Avro(Shipped, registry=registry))(lambda order: None)
        return
    created, shipped = (str(number) if name == NUMBER else text for text, number in TYPES)
    topic.on(created, value=Json(Created))(on_created)
    topic.on(shipped, value=Json(Created))(on_shipped)


def values_of(name: str, registry: str) -> tuple[bytes | None, bytes | None]:
    """Return a value of each of the two types."""
    if PLAIN.get(name, name) != AVRO:
        texts = [json.dumps({"type": text, "number": number, "id": 12_345, "name": "tea"}) for text, number in TYPES]
        return texts[0].encode(), texts[1].encode()
    client, context = SchemaRegistry(registry), SerdeContext(TOPIC, "value")
    created, shipped = (
        Avro(kind, registry=client, subject=lambda context, name: str(name)).serialize(kind(12_345, "tea"), context)
        for kind in (Created, Shipped)
    )
    return created, created if name == AVRO else shipped


class Handled:
    """One handler with its session, and records for it, of the two types in turn."""

    def __init__(self, name: str, registry: str) -> None:
        [route] = declarations_of(declare(name, registry)).routes
        self._deliver: Callable[[Any], Any] = route.invoker([], {}).deliver
        self._session = Session([route.plan()], group="handled", now_ms=0, random=Random(1))
        self._session.step(events.Assigned([PARTITION], {PARTITION: (0, "")}), 0)
        self._now_ms = self._offset = 0
        self._values = values_of(name, registry)
        self._headers: list[list[Header]] = [[("type", text.encode())] for text, _ in TYPES]

    def batch(self) -> list[Record[Any]]:
        """Return the next records, as the client makes them."""
        offsets = range(self._offset, self._offset + BATCH)
        self._offset += BATCH
        values, headers = self._values, self._headers
        return [Record(TOPIC, 0, at, 0, None, values[at % 2], headers[at % 2], None, values[at % 2]) for at in offsets]

    def handle(self, records: list[Record[Any]]) -> None:
        """Hand out the records, call the handler with each and settle them."""
        self._now_ms += BATCH_MS
        effects = self._session.step(events.Fetched(PARTITION, records, BATCH * 60), self._now_ms)
        handled = 0
        for effect in effects:  # it grows: a run that is finished makes room for the next
            if isinstance(effect, Dispatch):
                handled += len(effect.run.records)
                effects += self._session.step(events.RunFinished(effect.run, self._deliver(effect.run)), self._now_ms)
        assert handled == BATCH, f"{handled} records were handed out"


def count(name: str, batches: int) -> dict[str, float]:
    """Handle so many batches of those that are made."""
    handler = Handled(name, "")
    gc.disable()
    for records in [handler.batch() for _ in range(MADE)][:batches]:
        handler.handle(records)
    return {}


def times(names: Sequence[str], batches: int, registry: str) -> dict[str, float]:
    """Return seconds of CPU per record, in turns. The tenth percentile: what it costs without others in the caches."""
    handlers = {name: Handled(name, registry) for name in names}
    taken: dict[str, list[float]] = {name: [] for name in names}
    gc.disable()
    for _ in range(batches):
        for name, handler in handlers.items():
            records = handler.batch()
            started_s = time.thread_time()
            handler.handle(records)
            taken[name].append((time.thread_time() - started_s) / BATCH)
    return {name: sorted(each)[batches // 10] for name, each in taken.items()}


def main() -> None:
    match sys.argv[1:]:
        case "count", name, batches:
            found = count(name, int(batches))
        case "time", batches, registry:
            found = times((JSON, AVRO, *PLAIN), int(batches), registry)
        case _:
            sys.exit(__doc__)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
