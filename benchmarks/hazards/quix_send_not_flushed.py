"""A handler sends a result with a producer of its own and does not flush: the topic of the results is missing, or the
process is killed. How many records are committed, and how many results are there? The same with `to_topic`."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from typing import Any

from _kafka import committed, found, kafka, new_group, new_topic, per_partition, send

RECORDS = 2_000


def serve(bootstrap: str, topic: str, group: str, results: str, dies_at: int, way: str) -> None:
    from quixstreams import Application

    logging.disable(logging.CRITICAL)

    app = Application(
        broker_address=bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        commit_interval=0.05,
        auto_create_topics=False,
        loglevel="CRITICAL",
    )
    handled = 0
    producer = app.get_producer()

    def handle(value: Any) -> None:
        nonlocal handled
        if way == "producer":
            producer.produce(results, b"%d" % value)
        handled += 1
        if handled == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    frame = app.dataframe(app.topic(topic, value_deserializer="json")).update(handle)
    if way == "to_topic":
        frame.to_topic(app.topic(results, value_serializer="json"))
    app.run(timeout=20, count=RECORDS)


def measure(bootstrap: str, results: str, dies_at: int, way: str) -> tuple[int, int | None]:
    topic, group = new_topic(bootstrap), new_group()
    send(bootstrap, topic, [b"%d" % number for number in range(RECORDS)])
    arguments = (bootstrap, topic, group, results, dies_at, way)
    process = multiprocessing.get_context("spawn").Process(target=serve, args=arguments)
    process.start()
    process.join(90)
    process.kill()
    process.join()
    return committed(bootstrap, group, topic), process.exitcode


if __name__ == "__main__":
    with kafka("--set", "auto.create.topics.enable=false") as bootstrap:
        for way in ("producer", "to_topic"):
            offset, code = measure(bootstrap, "nowhere", 0, way)
            results = new_topic(bootstrap)
            at_kill, _ = measure(bootstrap, results, RECORDS // 2, way)
            found(
                "quixstreams",
                text=f"{way}: topic of the results missing: {offset} of {RECORDS} committed, exit code {code}; "
                f"killed after {RECORDS // 2}: {at_kill} committed, {sum(per_partition(bootstrap, results))} results",
            )
