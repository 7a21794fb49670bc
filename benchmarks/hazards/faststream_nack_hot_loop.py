"""One record always fails, nine behind it are good; NACK_ON_ERROR. What happens in five seconds?"""

from __future__ import annotations

import asyncio

from _faststream import CLIENTS, broker, handler, run_until
from _kafka import found, kafka, new_group, new_topic, send


def measure(bootstrap: str, client: str) -> tuple[int, int]:
    from faststream import AckPolicy

    topic, group = new_topic(bootstrap), new_group()
    send(bootstrap, topic, [b"%d" % number for number in range(10)])
    attempts = 0
    handled: set[int] = set()

    async def handle(message: int) -> None:
        nonlocal attempts
        if message == 0:
            attempts += 1
            raise RuntimeError("the database is away")
        handled.add(message)

    async def run() -> None:
        running = broker(client, bootstrap)
        options = {"ack_policy": AckPolicy.NACK_ON_ERROR, "auto_offset_reset": "earliest"}
        running.subscriber(topic, group_id=group, **options)(handler(handle, int))
        await run_until(running, lambda: False, 5)

    asyncio.run(run())
    return attempts, len(handled)


if __name__ == "__main__":
    with kafka() as bootstrap:
        parts = []
        for client in CLIENTS:
            attempts, handled = measure(bootstrap, client)
            parts.append(
                f"{client}: {attempts} attempts at the failing record in 5 s, {handled} of 9 behind it handled"
            )
        found("faststream", text="; ".join(parts))
