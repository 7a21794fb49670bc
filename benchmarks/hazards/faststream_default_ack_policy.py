"""Every second record's handler raises. How many records were handled, and how many are committed after a stop?"""

from __future__ import annotations

import asyncio

from _faststream import CLIENTS, broker, handler, run_until
from _kafka import committed, found, kafka, new_group, new_topic, send


def measure(bootstrap: str, client: str, policy: str | None) -> tuple[int, int]:
    from faststream import AckPolicy

    topic, group = new_topic(bootstrap), new_group()
    send(bootstrap, topic, [b"%d" % number for number in range(10)])
    seen: list[int] = []
    handled: list[int] = []

    async def handle(message: int) -> None:
        seen.append(message)
        if message % 2:
            raise RuntimeError("the database is away")
        handled.append(message)

    async def run() -> None:
        running = broker(client, bootstrap)
        options = {} if policy is None else {"ack_policy": AckPolicy[policy]}
        running.subscriber(topic, group_id=group, auto_offset_reset="earliest", **options)(handler(handle, int))
        await run_until(running, lambda: len(seen) >= 10, 10)

    asyncio.run(run())
    return len(handled), committed(bootstrap, group, topic)


if __name__ == "__main__":
    with kafka() as bootstrap:
        parts = []
        for client in CLIENTS:
            for policy in (None, "ACK", "REJECT_ON_ERROR"):
                handled, offset = measure(bootstrap, client, policy)
                parts.append(f"{client} {policy or 'default'}: {handled} of 10 handled, {offset} of 10 committed")
        found("faststream", text="; ".join(parts))
