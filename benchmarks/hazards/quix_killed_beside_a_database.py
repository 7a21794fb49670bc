"""Handlers write rows to a database, and the process is killed in the middle. How many rows are there twice?"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import tempfile
import time

from _kafka import committed, found, kafka, new_group, new_topic, send

RECORDS = 400


def serve(bootstrap: str, topic: str, group: str, path: str, dies_at: int) -> None:
    from quixstreams import Application

    rows = sqlite3.connect(path, isolation_level=None)
    handled = 0

    def handle(value: int) -> None:
        nonlocal handled
        rows.execute("insert into work values (?)", (value,))
        handled += 1
        if handled == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.001)

    app = Application(broker_address=bootstrap, consumer_group=group, auto_offset_reset="earliest", loglevel="CRITICAL")
    app.dataframe(app.topic(topic, value_deserializer="json")).update(handle)
    app.run(timeout=15)


if __name__ == "__main__":
    with kafka() as bootstrap, tempfile.TemporaryDirectory() as folder:
        topic, group, path = new_topic(bootstrap), new_group(), f"{folder}/rows.db"
        send(bootstrap, topic, [b"%d" % number for number in range(RECORDS)])
        sqlite3.connect(path).execute("create table work (n int)").connection.commit()
        processes = multiprocessing.get_context("spawn")
        at_kill = []
        for dies_at in (RECORDS // 2, 0):
            process = processes.Process(target=serve, args=(bootstrap, topic, group, path, dies_at))
            process.start()
            process.join(120)
            at_kill.append(committed(bootstrap, group, topic))
        rows = [row[0] for row in sqlite3.connect(path).execute("select n from work")]
        found(
            "quixstreams",
            text=f"killed after {RECORDS // 2} rows of {RECORDS}, {at_kill[0]} committed; then {len(rows)} rows, "
            f"{len(rows) - len(set(rows))} of them twice, {RECORDS - len(set(rows))} missing",
        )
