"""One service of the chain: takes a record, fails as its fate says, and sends it on.

`python -m ottla run torture_kit.service:app [--asyncio]`; what it is to be is in the environment variable
`TORTURE_SERVICE`, as JSON. The same module serves both shells: handlers are `async def` on an event loop.
"""

from __future__ import annotations

import asyncio
import faulthandler
import itertools
import json
import os
import signal
import time
from typing import Any

from ottla import (
    App,
    AsyncProducer,
    CommitPolicy,
    Dead,
    InvalidRecord,
    Json,
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


source: Any = Priorities(ME["source"], ("urgent", "normal")) if ME["is_urgent_first"] else ME["source"]
declared = app.handler(
    source,
    on_expired=Dead("too old") if ME["has_wishes"] else None,
    value=Json(),
    ordering=ME["ordering"],
    concurrency=ME["concurrency"],
    batch=ME["is_batch"],
    name=ME["stage"],
    retry_topics=RetryTopics(delays_s=tuple(ME["retry_delays_s"])) if ME["retry_delays_s"] else None,
)

if ME["shell"] == "threads":

    @app.on_start
    def open_producer() -> None:
        app.state["producer"] = Producer(ME["servers"], settings=ME["producer_settings"])

    @app.on_stop
    def close_producer() -> None:
        app.state["producer"].close()

    if ME["is_batch"]:

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
