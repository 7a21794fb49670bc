"""What sends and handlers take that use nothing of messages that expire, priorities and delays: now, and in an older
checkout of `src`.

Each measurement is a process of its own, so that another checkout is measured by the same code: `python unused.py send`
prints seconds of the processor per record.

- `send`: the thread that sends, into a client that is its own broker.
- `handle`: the thread that hands records to a handler which does nothing, the call alone.
- `service`: a whole service whose handler does nothing, client and all, from its first thousands to its last record.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from results import Results

VALUE = b"x" * 100
HEADERS = (("a", b"1"), ("b", b"2"), ("c", b"3"))
WARM = 2_000
"""Records that a service has handled before it is measured."""
SERVICE_RECORDS = 400_000
"""What the client has fetched before it is measured, or after, is a small part of so many."""
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def tenth(values: list[float]) -> float:
    """Caches are others' too: what it costs without them."""
    return sorted(values)[len(values) // 10]


def send(records: int) -> dict[str, float]:
    from ottla import Producer

    producer: Any = Producer("localhost:9092", settings={"test.mock.num.brokers": 1, "buffer.memory": 1 << 30})
    for _ in range(1_000):
        producer.send("t", VALUE)
    producer.flush()
    times = []
    for _ in range(records // 500):
        started_s = time.thread_time()
        for _ in range(500):
            producer.send("t", VALUE)
        times.append((time.thread_time() - started_s) / 500)
        producer.flush()
    producer.close()
    return {"send": tenth(times)}


def handle(records: int) -> dict[str, float]:
    from random import Random

    from ottla import App
    from ottla.consumer.model.run import Run
    from ottla.records import Record, TopicPartition

    try:
        from ottla.app.app import declarations_of
    except ImportError:  # an older checkout
        declarations_of = None  # type: ignore[assignment]
    app = App("g")

    @app.handler("t")
    def handle(value: bytes) -> None:
        return

    routes: Any = declarations_of(app).routes if declarations_of is not None else app.routes  # type: ignore[attr-defined]
    invoker = routes[0].invoker([], {})
    random = Random(1)
    found = {}
    for name, headers in (("handle", None), ("handle, 3 headers", list(HEADERS))):
        batch = [Record("t", 0, offset, 0, None, VALUE, headers, None, VALUE) for offset in range(128)]  # type: ignore[arg-type]
        random.shuffle(batch)
        times = []
        for _ in range(records // 128):
            run = Run(
                topic_partition=TopicPartition("t", 0), epoch=1, route="g", records=batch, attempt=1, started_ms=0
            )
            started_s = time.thread_time()
            invoker.deliver(run)
            times.append((time.thread_time() - started_s) / 128)
        found[name] = tenth(times)
    return found


def service(records: int, *, bootstrap: str, topic: str, name: str) -> dict[str, float]:
    from ottla import App, configure_logging

    configure_logging(level="error")
    app = App(f"unused-{uuid.uuid4().hex}", bootstrap_servers=bootstrap)
    handled = 0
    at_s = [0.0, 0.0]

    @app.handler(topic)
    def handle(value: bytes) -> None:
        nonlocal handled
        handled += 1
        if handled == WARM:
            at_s[0] = time.process_time()
        elif handled == records:
            at_s[1] = time.process_time()
            threading.Thread(target=app.stop).start()

    app.run()
    return {name: (at_s[1] - at_s[0]) / (records - WARM)}


def unused(results: Results, bootstrap: str, *, records: int, runs: int, against: str | None) -> None:
    places = {"now": ROOT / "src"} | ({} if against is None else {"before": Path(against).resolve()})
    found: dict[str, list[dict[str, float]]] = {name: [] for name in places}
    topics = {"service": fill(bootstrap, ()), "service, 3 headers": fill(bootstrap, HEADERS)}
    for _ in range(runs):
        for name, place in places.items():
            figures = {**measured(place, "send", records), **measured(place, "handle", records)}
            for what, topic in topics.items():
                figures |= measured(place, "service", SERVICE_RECORDS, bootstrap, topic, what)
            found[name].append(figures)
    for what in found["now"][0]:
        for name, each in found.items():
            results.add(f"not used: {what}", name, [run[what] * 1e6 for run in each], "µs")


def fill(bootstrap: str, headers: tuple[tuple[str, bytes], ...]) -> str:
    """A topic with what a service reads."""
    from ottla import Producer
    from ottla.testing.topics import create_topic

    topic = f"unused-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, topic, partitions=1)
    with Producer(bootstrap) as producer:
        producer.send_many(topic, ((VALUE, None, headers) for _ in range(SERVICE_RECORDS))).result()
    return topic


def measured(place: Path, *arguments: Any) -> dict[str, float]:
    command = [sys.executable, __file__, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(place)}
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    figures: dict[str, float] = json.loads(said.splitlines()[-1])
    return figures


def main() -> None:
    kind, records, *more = sys.argv[1:]
    measure: dict[str, Callable[[], dict[str, float]]] = {
        "send": lambda: send(int(records)),
        "handle": lambda: handle(int(records)),
        "service": lambda: service(int(records), bootstrap=more[0], topic=more[1], name=more[2]),
    }
    print(json.dumps(measure[kind]()))


if __name__ == "__main__":
    main()
