"""A value_deserializer and one record that is not JSON: does the consumer ever get past it?"""

from __future__ import annotations

import asyncio
import json

from _kafka import found, kafka, new_group, new_topic, send


async def measure(bootstrap: str, topic: str) -> tuple[int, int, int]:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=new_group(),
        auto_offset_reset="earliest",
        value_deserializer=json.loads,
    )
    await consumer.start()
    handled = raised = 0
    positions = set()
    for _ in range(200):
        try:
            await asyncio.wait_for(consumer.getone(), 5)
            handled += 1
        except ValueError:
            raised += 1
            (partition,) = consumer.assignment()
            positions.add(await consumer.position(partition))
        except TimeoutError:
            break
    await consumer.stop()
    return handled, raised, len(positions)


if __name__ == "__main__":
    with kafka() as bootstrap:
        topic = new_topic(bootstrap)
        send(bootstrap, topic, [b"%d" % number if number != 5 else b"{broken" for number in range(10)])
        handled, raised, positions = asyncio.run(measure(bootstrap, topic))
        found(
            "aiokafka",
            text=f"200 calls of getone: {handled} records, then {raised} times the same error, at {positions} position",
        )
