"""SIGKILL to a service amid runs that share a session: what was not committed to the database comes again."""

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from killed_services import KilledService

from ottla import Int64

SERVICE = """
import asyncio, os, sqlite3, sys, time
from contextlib import contextmanager
from typing import Annotated
from ottla import App, CommitPolicy, Int64, Provide

shell, servers, group, topic, path, journal = sys.argv[1:]
out = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
app = App(group, bootstrap_servers=servers, commit=CommitPolicy(every_s=0.02), settings={"session.timeout.ms": 6000})

@contextmanager
def open_session():
    connection = sqlite3.connect(path, timeout=30)
    try:
        with connection:
            yield connection
    finally:
        connection.close()

def handle(number: int, session: Annotated[sqlite3.Connection, Provide(open_session, scope="run")]) -> None:
    session.execute("INSERT INTO bills VALUES (?)", (number,))
    os.write(out, b"%d\\n" % number)
    time.sleep(0.003)  # a run takes longer than the commits of offsets are apart

async def handle_async(number: int, session: Annotated[sqlite3.Connection, Provide(open_session, scope="run")]) -> None:
    handle(number, session)
    await asyncio.sleep(0)

app.handler(topic, value=Int64(), max_records_per_turn=40)(handle_async if shell == "asyncio" else handle)
if shell == "asyncio":
    asyncio.run(app.serve(handle_signals=True))
else:
    app.run()
"""


@pytest.mark.complete
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_no_record_is_committed_whose_session_was_not(
    shell: Any, kafka: Any, kafka_group: str, make_topic: Any, tmp_path: Path, wait: Any
) -> None:
    topic, path = make_topic("orders"), str(tmp_path / "shop.db")
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE bills (id INTEGER)")
    database.close()

    def billed() -> Counter[int]:
        connection = sqlite3.connect(path, timeout=30)
        try:
            return Counter(number for (number,) in connection.execute("SELECT id FROM bills"))
        finally:
            connection.close()

    kafka.produce(topic, range(400), value=Int64())
    place = {"bootstrap_servers": kafka.bootstrap_servers, "group": kafka_group, "folder": tmp_path}
    with KilledService(SERVICE, shell.name, kafka.bootstrap_servers, kafka_group, topic, path, **place) as service:
        for enough in (30, 150, 290):
            wait(lambda least=enough: len(service.lines()) >= least, timeout_s=60)
            service.kill()
            service.start()
        wait(lambda: len(billed()) == 400, timeout_s=60)
    assert sorted(billed()) == list(range(400))
    assert len(service.lines()) > 400, "a kill amid a run: its records were handled again"
