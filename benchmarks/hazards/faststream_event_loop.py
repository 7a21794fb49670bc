"""A backlog of 20,000 records and a handler that never waits. How long is another task of the loop kept waiting?"""

from __future__ import annotations

import asyncio
import time

from _faststream import CLIENTS, broker, handler
from _kafka import found, kafka, new_group, new_topic, send

RECORDS = 20_000


def measure(bootstrap: str, client: str, topic: str) -> tuple[float, int]:
    seen = 0

    async def handle(message: int) -> None:
        nonlocal seen
        seen += 1

    async def run() -> float:
        running = broker(client, bootstrap)
        running.subscriber(topic, group_id=new_group(), auto_offset_reset="earliest")(handler(handle, int))
        await running.start()
        longest, before = 0.0, time.perf_counter()
        deadline = before + 20
        while seen < RECORDS and before < deadline:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, before = max(longest, now - before), now
        await running.stop()
        return longest

    longest = asyncio.run(run())
    return longest, seen


if __name__ == "__main__":
    with kafka() as bootstrap:
        topic = new_topic(bootstrap)
        send(bootstrap, topic, [b"%d" % number for number in range(RECORDS)])
        parts = []
        for client in CLIENTS:
            longest, seen = measure(bootstrap, client, topic)
            parts.append(f"{client}: a task that sleeps 1 ms waited {longest * 1_000:.0f} ms at worst ({seen} records)")
        found("faststream", text="; ".join(parts))
