"""Two consumers are started with one `group.instance.id`, by mistake: does either of them say so?"""

from __future__ import annotations

import asyncio

from _kafka import found, kafka, new_group, new_topic

SECONDS = 20


async def measure(bootstrap: str, topic: str) -> tuple[int, int]:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

    group, taken, ended = new_group(), 0, 0

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: set[object]) -> None:
            nonlocal taken
            taken += bool(revoked)

        async def on_partitions_assigned(self, assigned: set[object]) -> None:
            return

    async def member() -> None:
        nonlocal ended
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, group_instance_id="till-1")
        await consumer.start()
        consumer.subscribe([topic], listener=Listener())
        try:
            async with asyncio.timeout(SECONDS):
                await consumer.getone()  # nobody writes to the topic: only an error ends this
        except TimeoutError:
            pass
        except Exception:
            ended += 1
        finally:
            await consumer.stop()

    await asyncio.gather(member(), member())
    return taken, ended


if __name__ == "__main__":
    with kafka() as bootstrap:
        taken, ended = asyncio.run(measure(bootstrap, new_topic(bootstrap)))
        found("aiokafka", text=f"{SECONDS} s: partitions taken from one by the other {taken} times, {ended} of 2 ended")
