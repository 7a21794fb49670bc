"""Handlers of 50 ms with max_workers; a graceful stop in the middle. Are records committed that nobody handled?"""

from __future__ import annotations

import asyncio

from _faststream import CLIENTS, broker, handler, run_until
from _kafka import committed, found, kafka, new_group, new_topic, send


def measure(bootstrap: str, client: str) -> tuple[int, int, int]:
    topic, group = new_topic(bootstrap), new_group()
    send(bootstrap, topic, [b"%d" % number for number in range(200)])
    handled: set[int] = set()

    async def handle(message: int) -> None:
        await asyncio.sleep(0.05)
        handled.add(message)

    async def run() -> None:
        from faststream import AckPolicy

        running = broker(client, bootstrap)
        options = {"auto_offset_reset": "earliest", "max_workers": 4, "ack_policy": AckPolicy.ACK_FIRST}
        running.subscriber(topic, group_id=group, **options)(handler(handle, int))
        await run_until(running, lambda: len(handled) >= 20, 10)

    asyncio.run(run())
    offset = committed(bootstrap, group, topic)
    return len(handled), offset, len(set(range(offset)) - handled)


if __name__ == "__main__":
    with kafka() as bootstrap:
        parts = []
        for client in CLIENTS:
            handled, offset, lost = measure(bootstrap, client)
            parts.append(f"{client}: {handled} handled, {offset} committed, {lost} of the committed never handled")
        found("faststream", text="; ".join(parts))
