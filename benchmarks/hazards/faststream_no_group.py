"""Two services subscribe to one topic and name no group. Does each see the ten records?"""

from __future__ import annotations

import asyncio
from typing import Any

from _faststream import CLIENTS, broker, handler
from _kafka import found, kafka, new_topic, send


def measure(bootstrap: str, client: str) -> tuple[int, int]:
    topic = new_topic(bootstrap, 2)
    seen: dict[str, set[int]] = {"billing": set(), "shipping": set()}

    def handler_of(service: str) -> Any:
        async def handle(message: int) -> None:
            seen[service].add(message)

        return handler(handle, int)

    async def run() -> None:
        running = []
        for service in seen:
            each = broker(client, bootstrap)
            each.subscriber(topic, auto_offset_reset="earliest")(handler_of(service))
            running.append(each)
            await each.start()
        await asyncio.sleep(5)  # both have joined
        for partition in range(2):
            await asyncio.to_thread(
                send, bootstrap, topic, [b"%d" % (partition * 5 + number) for number in range(5)], partition=partition
            )
        await asyncio.sleep(4)
        for each in running:
            await each.stop()

    asyncio.run(run())
    return len(seen["billing"]), len(seen["shipping"])


if __name__ == "__main__":
    with kafka() as bootstrap:
        parts = []
        for client in CLIENTS:
            billing, shipping = measure(bootstrap, client)
            parts.append(f"{client}: of 10 records one service saw {billing}, the other {shipping}")
        found("faststream", text="; ".join(parts))
