"""A handler sends a result and does not wait for it: the topic of the results is missing, or the process is killed.

`no_confirm=True` is how FastStream sends without waiting. How many records are committed, and how many results exist?
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
from typing import Any

from _faststream import CLIENTS, broker, handler, run_until
from _kafka import committed, found, kafka, new_group, new_topic, per_partition, send

RECORDS = 2_000


def serve(client: str, bootstrap: str, topic: str, group: str, results: str, dies_at: int, policy: str | None) -> None:
    from faststream import AckPolicy

    logging.disable(logging.CRITICAL)

    handled = 0

    async def run() -> None:
        running = broker(client, bootstrap)

        async def handle(message: int) -> None:
            nonlocal handled
            await running.publish(message, results, no_confirm=True)
            handled += 1
            if handled == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)

        options: dict[str, Any] = {} if policy is None else {"ack_policy": AckPolicy[policy]}
        running.subscriber(topic, group_id=group, auto_offset_reset="earliest", **options)(handler(handle, int))
        await run_until(running, lambda: handled >= RECORDS, 20)

    asyncio.run(run())


def measure(client: str, bootstrap: str, results: str, dies_at: int, policy: str | None) -> tuple[int, int | None]:
    topic, group = new_topic(bootstrap), new_group()
    send(bootstrap, topic, [b"%d" % number for number in range(RECORDS)])
    arguments = (client, bootstrap, topic, group, results, dies_at, policy)
    process = multiprocessing.get_context("spawn").Process(target=serve, args=arguments)
    process.start()
    process.join(60)
    return committed(bootstrap, group, topic), process.exitcode


if __name__ == "__main__":
    with kafka("--set", "auto.create.topics.enable=false") as bootstrap:
        for client in CLIENTS:
            for policy in (None, "ACK"):
                offset, code = measure(client, bootstrap, "nowhere", 0, policy)
                results = new_topic(bootstrap)
                at_kill, _ = measure(client, bootstrap, results, RECORDS // 2, policy)
                found(
                    "faststream",
                    text=f"{client} {policy or 'default'}: topic of the results missing: {offset} of {RECORDS} "
                    f"committed, exit code {code}; killed after {RECORDS // 2}: {at_kill} committed, "
                    f"{sum(per_partition(bootstrap, results))} results",
                )
