"""Two workers take records of one partition; the first record takes long, the process dies meanwhile. Is it lost?"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from _kafka import committed, found, kafka, new_group, new_topic, send, wait_for

SERVICE = """
import asyncio, sys
import faust

bootstrap, topic, group, folder = sys.argv[1:5]
log = open(folder + "/out", "a", buffering=1)
app = faust.App(group, broker="kafka://" + bootstrap, store="memory://", web_enabled=False, topic_disable_leader=True,
                broker_commit_interval=0.5, datadir=folder)
source = app.topic(topic, value_type=bytes, value_serializer="raw")

@app.agent(source, concurrency=2)
async def handle(stream):
    async for value in stream:
        print("call", value.decode(), file=log)
        if value == b"0":
            await asyncio.sleep(600)
        print("handled", value.decode(), file=log)

sys.argv = ["faust", "worker", "-l", "error"]
app.main()
"""

if __name__ == "__main__":
    with kafka() as bootstrap, tempfile.TemporaryDirectory() as folder:
        topic, group = new_topic(bootstrap), new_group()
        send(bootstrap, topic, [b"%d" % number for number in range(10)])
        service = subprocess.Popen(
            [sys.executable, "-c", SERVICE, bootstrap, topic, group, folder],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for(lambda: committed(bootstrap, group, topic) > 0 or service.poll() is not None, 40)
        service.kill()
        service.wait()
        lines = (Path(folder) / "out").read_text().split("\n")
        handled = [line for line in lines if line.startswith("handled")]
        found(
            "faust-streaming",
            text=f"record 0 of 10 is under way and {len(handled)} others are done when the process is killed: "
            f"{committed(bootstrap, group, topic)} of 10 are committed",
        )
