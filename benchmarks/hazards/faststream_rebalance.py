"""A second member joins while the first one handles records of 100 ms. How often is a record handled?"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from _faststream import CLIENTS, broker, handler
from _kafka import committed, found, kafka, new_group, new_topic, send

EACH = 60


def measure(bootstrap: str, client: str) -> str:
    topic, group = new_topic(bootstrap, 2), new_group()
    for partition in (0, 1):
        send(bootstrap, topic, [b"%d" % (partition * 1_000 + number) for number in range(EACH)], partition=partition)
    handled: Counter[int] = Counter()
    at_work: Counter[int] = Counter()
    together: set[int] = set()
    by: dict[str, set[int]] = {"first": set(), "second": set()}

    def member(name: str) -> Any:
        async def handle(message: int) -> None:
            at_work[message] += 1
            if at_work[message] > 1:
                together.add(message)
            await asyncio.sleep(0.1)
            at_work[message] -= 1
            handled[message] += 1
            by[name].add(message)

        running = broker(client, bootstrap)
        running.subscriber(topic, group_id=group, auto_offset_reset="earliest")(handler(handle, int))
        return running

    async def run() -> None:
        first, second = member("first"), member("second")
        await first.start()
        await until(lambda: len(by["first"]) >= 5, 20)
        await second.start()
        await until(lambda: len(handled) == 2 * EACH, 40)
        await second.stop()
        await first.stop()

    asyncio.run(run())
    offsets = [committed(bootstrap, group, topic, partition) for partition in (0, 1)]
    twice = sum(times > 1 for times in handled.values())
    return (
        f"{client}: {len(handled)} of {2 * EACH} handled ({len(by['first'])} and {len(by['second'])}), "
        f"{twice} more than once, {len(together)} of them by both members at the same time, {sum(offsets)} committed"
    )


async def until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    with kafka() as bootstrap:
        found("faststream", text="; ".join(measure(bootstrap, client) for client in CLIENTS))
