"""A service whose handler does not return while its buffers fill, and what its process grows by meanwhile.

    SETTINGS='{}' python -m tests.kit.memory_of_service KIND SERVERS TOPIC WARM_TOPIC TOTAL_BYTES

Handles the record of the warm topic first, for everything to be imported. Prints the resident set before the other
topic is read, and the largest one until its buffers have stopped growing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla import App, Consumer, FlowLimits, Priorities

_LOOKS_ALIKE = 100
_LOOK_S = 0.02


def resident_bytes() -> int:
    """Return the resident set of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def largest_while_full(member: Callable[[], Any]) -> int:
    """Return the largest resident set until the member's buffers have not changed for two seconds."""
    largest = looks_alike = 0
    buffered = (0, 0)
    while looks_alike < _LOOKS_ALIKE:
        threading.Event().wait(_LOOK_S)
        largest = max(largest, resident_bytes())
        before, buffered = buffered, member()._session._flow.buffered
        looks_alike = looks_alike + 1 if before == buffered != (0, 0) else 0
    return largest


def pull(topic: str, flow: FlowLimits, **options: Any) -> int:
    """Take one record, and no other until the buffers are full."""
    with Consumer(topic, group=f"of-{topic}", flow=flow, **options) as consumer:
        next(iter(consumer))
        return 0 if flow == FlowLimits() else largest_while_full(lambda: consumer._member)


def members(app: Any) -> Any:
    """Return the group members of an app that runs."""
    return app.runner.members


def serve(kind: str, topic: str, flow: FlowLimits, **options: Any) -> int:
    """Run an app whose handler returns once the buffers are full."""
    app = App(f"of-{topic}", flow=flow, **options)
    seen = 0

    def handle(value: Any) -> None:
        nonlocal seen
        if not seen:
            seen = 1 if flow == FlowLimits() else largest_while_full(lambda: members(app)[app.group])
        app.stop()

    def handle_columns(batch: Any) -> None:
        handle(batch)

    async def handle_on_loop(value: bytes) -> None:
        task = asyncio.to_thread(handle, value)
        await task

    if kind == "columns":
        app.handler(topic, columns=True, max_batch=10)(handle_columns)
        app.run(handle_signals=False)
    elif kind == "asyncio":
        app.handler(topic)(handle_on_loop)
        asyncio.run(app.serve())
    else:
        app.handler(Priorities(topic, ("urgent", "normal")) if kind == "priorities" else topic)(handle)
        app.run(handle_signals=False)
    return seen


def main() -> None:
    kind, servers, topic, warm_topic, total_bytes = sys.argv[1:]
    options = {"bootstrap_servers": servers, "settings": json.loads(os.environ["SETTINGS"])}
    run = pull if kind == "pulled" else lambda *given, **more: serve(kind, *given, **more)
    run(warm_topic, FlowLimits(), **options)
    before = resident_bytes()
    print(before, run(topic, FlowLimits(total_bytes=int(total_bytes)), **options))


if __name__ == "__main__":
    main()
