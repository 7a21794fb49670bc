"""A service that kills itself: `python service_to_kill.py SHELL BOOTSTRAP GROUP TOPIC STORE TABLE [STEP SIDE NTH]`.

STEP is an operation of the store's session (`begin`, `mark`, `save_offset`, ...) or ``handle``, SIDE ``before`` or
``after`` it, NTH which call of it. With a STORE in Redis, messages are claimed and TABLE is a file of what was handled;
in a database the handler's work, the marks and the offset are one transaction, unless CLAIMS is in the environment.
SIGNAL there may name another one than SIGKILL. Multiples of 50 are poison.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla import App, CommitPolicy, Inbox, Json, Record, RetryPolicy
from ottla.telemetry.metrics.hooks import Hooks

LEASE_S = 0.5


def dies(side: str, nth: int) -> Callable[[str], None]:
    """What is called before and after each call of the step."""
    calls = 0

    def reached(here: str) -> None:
        nonlocal calls
        calls += here == "before"
        if here == side and calls == nth:
            # To this thread: of a signal to the process another thread may be told, while this one goes on for a while.
            signal.raise_signal(signal.Signals[os.environ.get("SIGNAL", "SIGKILL")])

    return reached


def watch(session_type: Any, step: str, reached: Callable[[str], None]) -> None:
    inner = getattr(session_type, step)
    is_async = "Async" in session_type.__name__  # its methods are inherited, and return what is to be awaited

    async def awaited(*arguments: Any, **options: Any) -> Any:
        reached("before")
        found = await inner(*arguments, **options)
        reached("after")
        return found

    def called(*arguments: Any, **options: Any) -> Any:
        reached("before")
        found = inner(*arguments, **options)
        reached("after")
        return found

    setattr(session_type, step, awaited if is_async else called)


def main(
    shell: str,
    servers: str,
    group: str,
    topic: str,
    place: str,
    table: str,
    step: str = "",
    side: str = "",
    nth: str = "0",
) -> None:
    reached = dies(side, int(nth)) if step == "handle" else lambda here: None
    is_claimed = place.startswith("unix:") or "CLAIMS" in os.environ
    if step and step != "handle":
        watched = dies(side, int(nth))
        if place.startswith("unix:"):
            from ottla.stores import redis

            sessions: tuple[Any, ...] = (redis._RedisClaims, redis._AsyncRedisClaims)
        else:
            store_type = type(store_of(place))
            sessions = (store_type._session_type, store_type._async_session_type)
        for each in sessions:
            watch(each, step, watched)
    app = App(
        group,
        bootstrap_servers=servers,
        commit=CommitPolicy(every_s=0.05),
        settings={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500},
        retry=RetryPolicy(max_attempts=1),
        dead_letter_topic=f"{topic}-dead",
        hooks=Told(f"{table}.events") if is_claimed else None,
    )
    (declare_claimed if is_claimed else declare)(app, topic, place, table, reached, is_async=shell == "asyncio")
    if shell == "threads":
        app.run()
    else:
        asyncio.run(app.serve(handle_signals=True))


class Told(Hooks):
    """Writes the events of the app into a file."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def event(self, *, group: str, event: str) -> None:
        with self._path.open("a", encoding="ascii") as file:
            file.write(f"{event}\n")


def store_of(place: str) -> Any:
    from ottla.stores import Postgres, Redis, Sqlite

    if place.startswith("unix:"):
        return Redis(place)
    return Sqlite(place) if place.endswith(".db") else Postgres(place)


def id_of(record: Record[Any]) -> str:
    return str(record.value)


def declare(app: App, topic: str, place: str, table: str, reached: Any, *, is_async: bool) -> None:
    store = store_of(place)
    once: dict[str, Any] = {"offsets": store, "inbox": Inbox(store, id=id_of), "max_records_per_turn": 20}

    def work(value: int) -> str:
        reached("before")
        if value % 50 == 0:
            raise ValueError("poison")
        return f"insert into {table} (n) values ({value})"

    if is_async:

        @app.handler(topic, value=Json(), **once)
        async def handle_async(value: int, transaction: Any) -> None:
            done = transaction.execute(work(value))
            if inspect.isawaitable(done):
                await done
            reached("after")

    else:

        @app.handler(topic, value=Json(), **once)
        def handle(value: int, transaction: Any) -> None:
            transaction.execute(work(value))
            reached("after")


def declare_claimed(app: App, topic: str, place: str, log: str, reached: Any, *, is_async: bool) -> None:
    inbox = Inbox(store_of(place), id=id_of, lease_s=LEASE_S)

    def work(value: int) -> None:
        reached("before")
        if value % 50 == 0:
            raise ValueError("poison")
        with Path(log).open("a", encoding="ascii") as file:
            file.write(f"{value}\n")
        reached("after")

    if is_async:

        @app.handler(topic, value=Json(), name="once", inbox=inbox, max_records_per_turn=20)
        async def handle_async(value: int) -> None:
            work(value)

    else:

        @app.handler(topic, value=Json(), name="once", inbox=inbox, max_records_per_turn=20)
        def handle(value: int) -> None:
            work(value)


if __name__ == "__main__":
    main(*sys.argv[1:])
