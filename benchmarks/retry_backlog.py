"""How soon the backlog of retry topics is gone: records fail at random under a steady load, and keys keep their order.

    python benchmarks/messaging.py --part retries

Whatever follows a failed record of its key waits for it, or goes behind it into the retry topic. The load ends, and it
is measured how long it takes until every record is handled: within twice the sum of the delays. Where a topic has three
replicas each write takes longer to be acknowledged: what is written one after the other piles up there first.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence

from results import Results

DELAYS_S = (0.3, 2.0)
RATE = 300
KEYS = 40
FAILING = 0.03
LOAD_S = 10.0
GIVE_UP_S = 120.0


def retries(results: Results, bootstrap: str, *, replicas: int = 1, seconds: float = LOAD_S, runs: int = 3) -> None:
    write_retries(results, [gone_after(bootstrap, seconds, replicas) for _ in range(runs)], replicas)


def write_retries(results: Results, seconds: Sequence[float], replicas: int = 1) -> None:
    what = "retry topics in the order of keys, backlog gone after the load"
    results.add(what if replicas == 1 else f"{what}, {replicas} replicas", "ottla", seconds, "s")


def gone_after(bootstrap: str, seconds: float, replicas: int = 1) -> float:
    """Seconds from the end of the load until all records are handled, each key's in order."""
    from ottla import App, Context, Json, Producer, RetryTopics
    from ottla.testing.topics import create_topic

    topic = f"bench-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, topic, partitions=4, replication_factor=replicas)
    app = App(topic, bootstrap_servers=bootstrap)
    handled: dict[str, list[int]] = defaultdict(list)
    chance, lock = random.Random(1), threading.Lock()

    @app.handler(topic, value=Json(), ordering="key", concurrency=8, retry_topics=RetryTopics(delays_s=DELAYS_S))
    def handle(value: list[int], context: Context) -> None:
        with lock:
            if context.attempt <= len(DELAYS_S) and chance.random() < FAILING:
                raise RuntimeError("it fails at random")
            handled[str(value[0])].append(value[1])

    thread = threading.Thread(target=app.run, kwargs={"handle_signals": False}, daemon=True)
    thread.start()
    records = round(seconds * RATE)
    try:
        with Producer(bootstrap, value=Json(), key=str) as producer:
            began_s = time.monotonic()
            for number in range(records):
                time.sleep(max(0.0, began_s + number / RATE - time.monotonic()))
                key = number % KEYS
                producer.send(topic, [key, number], key=str(key))
            producer.flush()
            ended_s = time.monotonic()
        while sum(map(len, handled.values())) < records and time.monotonic() < ended_s + GIVE_UP_S:
            time.sleep(0.01)
        took_s = time.monotonic() - ended_s
    finally:
        app.stop()
        thread.join(30)
    assert all(numbers == sorted(numbers) for numbers in handled.values()), "the order of a key was lost"
    assert sum(map(len, handled.values())) == records, "not all records came back"
    return took_s


__all__ = ["retries", "write_retries"]
