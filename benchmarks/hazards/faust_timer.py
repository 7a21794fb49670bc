"""Two workers declare a task of every second. How often does it run, and what becomes of it when a worker is killed?"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _kafka import found, kafka, new_group, new_topic, wait_for

SERVICE = """
import sys, time
import faust

bootstrap, group, topic, folder, number, on_leader = sys.argv[1:7]
log = open(folder + "/out", "a", buffering=1)
app = faust.App(group, broker="kafka://" + bootstrap, store="memory://", web_enabled=False, datadir=folder + number,
                topic_disable_leader=on_leader == "no", broker_session_timeout=6.0, broker_heartbeat_interval=1.0)

@app.agent(app.topic(topic, value_type=bytes, value_serializer="raw"))
async def handle(stream):  # a worker without a topic does not start
    async for value in stream:
        pass

@app.timer(1.0, on_leader=on_leader == "yes")
async def task():
    print(number, time.time(), file=log)

sys.argv = ["faust", "worker", "-l", "error", "--without-web"]
app.main()
"""


def workers(bootstrap: str, folder: str, on_leader: str) -> list[subprocess.Popen[bytes]]:
    group, topic = new_group(), new_topic(bootstrap, partitions=2)
    return [
        subprocess.Popen(
            [sys.executable, "-c", SERVICE, bootstrap, group, topic, folder, number, on_leader],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in ("1", "2")
    ]


def runs(folder: str) -> list[tuple[str, float]]:
    """Worker and time of each run so far."""
    log = Path(folder) / "out"
    lines = log.read_text().splitlines() if log.exists() else []
    return [(number, float(at)) for number, _, at in (line.partition(" ") for line in lines)]


def end(services: list[subprocess.Popen[bytes]]) -> None:
    for service in services:
        service.kill()
        service.wait()


if __name__ == "__main__":
    with kafka() as bootstrap:
        with tempfile.TemporaryDirectory() as folder:
            services = workers(bootstrap, folder, "no")
            wait_for(lambda: {number for number, _ in runs(folder)} == {"1", "2"}, 40)
            began, before = time.time(), len(runs(folder))
            wait_for(lambda: time.time() >= began + 5, 10)
            count = len(runs(folder)) - before
            end(services)
            found("faust-streaming", text=f"default settings: {count} runs in 5 s of two workers")
        with tempfile.TemporaryDirectory() as folder:
            services = workers(bootstrap, folder, "yes")
            wait_for(lambda: len(runs(folder)) >= 5, 40)
            leader = runs(folder)[-1][0]
            services[int(leader) - 1].kill()
            killed = time.time()
            wait_for(lambda: runs(folder)[-1][0] != leader, 30)
            number, at = runs(folder)[-1]
            end(services)
            what = f"{at - killed:.0f} s without a run" if number != leader else "no run in 30 s"
            found("faust-streaming", text=f"on_leader=True, the leader is killed: {what} (session timeout 6 s)")
