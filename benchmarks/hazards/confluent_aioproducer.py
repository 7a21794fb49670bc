"""`AIOProducer` with its defaults: a steady trickle without awaiting the results, and one send that is awaited."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import time
from typing import Any

from _kafka import found, kafka, new_topic, per_partition

RECORDS = 200


def producer_class() -> Any:
    """It moved: experimental until 2.12, public since."""
    for name in ("confluent_kafka.aio", "confluent_kafka.experimental.aio"):
        try:
            return importlib.import_module(name).AIOProducer
        except ImportError:
            continue
    raise SystemExit("this confluent-kafka has no AIOProducer")


async def measure(bootstrap: str) -> str:
    make = producer_class()
    trickle, single = new_topic(bootstrap), new_topic(bootstrap)
    producer = make({"bootstrap.servers": bootstrap})
    begun = time.perf_counter()
    for number in range(RECORDS):
        await producer.produce(trickle, value=b"%d" % number)
        await asyncio.sleep(0.05)
    seconds = time.perf_counter() - begun
    arrived = (await asyncio.to_thread(per_partition, bootstrap, trickle))[0]

    producer = make({"bootstrap.servers": bootstrap})
    begun = time.perf_counter()
    waited = await answer(producer.produce(single, value=b"one"))
    headers = await answer(producer.produce(single, value=b"two", headers=[("a", b"b")]))
    return (
        f"{module_of(make)}: after {seconds:.0f} s of one record per 50 ms {arrived} of {RECORDS} had arrived; "
        f"one awaited send: {waited}; one with headers: {headers}"
    )


async def answer(sending: Any) -> str:
    begun = time.perf_counter()
    try:
        await asyncio.wait_for(await sending, 10)
    except TimeoutError:
        return "no answer in 10 s"
    except Exception as error:
        return f"{type(error).__name__}"
    return f"{time.perf_counter() - begun:.2f} s"


def module_of(kind: type) -> str:
    return inspect.getmodule(kind).__name__.split("._")[0]  # type: ignore[union-attr]


if __name__ == "__main__":
    with kafka() as bootstrap:
        loop = asyncio.new_event_loop()
        found("confluent-kafka", text=loop.run_until_complete(measure(bootstrap)))
    os._exit(0)  # the producers' threads do not end by themselves
