"""A queue with an inbox that kills itself: `python inbox_service.py SHELL SERVERS TOPIC GROUP DATABASE [SIDE NTH]`.

SIDE is ``before`` or ``after`` the NTH commit in the database, in which the work and the mark of a job are one
transaction. After it, the job is done and not accepted yet.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from ottla import App, Inbox, Json
from ottla.stores import Sqlite, sql_sessions


def killed_at(side: str, nth: int) -> None:
    """Have the process killed before or after the nth commit of a session."""
    commits = 0

    def reached(here: str) -> None:
        nonlocal commits
        commits += here == "before"
        if here == side and commits == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    commit: Callable[[Any], None] = sql_sessions.SqlSession.commit
    commit_async: Callable[[Any], Any] = sql_sessions.AsyncSqlSession.commit

    def watched(self: Any) -> None:
        reached("before")
        commit(self)
        reached("after")

    async def watched_async(self: Any) -> None:
        reached("before")
        await commit_async(self)
        reached("after")

    sql_sessions.SqlSession.commit = watched  # type: ignore[method-assign]
    sql_sessions.AsyncSqlSession.commit = watched_async  # type: ignore[method-assign]


def main(shell: str, servers: str, topic: str, group: str, database: str, side: str = "", nth: str = "0") -> None:
    if side:
        killed_at(side, int(nth))
    app = App(group, bootstrap_servers=servers, dead_letter_topic=f"{topic}.dead")
    declare = app.queue(topic, value=Json(dict), name="job", inbox=Inbox(Sqlite(database)))
    if shell == "threads":

        @declare
        def job(value: dict[str, int], transaction: Any) -> None:
            transaction.execute("insert into done (n) values (?)", (value["n"],))

        app.run()
    else:

        @declare
        async def job_async(value: dict[str, int], transaction: Any) -> None:
            transaction.execute("insert into done (n) values (?)", (value["n"],))

        asyncio.run(app.serve(handle_signals=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
