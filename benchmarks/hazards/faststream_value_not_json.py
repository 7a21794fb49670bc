"""Ten records, one is not JSON, the handler wants an int. What is handled, committed, and kept of the bad one?"""

from __future__ import annotations

import asyncio

from _faststream import CLIENTS, broker, handler, run_until
from _kafka import committed, found, kafka, new_group, new_topic, send


def measure(bootstrap: str, client: str) -> tuple[int, int]:
    topic, group = new_topic(bootstrap), new_group()
    send(bootstrap, topic, [b"%d" % number if number != 5 else b"{broken" for number in range(10)])
    seen: list[int] = []

    async def handle(message: int) -> None:
        seen.append(message)

    async def run() -> None:
        running = broker(client, bootstrap)
        running.subscriber(topic, group_id=group, auto_offset_reset="earliest")(handler(handle, int))
        await run_until(running, lambda: len(seen) >= 10, 5)

    asyncio.run(run())
    return len(seen), committed(bootstrap, group, topic)


if __name__ == "__main__":
    with kafka() as bootstrap:
        parts = []
        for client in CLIENTS:
            handled, offset = measure(bootstrap, client)
            parts.append(f"{client} default: {handled} of 10 handled, {offset} of 10 committed")
        found("faststream", text="; ".join(parts))
