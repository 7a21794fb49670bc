"""Three records: a text header, a header that is not UTF-8, a null header. Which reach the handler?"""

from __future__ import annotations

import asyncio

from _faststream import CLIENTS, broker, handler, run_until
from _kafka import committed, found, kafka, new_group, new_topic, send


def measure(bootstrap: str, client: str, policy: str) -> tuple[list[int], int]:
    from faststream import AckPolicy

    topic, group = new_topic(bootstrap), new_group()
    for number, value in enumerate((b"text", b"\xff\xfe", None)):
        send(bootstrap, topic, [b"%d" % number], headers=[("trace", value)])
    send(bootstrap, topic, [b"3"])
    seen: list[int] = []

    async def handle(message: int) -> None:
        seen.append(message)

    async def run() -> None:
        running = broker(client, bootstrap)
        options = {"ack_policy": AckPolicy[policy], "auto_offset_reset": "earliest"}
        running.subscriber(topic, group_id=group, **options)(handler(handle, int))
        await run_until(running, lambda: len(seen) >= 4, 6)

    asyncio.run(run())
    return sorted(set(seen)), committed(bootstrap, group, topic)


if __name__ == "__main__":
    with kafka() as bootstrap:
        parts = []
        for client in CLIENTS:
            for policy in ("ACK_FIRST", "NACK_ON_ERROR"):
                seen, offset = measure(bootstrap, client, policy)
                parts.append(
                    f"{client} {policy}: of records 0 (text), 1 (not UTF-8), 2 (null), 3 (no header) "
                    f"{seen} were handled, {offset} of 4 committed"
                )
        found("faststream", text="; ".join(parts))
