"""A service that a test kills: `python once_service.py SHELL BOOTSTRAP GROUP TOPIC STORE TABLE`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from ottla import App, CommitPolicy, Json
from ottla.stores import Postgres, Sqlite


def main(shell: str, servers: str, group: str, topic: str, place: str, table: str) -> None:
    store: Any = Sqlite(place) if place.endswith(".db") else Postgres(place)
    settings = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
    app = App(group, bootstrap_servers=servers, commit=CommitPolicy(every_s=0.05), settings=settings)

    @app.handler(topic, value=Json(), offsets=store, max_records_per_turn=20)
    def handle(value: int, transaction: Any) -> None:
        transaction.execute(f"insert into {table} (n) values ({value})")

    if shell == "threads":
        app.run()
    else:
        asyncio.run(app.serve(handle_signals=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
