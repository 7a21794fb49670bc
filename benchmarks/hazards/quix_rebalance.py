"""A second member joins while the first one handles records of 100 ms. How often is a record handled?"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from _kafka import committed, found, kafka, new_group, new_topic, send, wait_for
from quixstreams import Application

EACH = 150


def member(bootstrap: str, topic: str, group: str, journal: str) -> None:
    """One application, in a process of its own: it wants the main thread."""

    def handle(value: int) -> None:
        time.sleep(0.1)
        with Path(journal).open("a") as lines:
            lines.write(f"{value}\n")

    app = Application(
        broker_address=bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        commit_interval=5.0,
        loglevel="CRITICAL",
    )
    app.dataframe(app.topic(topic, value_deserializer="json")).update(handle)
    app.run()


def measure(bootstrap: str, folder: Path) -> str:
    topic, group = new_topic(bootstrap, 2), new_group()
    for partition in (0, 1):
        send(bootstrap, topic, [b"%d" % (partition * 1_000 + n) for n in range(EACH)], partition=partition)
    journals = [folder / "first", folder / "second"]

    def start(journal: Path) -> subprocess.Popen[bytes]:
        journal.touch()
        arguments = ["--member", bootstrap, topic, group, str(journal)]
        return subprocess.Popen([sys.executable, __file__, *arguments], stderr=subprocess.DEVNULL)

    def handled(journal: Path) -> list[int]:
        return [int(line) for line in journal.read_text().split()]

    members = [start(journals[0])]
    wait_for(lambda: len(handled(journals[0])) >= 5, 30)
    members.append(start(journals[1]))
    wait_for(lambda: len({*handled(journals[0]), *handled(journals[1])}) == 2 * EACH, 60)
    for process in members:
        process.terminate()
    codes = [process.wait(30) for process in members]
    times = Counter(handled(journals[0]) + handled(journals[1]))
    twice = sum(number > 1 for number in times.values())
    offsets = [committed(bootstrap, group, topic, partition) for partition in (0, 1)]
    shares = " and ".join(str(len(set(handled(journal)))) for journal in journals)
    return (
        f"{len(times)} of {2 * EACH} handled ({shares}), {twice} more than once, {sum(offsets)} committed, "
        f"exit codes {codes}"
    )


if __name__ == "__main__":
    if "--member" in sys.argv:
        member(*sys.argv[2:])
    else:
        with kafka() as bootstrap, tempfile.TemporaryDirectory() as folder:
            found("quixstreams", text=measure(bootstrap, Path(folder)))
