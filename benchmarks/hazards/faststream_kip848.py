"""Does a subscriber start with `group.protocol=consumer` (KIP-848)?"""

from __future__ import annotations

import asyncio

from _faststream import broker, handler, run_until
from _kafka import found, kafka, new_group, new_topic, send

if __name__ == "__main__":
    with kafka() as bootstrap:
        topic = new_topic(bootstrap)
        send(bootstrap, topic, [b"1"])
        seen: list[int] = []

        async def handle(message: int) -> None:
            seen.append(message)

        async def run() -> None:
            running = broker("faststream[confluent]", bootstrap, config={"group.protocol": "consumer"})
            running.subscriber(topic, group_id=new_group(), auto_offset_reset="earliest")(handler(handle, int))
            await run_until(running, lambda: seen, 8)

        try:
            asyncio.run(run())
            text = f"started, {len(seen)} of 1 record handled"
        except Exception as error:
            text = f"did not start: {type(error).__name__}: {str(error)[:160]}"
        found("faststream", "confluent-kafka", text=f"faststream[confluent]: {text}")
