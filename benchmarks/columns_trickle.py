"""How long a single record takes to a handler of columns, beside the threaded shell's handler of records.

A record is sent when the one before it was handled: nothing is ever queued, and `linger_ms=0` waits for no second one.
The time runs from the call of `send` to the first line of the handler. Part of `columns.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pyarrow as pa
from columnar import create_topics
from results import Results

from ottla import App, Producer

WHAT = "a trickle, linger_ms=0, p50"
THREADS = "threads"
_WARM = 20
"""Records before the first that counts: connections are made, modules imported."""

_PATIENCE_S = 30.0


class Handled:
    """When the last record reached the handler."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._at_s = 0.0

    def now(self) -> None:
        self._at_s = time.perf_counter()
        self._event.set()

    def wait_ms(self, send: Callable[[], object]) -> float:
        self._event.clear()
        started_s = time.perf_counter()
        send()
        if not self._event.wait(_PATIENCE_S):
            raise RuntimeError(f"a record did not reach the handler within {_PATIENCE_S:g} s")
        return (self._at_s - started_s) * 1e3


def waits_of(servers: str, topic: str, *, in_columns: bool, records: int) -> float:
    """The median in milliseconds. Nothing else is written to the topic, and it has no records yet."""
    app, handled = App(topic, bootstrap_servers=servers), Handled()
    if in_columns:

        @app.handler(topic, columns=True, linger_ms=0)
        def of_columns(batch: pa.RecordBatch) -> None:
            handled.now()
    else:

        @app.handler(topic)
        def of_record(value: bytes) -> None:
            handled.now()

    running = threading.Thread(target=lambda: app.run(handle_signals=False))
    running.start()
    try:
        with Producer(servers, settings={"linger.ms": 0}) as producer:
            waits = [handled.wait_ms(lambda: producer.send(topic, b"x")) for _ in range(_WARM + records)]
    finally:
        app.stop()
        running.join()
    return sorted(waits[_WARM:])[records // 2]


def measure(results: Results, servers: str, *, rounds: int, records: int) -> None:
    """In turn, each time with a topic and a group of its own."""
    took: dict[str, list[float]] = {"ottla": [], THREADS: []}
    for number in range(rounds):
        for name, medians in took.items():
            topic = f"trickle-{name}-{number}"
            create_topics(servers, topic, partitions=1)
            medians.append(waits_of(servers, topic, in_columns=name == "ottla", records=records))
    write(results, took)


def write(results: Results, took: dict[str, list[float]]) -> None:
    for name, medians in took.items():
        results.add(WHAT, name, medians, "ms")
