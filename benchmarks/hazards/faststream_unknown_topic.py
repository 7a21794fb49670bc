"""The topic's name is misspelt, and the cluster creates none by itself: is anybody told? (Ten seconds of waiting.)"""

from __future__ import annotations

import asyncio

from _faststream import CLIENTS, broker, handler, run_until
from _kafka import found, kafka, new_group


async def run(client: str, bootstrap: str) -> str:
    running = broker(client, bootstrap)

    async def handle(message: int) -> None:
        return

    running.subscriber("odrers", group_id=new_group(), auto_offset_reset="earliest")(handler(handle, int))
    try:
        await run_until(running, lambda: False, 10)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:120]}"
    return "no error"


if __name__ == "__main__":
    with kafka("--set", "auto.create.topics.enable=false") as bootstrap:
        for client in CLIENTS:
            text = asyncio.run(run(client, bootstrap))
            found("faststream", text=f"{client}, subscribed to a topic that is not there: {text}")
