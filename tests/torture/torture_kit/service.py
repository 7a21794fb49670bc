"""One service of the chain: takes a record, fails as its fate says, and sends it on.

`python -m ottla run torture_kit.service:app [--asyncio]`; what it is to be is in the environment variable
`TORTURE_SERVICE`, as JSON. The same module serves all shells: handlers are `async def` on an event loop, and get Arrow
batches over the wire client. A handler of columns sends what it made, or (a batch) returns it as rows for `to=`.
"""

from __future__ import annotations

import asyncio
import faulthandler
import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ottla import (
    App,
    AsyncProducer,
    CommitPolicy,
    Dead,
    InvalidRecord,
    Json,
    Outcomes,
    Priorities,
    Producer,
    RetryPolicy,
    RetryTopics,
)
from ottla.failures.expiry import expires_at_of
from ottla.telemetry import Hooks
from torture_kit.journal import Journal
from torture_kit.plan import SCHEDULE, URGENT, URGENT_PARTITIONS, Fate, fate_of, work_s

ME: dict[str, Any] = json.loads(os.environ["TORTURE_SERVICE"])
JOURNAL = Journal(ME["journal"])
faulthandler.register(signal.SIGUSR1, all_threads=True)
_numbers = itertools.count(1)
EXPIRED_SLACK_MS = 500
"""Between the SDK's look at the clock and the handler's own, on a loaded machine."""


class Flaky(Exception):
    """What a handler raises that would succeed later."""


class Told(Hooks):
    """Writes the consumer's events into the journal."""

    def event(self, *, group: str, event: str) -> None:
        if not event.startswith("record_"):
            JOURNAL.event(event)


app = App(
    ME["group"],
    bootstrap_servers=ME["servers"],
    dead_letter_topic=ME["dead_letter_topic"],
    retry=RetryPolicy(max_attempts=4, initial_s=0.005, max_s=0.02),
    commit=CommitPolicy(every_s=ME["commit_every_s"]),
    drain_s=ME["drain_s"],
    settings=ME["settings"],
    hooks=Told(),
    scheduler=SCHEDULE if ME["has_wishes"] else False,
)


def partition_of(record: Any) -> int:
    return int(record.partition) + URGENT_PARTITIONS * record.topic.endswith(URGENT)


def check_expiry(*records: Any) -> None:
    """Nobody gets a record that has expired."""
    now_ms = time.time() * 1_000
    for record in records:
        expires_ms = expires_at_of(record.headers or ())
        if expires_ms is not None and now_ms > expires_ms + EXPIRED_SLACK_MS:
            JOURNAL.event(
                f"expired_{now_ms - expires_ms:.0f}_ms_before:{record.topic}-{record.partition}@{record.offset}"
            )


def transformed(record: Any, attempt: int) -> bytes:
    """The record to send on, or the failure that is its fate."""
    value = record.value
    key, sequence = value["key"], value["sequence"]
    send_id = f"{ME['member']}:{next(_numbers)}"
    JOURNAL.delivered(partition_of(record), record.offset, attempt, send_id, key, sequence)
    fate, failures = fate_of(ME["seed"], ME["stage"], key, sequence)
    is_failing = fate in (Fate.INVALID, Fate.BROKEN) or (fate is Fate.FLAKY and attempt <= failures)
    if is_failing:
        JOURNAL.failed(partition_of(record), record.offset)
        if fate is Fate.INVALID:
            raise InvalidRecord(f"{key} {sequence} breaks a rule")
        raise Flaky(f"{key} {sequence} at delivery {attempt}")
    return json.dumps({**value, "send_id": send_id, "by": ME["stage"]}).encode()


def all_transformed(records: list[Any], attempt: int) -> list[bytes]:
    """A batch: one failing record fails it whole, before anything was sent."""
    made: list[bytes] = []
    for index, record in enumerate(records):
        try:
            made.append(transformed(record, attempt))
        except Exception:
            for earlier in records[:index]:
                JOURNAL.failed(partition_of(earlier), earlier.offset)
            raise
    return made


def work_of(*records: Any) -> float:
    """How long the work on these takes. They are with their handler now."""
    check_expiry(*records)
    values = [record.value for record in records]
    return sum(work_s(ME["seed"], ME["stage"], value["key"], value["sequence"]) for value in values)


@dataclass
class Value:
    """What the chain's records hold, as columns need to know it."""

    key: str
    sequence: int
    send_id: str
    by: str | None = None


