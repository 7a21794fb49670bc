"""A listener's work is a database transaction, and the process dies in the middle. How many rows are there twice?"""

from __future__ import annotations

import sqlite3
import tempfile

from _java import Service, say
from _kafka import committed, kafka, new_group, new_topic, send, wait_for

RECORDS = 400
PEER = "spring-kafka"

if __name__ == "__main__":
    with kafka() as bootstrap:
        for ack in ("BATCH", "RECORD"):
            with tempfile.TemporaryDirectory() as folder:
                topic, group, path = new_topic(bootstrap), new_group(), f"{folder}/rows.db"
                send(bootstrap, topic, [b"%d" % number for number in range(RECORDS)])
                sqlite3.connect(path).execute("create table work (n int)").connection.commit()
                options = {"bootstrap": bootstrap, "topic": topic, "group": group, "file": path, "ack": ack}
                with Service(PEER, "BesideADatabase", **options, dies_at=RECORDS // 2) as first:
                    wait_for(lambda: not first.is_running, 60)
                at_kill = committed(bootstrap, group, topic)
                with Service(PEER, "BesideADatabase", **options, **{"session.timeout.ms": 6_000}) as second:
                    wait_for(lambda: str(RECORDS - 1) in second.handled, 90)
                rows = [row[0] for row in sqlite3.connect(path).execute("select n from work")]
                say(
                    PEER,
                    f"a database transaction per record, AckMode.{ack}: died after {RECORDS // 2} rows of {RECORDS}, "
                    f"{at_kill} committed; then {len(rows)} rows, {len(rows) - len(set(rows))} of them twice, "
                    f"{RECORDS - len(set(rows))} missing",
                )
