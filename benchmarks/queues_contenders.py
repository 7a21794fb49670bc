"""The contenders of `queues.py`: each takes the jobs of a topic, and returns how many it took in a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from goals_of_queues import ASYNCIO, LOOP, PLAIN, PREVIEW, PREVIEW_BY_JOB, THREADS

from ottla import App, Queue

CONCURRENCY = 64


def handle(value: bytes | None) -> None:
    """Do nothing: what a loop of its own calls with each job."""


def of_app(servers: str, topic: str, jobs: int) -> float:
    app = App(f"{topic}-app", bootstrap_servers=servers, dead_letter_topic=f"{topic}.dead")
    times: list[float] = []

    @app.queue(topic, concurrency=CONCURRENCY)
    def on_job(value: bytes) -> None:
        times.append(time.perf_counter())
        if len(times) == jobs:
            app.stop()

    app.run(handle_signals=False)
    return jobs / (times[-1] - times[0])


def of_async_app(servers: str, topic: str, jobs: int) -> float:
    app = App(f"{topic}-async", bootstrap_servers=servers, dead_letter_topic=f"{topic}.dead")
    times: list[float] = []

    @app.queue(topic, concurrency=CONCURRENCY)
    async def on_job(value: bytes) -> None:
        times.append(time.perf_counter())
        if len(times) == jobs:
            app.stop()

    asyncio.run(app.serve(handle_signals=False))
    return jobs / (times[-1] - times[0])


def of_queue(servers: str, topic: str, jobs: int) -> float:
    with Queue(topic, group=f"{topic}-queue", bootstrap_servers=servers, concurrency=CONCURRENCY) as queue:
        first = 0.0
        for count, job in enumerate(queue, start=1):
            first = first or time.perf_counter()
            job.accept()
            if count == jobs:
                break
        return jobs / (time.perf_counter() - first)


def of_preview(servers: str, topic: str, jobs: int, *, is_by_job: bool = False) -> float:
    from confluent_kafka import ShareConsumer

    group = f"{topic}-preview"
    with Queue(topic, group=group, bootstrap_servers=servers):  # sets where the group starts
        pass
    consumer = ShareConsumer(
        {"bootstrap.servers": servers, "group.id": group, "share.acknowledgement.mode": "explicit"}
    )
    consumer.subscribe([topic])
    first, count = 0.0, 0
    while count < jobs:
        for message in consumer.poll(1.0):
            if message.error() is not None:
                continue
            first = first or time.perf_counter()
            handle(message.value())
            consumer.acknowledge(message)
            count += 1
            if is_by_job:
                consumer.commit_sync()
                if count == jobs:
                    break
        consumer.commit_sync()  # as the others, whose jobs are settled at the broker
    taken = time.perf_counter() - first
    consumer.close()
    return jobs / taken


def of_preview_by_job(servers: str, topic: str, jobs: int) -> float:
    return of_preview(servers, topic, jobs, is_by_job=True)


def of_plain(servers: str, topic: str, jobs: int) -> float:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": servers, "group.id": f"{topic}-plain", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    first, count = 0.0, 0
    while count < jobs:
        for _ in consumer.consume(500, 1.0):
            first = first or time.perf_counter()
            count += 1
    taken = time.perf_counter() - first
    consumer.close()
    return jobs / taken


CONTENDERS: dict[str, tuple[str, Callable[[str, str, int], float]]] = {
    THREADS: ("ottla", of_app),
    ASYNCIO: ("ottla", of_async_app),
    LOOP: ("ottla", of_queue),
    PREVIEW: (PREVIEW, of_preview),
    PREVIEW_BY_JOB: (PREVIEW_BY_JOB, of_preview_by_job),
    PLAIN: (PLAIN, of_plain),
}