@dataclass
class Row:
    """A row of a batch, with what is read of a record here."""

    value: dict[str, Any]
    topic: str
    partition: int
    offset: int
    raw_key: bytes
    headers: list[tuple[str, bytes | None]]


def rows_of(batch: pa.RecordBatch, keys: pa.Array, offsets: pa.Array, headers: pa.Array, context: Any) -> list[Row]:
    topic, partition = context.topic_partition
    return [
        Row(value, topic, partition, offset, key, [(header["key"], header["value"]) for header in own])
        for value, key, offset, own in zip(
            batch.to_pylist(), keys.to_pylist(), offsets.to_pylist(), headers.to_pylist(), strict=True
        )
    ]


is_columns = ME["shell"] == "columns"
source: Any = Priorities(ME["source"], ("urgent", "normal")) if ME["is_urgent_first"] else ME["source"]
declared = app.handler(
    source,
    on_expired=Dead("too old") if ME["has_wishes"] else None,
    value=Json(Value) if is_columns else Json(),
    ordering="partition" if is_columns else ME["ordering"],
    concurrency=ME["concurrency"],
    name=ME["stage"],
    retry_topics=RetryTopics(delays_s=tuple(ME["retry_delays_s"])) if ME["retry_delays_s"] else None,
    **(
        {"columns": True, "max_batch": 40, "to": ME["target"] if ME["is_batch"] else None}
        if is_columns
        else {"batch": ME["is_batch"]}
    ),
)

if ME["shell"] in ("threads", "columns"):

    @app.on_start
    def open_producer() -> None:
        app.state["producer"] = Producer(ME["servers"], settings=ME["producer_settings"])

    @app.on_stop
    def close_producer() -> None:
        app.state["producer"].close()

    if is_columns and ME["is_batch"]:

        @declared
        def rows_made(
            batch: pa.RecordBatch, keys: pa.Array, offsets: pa.Array, headers: pa.Array, context: Any
        ) -> Iterator[Any]:
            rows = rows_of(batch, keys, offsets, headers, context)
            time.sleep(work_of(*rows))
            fates = [fate_of(ME["seed"], ME["stage"], row.value["key"], row.value["sequence"])[0] for row in rows]
            invalid = [fate is Fate.INVALID for fate in fates]
            good = [row for row, is_invalid in zip(rows, invalid, strict=True) if not is_invalid]
            made = all_transformed(good, context.attempt)
            yield pa.record_batch({"key": [row.raw_key for row in good], "value": made})
            return Outcomes((invalid, Dead("it breaks a rule", kind="invalid")))

    elif is_columns:

        @declared
        def handle_columns(
            batch: pa.RecordBatch, keys: pa.Array, offsets: pa.Array, headers: pa.Array, context: Any
        ) -> list[Any]:
            send = app.state["producer"].send
            rows = rows_of(batch, keys, offsets, headers, context)
            time.sleep(work_of(*rows))
            made = all_transformed(rows, context.attempt)
            return [send(ME["target"], value, key=row.raw_key) for row, value in zip(rows, made, strict=True)]

    elif ME["is_batch"]:

        @declared
        def handle_batch(records: list[Any], context: Any) -> list[Any]:
            send = app.state["producer"].send
            time.sleep(work_of(*records))
            made = all_transformed(records, context.attempt)
            return [send(ME["target"], value, key=record.raw_key) for record, value in zip(records, made, strict=True)]
    else:

        @declared
        def handle(record: Any, context: Any) -> Any:
            time.sleep(work_of(record))
            value = transformed(record, context.attempt)
            return app.state["producer"].send(ME["target"], value, key=record.raw_key)

else:

    @app.on_start
    async def open_async_producer() -> None:
        app.state["producer"] = AsyncProducer(ME["servers"], settings=ME["producer_settings"])
        await app.state["producer"].start()

    @app.on_stop
    async def close_async_producer() -> None:
        await app.state["producer"].close()

    if ME["is_batch"]:

        @declared
        async def handle_batch_async(records: list[Any], context: Any) -> list[Any]:
            send = app.state["producer"].send
            await asyncio.sleep(work_of(*records))
            made = all_transformed(records, context.attempt)
            return [send(ME["target"], value, key=record.raw_key) for record, value in zip(records, made, strict=True)]
    else:

        @declared
        async def handle_async(record: Any, context: Any) -> Any:
            await asyncio.sleep(work_of(record))
            value = transformed(record, context.attempt)
            return app.state["producer"].send(ME["target"], value, key=record.raw_key)


JOURNAL.event("process_started")
