"""The services of `exactly_once.py` as handlers with ``exactly_once=``, in threads and on asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from ottla import App, ExactlyOnce, Out, Record
from ottla.aio.consume import transactions as on_loops
from ottla.sync.consume import transactions as with_threads

if TYPE_CHECKING:
    from exactly_once import Work

Reached = Callable[[str, int], None]

TIMEOUT_S = 3.0


def transactional_ids(group: str, name: str) -> list[str]:
    """Those of a service with this name."""
    return [f"{group}.{name}.{part}" for part in ("results", "letters")]


def handlers_in_threads(work: Work, *, reached: Reached, is_over: Callable[[], bool]) -> None:
    """Handle records until it is over. `reached` is told each point of each transaction."""
    app = _app(work, is_over)
    _watch_threads(work, reached)
    app.run(handle_signals=False)


def handlers_on_asyncio(work: Work, *, reached: Reached, is_over: Callable[[], bool]) -> None:
    """The same on an event loop."""
    app = _app(work, is_over)
    _watch_loops(work, reached)
    asyncio.run(app.serve())


def _app(work: Work, is_over: Callable[[], bool]) -> App:
    settings = {"session.timeout.ms": 2_000, "heartbeat.interval.ms": 200}
    app = App(work.group, bootstrap_servers=work.servers, settings=settings, drain_s=2.0)
    instance = None if work.transactional_id.startswith("nameless") else work.transactional_id
    once = ExactlyOnce(instance=instance, max_records=work.batch, transaction_timeout_s=TIMEOUT_S)

    @app.handler(work.source, exactly_once=once)
    def handle(record: Record[bytes], out: Out) -> None:
        out.send(work.target, record.value, partition=record.partition)

    def look() -> None:
        while not is_over():
            time.sleep(0.1)
        app.stop()

    threading.Thread(target=look, daemon=True).start()
    return app


def _watch_threads(work: Work, reached: Reached) -> None:
    client: Any = with_threads._Client
    number = 0

    def begins() -> None:
        nonlocal number
        number += 1

    def around(name: str, points: list[str], *, before: Callable[..., None] = lambda *_: None) -> None:
        call = getattr(client, name)

        @wraps(call)
        def watched(self: Any, *arguments: Any) -> Any:
            before()
            answer = call(self, *arguments)
            for point in points:
                if point == "after a send" and work.crash_at == point:
                    self._producer.flush()
                reached(point, number)
            return answer

        setattr(client, name, watched)

    around("begin", ["after the begin"], before=begins)
    around("send_all", ["after a send", "after the records"])
    around("offsets", ["after the offsets"])
    around("commit", ["after the commit"])


def _watch_loops(work: Work, reached: Reached) -> None:
    client: Any = on_loops._Client
    number = 0

    def begins() -> None:
        nonlocal number
        number += 1

    def around(name: str, points: list[str], *, before: Callable[..., None] = lambda *_: None) -> None:
        call = getattr(client, name)

        @wraps(call)
        async def watched(self: Any, *arguments: Any) -> Any:
            before()
            answer = await call(self, *arguments)
            for point in points:
                if point == "after a send" and work.crash_at == point:
                    await self._producer.flush()
                reached(point, number)
            return answer

        setattr(client, name, watched)

    around("begin", ["after the begin"], before=begins)
    around("send_all", ["after a send", "after the records"])
    around("offsets", ["after the offsets"])
    around("commit", ["after the commit"])
