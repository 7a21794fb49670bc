"""Commands that run until they are stopped, and those beside a database: on Apache Kafka as on the embedded broker."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from command_output import Run, document, rows

from ottla import Json, Outbox, Producer, Str, TopicPartition
from ottla.schedule.tasks.task_records import Definition
from ottla.serdes import SchemaRegistry
from ottla.stores import Sqlite
from ottla.sync.serve.scheduler import Scheduler
from ottla.sync.serve.task_registration import register_tasks
from ottla.testing import wait_until

pytestmark = pytest.mark.client_contract

Started = Callable[..., subprocess.Popen[str]]

_numbers = count(1)
TOKEN = "a-token-of-the-tests"
SERVICE = """
from ottla import App, Json

app = App({group!r})

@app.handler({topic!r}, value=Json())
def on_number(number: int) -> None:
    print("handled", number, flush=True)
"""


@pytest.fixture
def topic(ottla: Run) -> str:
    """One partition without records."""
    name = f"services-{os.getpid()}-{next(_numbers)}"
    assert rows(ottla("topics", "create", name, "-p", "1", "-r", "1"))
    return name


def values(ottla: Run, topic: str) -> list[str]:
    return [row[4] for row in rows(ottla("consume", topic))]


def stopped(process: subprocess.Popen[str]) -> str:
    """What it said on stderr after SIGTERM, with which it ended well."""
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    return said


def test_a_service_handles_commits_and_stops(ottla: Run, started: Started, topic: str, tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(SERVICE.format(group=f"counts-{topic}", topic=topic))
    assert ottla("produce", topic, "-q", input="1\n2\n3\n").exit_code == 0
    process = started("run", "counting:app")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(3)] == ["handled 1\n", "handled 2\n", "handled 3\n"]
    stopped(process)
    assert rows(ottla("groups", "lag", f"counts-{topic}"))[0][3:6] == ["3", "3", "0"]
    shown = document(ottla("groups", "show", f"counts-{topic}", "--format", "json"), "ottla.groups.show/1")
    assert (shown["state"], shown["members"], shown["lag"]) == ("Empty", 0, 0)


def test_delayed_messages_are_seen_cancelled_and_delivered(
    ottla: Run, started: Started, bootstrap_servers: str, topic: str
) -> None:
    named = ("--name", f"schedule-{topic}")
    with Scheduler(bootstrap_servers, name=named[1]):
        pass  # its topic is there
    with Producer(bootstrap_servers, schedule=named[1]) as producer:
        producer.send(topic, b"soon", deliver_after=0.5, schedule_id="soon").result(60)
        producer.send(topic, b"never", deliver_after=3_600, schedule_id="never").result(60)
    listed = document(ottla("schedule", "list", *named, "--format", "json"), "ottla.schedule.list/1")
    assert [each["id"] for each in listed["items"]] == ["soon", "never"]
    shown = document(ottla("schedule", "show", "never", *named, "--format", "json"), "ottla.schedule.show/1")
    assert [each["topic"] for each in shown["items"]] == [topic]
    assert ottla("schedule", "cancel", "never", *named, "--yes").exit_code == 0
    assert ottla("schedule", "show", "never", *named).exit_code == 2
    process = started("schedule", "run", *named)
    wait_until(lambda: values(ottla, topic) == ["soon"], 60)
    assert "scheduler_stopped" in stopped(process)
    assert rows(ottla("schedule", "list", *named)) == []


def test_recurring_tasks_are_paused_triggered_and_removed(
    ottla: Run, started: Started, bootstrap_servers: str, topic: str
) -> None:
    named = ("--name", f"schedule-{topic}")
    task = Definition(id="billing/report", version=(1,), topic=topic, cron="0 8 1 1 *")
    register_tasks(bootstrap_servers, named[1], [task], settings={})
    with Scheduler(bootstrap_servers, name=named[1]):
        pass  # the schedule's topic is there
    assert ottla("schedule", "pause", "report", *named, "--yes").exit_code == 0
    assert ottla("schedule", "trigger", "report", *named, "--yes").exit_code == 0
    process = started("schedule", "run", *named)
    wait_until(lambda: len(values(ottla, topic)) == 1, 60)
    stopped(process)
    listed = document(ottla("schedule", "list", *named, "--format", "json"), "ottla.schedule.list/1")
    assert [(each["id"], each["is_paused"]) for each in listed["items"]] == [("billing/report", True)]
    assert ottla("schedule", "resume", "report", *named, "--yes").exit_code == 0
    assert ottla("schedule", "remove", "report", *named, "--yes").exit_code == 0
    assert rows(ottla("schedule", "list", *named)) == []


def test_an_outbox_is_relayed(ottla: Run, started: Started, topic: str, tmp_path: Path) -> None:
    store = str(tmp_path / "shop.db")
    outbox = Outbox(Sqlite(store), value=Json(), key=Str())
    outbox.create_tables()
    with closing(sqlite3.connect(store)) as connection, connection:
        for number in range(3):
            outbox.add(connection, topic, number, key="k")
    process = started("outbox", "relay", "--store", store, "--interval", "0.02")
    wait_until(lambda: values(ottla, topic) == ["0", "1", "2"], 60)
    stopped(process)
    shown = document(ottla("outbox", "show", "--store", store, "--format", "json"), "ottla.outbox.show/1")
    assert (shown["waiting"], shown["refused"], shown["relay"]) == (0, 0, None)


def test_a_message_of_mqtt_is_acknowledged_and_in_its_topic(ottla: Run, started: Started, topic: str) -> None:
    process = started("bridge", "mqtt", "--listen", "127.0.0.1:0", "--map", f"sensors/#={topic}")
    assert process.stderr is not None
    said = json.loads(next(line for line in process.stderr if '"bridge_listening"' in line))
    host, _, port = said["address"].rpartition("//")[2].rpartition(":")
    connect = b"\x00\x04MQTT\x04\x02\x00\x3c\x00\x06sensor"
    publish = b"\x00\x09sensors/1\x00\x07" + b"21.5"
    with closing(socket.create_connection((host, int(port)), timeout=60)) as device:
        device.sendall(b"\x10%c" % len(connect) + connect)
        assert device.recv(4, socket.MSG_WAITALL) == b"\x20\x02\x00\x00"
        device.sendall(b"\x32%c" % len(publish) + publish)
        assert device.recv(4, socket.MSG_WAITALL) == b"\x40\x02\x00\x07"
        assert values(ottla, topic) == ["21.5"]
    stopped(process)


def test_a_schema_is_there_after_a_registry_that_was_killed(started: Started, topic: str) -> None:
    def address(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().removeprefix("ready registry=").strip()

    schema = '{"type": "string"}'
    first = started("registry", "start", "--port", "0")
    schema_id = SchemaRegistry(address(first)).register(f"{topic}-value", schema)
    first.kill()
    second = started("registry", "start", "--port", "0")
    found = SchemaRegistry(address(second)).version(f"{topic}-value")
    assert (found.id, found.text) == (schema_id, schema)
    stopped(second)


def test_offsets_of_a_database_are_compared_with_the_log_and_set(ottla: Run, topic: str, tmp_path: Path) -> None:
    place = TopicPartition(topic, 0)
    store = ("--store", str(tmp_path / "billing.db"))
    database = Sqlite(store[1])
    database.create_tables()
    session = database.session()
    session.pass_offset("billing", place, 2, session.claim_offsets("billing", "host/1", [place])[place].epoch)
    session.close()
    assert ottla("produce", topic, "-q", input="1\n2\n3\n4\n5\n").exit_code == 0
    (before,) = document(ottla("store-offsets", "show", "billing", *store, "--format", "json"), "ottla.offsets/1")[
        "items"
    ]
    assert (before["next"], before["lag"]) == (2, 3)
    assert (
        ottla("store-offsets", "reset", "billing", *store, "--topic", topic, "--to", "latest", "--yes").exit_code == 0
    )
    (after,) = document(ottla("store-offsets", "show", "billing", *store, "--format", "json"), "ottla.offsets/1")[
        "items"
    ]
    assert (after["next"], after["lag"]) == (5, 0)
    assert ottla("store-offsets", "reset", "billing", *store, "--topic", topic, "--to", "6", "--yes").exit_code == 2


def test_a_named_cluster_answers(ottla: Run, bootstrap_servers: str) -> None:
    assert ottla("contexts", "add", "here", "-b", bootstrap_servers).exit_code == 0
    checked = document(ottla("contexts", "check", "here", "--format", "json"), "ottla.clusters.check/1")
    assert checked["answered"] in bootstrap_servers


def test_the_doctor_looks_at_the_cluster_itself(ottla: Run, topic: str) -> None:
    result = ottla("doctor", "--format", "json")
    found = document(result, "ottla.doctor/1")
    assert result.exit_code in (0, 1), result.output
    assert not [each for each in found["not_checked"] if each["id"].startswith(("REP", "TOP", "DSK"))], found


def test_the_console_shows_the_cluster(started: Started, topic: str) -> None:
    pytest.importorskip("starlette")
    process = started("console", "--port", "0", OTTLA_CONSOLE_TOKEN=TOKEN)
    assert process.stdout is not None
    address = process.stdout.readline()
    found = re.search(r":(\d+)/#", address)
    assert found is not None, process.communicate()

    def ask(path: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
        with closing(connection):
            connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
            answer = connection.getresponse()
            assert answer.status == 200, (path, answer.read())
            return json.load(answer)

    items = wait_until(lambda: ask(f"/api/topics?match={topic}")["items"], 60)
    assert [each["topic"] for each in items] == [topic]
    for path in ("cluster", "groups", "doctor", "moves", "letters/topics", f"topic?name={topic}"):
        ask(f"/api/{path}")
