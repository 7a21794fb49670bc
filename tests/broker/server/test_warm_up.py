"""When a process is ready, it loads what clients usually ask for first; then the collector begins."""

from __future__ import annotations

import subprocess
import sys

import pytest

AS_A_PROCESS = """
import asyncio, gc, sys
from broker_embedded import process
from broker_embedded.cluster.time import VirtualClock, new_event_loop
from broker_embedded.server.requests.warm_up import warm_up

async def main():
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    before = set(sys.modules)
    warm_up(loop, on_done=lambda: done.set_result(None))
    assert set(sys.modules) == before
    await done
    print(*set(sys.modules) - before)

stopped = VirtualClock(speed=0) if sys.argv[1] == "standing" else None
with asyncio.Runner(loop_factory=lambda: new_event_loop(stopped)) as runner:
    runner.run(main())
"""


@pytest.mark.parametrize("time", ["real", "standing"])
def test_the_first_produce_and_the_first_group_find_their_modules_loaded(time: str) -> None:
    done = subprocess.run([sys.executable, "-c", AS_A_PROCESS, time], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert {
        "broker_embedded.server.apis.produce",
        "broker_embedded.server.apis.fetch",
        "broker_embedded.server.apis.join_group",
        "broker_embedded.coordinator.group.shard",
    } <= set(done.stdout.split())
