"""`ottla outbox`, against a broker and a database file."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from command_output import document

from broker_embedded.cluster import EmbeddedCluster
from ottla import Json, Outbox, Str
from ottla.cli import main
from ottla.stores import Sqlite
from ottla.testing import Kafka, wait_until


@pytest.fixture
def place(tmp_path: Path) -> str:
    path = str(tmp_path / "shop.db")
    Outbox(Sqlite(path)).create_tables()
    return path


@pytest.fixture
def add(place: str) -> Iterator[Callable[..., None]]:
    outbox, connection = Outbox(Sqlite(place), value=Json(), key=Str()), sqlite3.connect(place)

    def add(topic: str, value: object, **options: object) -> None:
        with connection:
            outbox.add(connection, topic, value, **options)

    yield add
    connection.close()


@pytest.fixture
def ottla(place: str) -> Callable[..., Result]:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["outbox", *arguments], env={"COLUMNS": "160", "OTTLA_STORE": place})

    return run


def shown(ottla: Callable[..., Result], *arguments: str) -> dict[str, object]:
    result = ottla("show", "--format", "json", *arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_a_relay_runs_until_it_is_stopped(add, ottla, place: str, kafka: Kafka, kafka_topic: str):
    for number in range(5):
        add(kafka_topic, number, key="k")
    assert shown(ottla)["waiting"] == 5
    options = ["--store", place, "--bootstrap-servers", kafka.bootstrap_servers, "--interval", "0.02"]
    process = subprocess.Popen([sys.executable, "-m", "ottla", "outbox", "relay", *options], stderr=subprocess.PIPE)
    try:
        wait_until(lambda: shown(ottla)["waiting"] == 0, 60)
        assert shown(ottla)["relay"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        _, said = process.communicate()
    assert b"relaying" in said
    assert shown(ottla)["relay"] is None, "it let go"
    assert [record.value for record in kafka.consume_all(kafka_topic, value=Json())] == list(range(5))


def test_refused_rows_are_shown_tried_again_and_dropped(add, ottla, place: str):
    for number in range(3):
        add("orders", {"n": number}, key="k", message_id=f"message-{number}")
    session = Outbox(Sqlite(place)).session()
    session.park(1, "RecordTooLarge: too large")
    session.park(2, "InputError: no")
    session.close()
    found = shown(ottla)
    assert [(row["id"], row["key"], row["message_id"]) for row in found["items"]] == [
        (1, "k", "message-0"),
        (2, "k", "message-1"),
    ]
    assert (found["waiting"], found["refused"], found["relay"]) == (1, 2, None)
    assert len(shown(ottla, "--all")["items"]) == 3
    assert "RecordTooLarge" in ottla("show").output
    planned = document(ottla("drop", "1", "--dry-run", "--format", "json"), "ottla.outbox.drop/1")
    row = {"id": 1, "topic": "orders", "key": "k", "reason": "RecordTooLarge: too large"}
    assert planned["items"] == [{**row, "result": "would be deleted"}]
    planned = ottla("retry", "2", "3", "--dry-run")
    assert planned.exit_code == 1, "the second of them was not refused"
    assert planned.stdout.splitlines() == ["2\twould be tried again\torders\tk\tInputError: no", "3\tnot found\t\t\t"]
    unanswered = ottla("drop", "1")
    assert unanswered.exit_code == 2, "nobody agreed"
    assert "row 1: orders, key k: RecordTooLarge" in unanswered.stderr, "it was said what about"
    assert shown(ottla)["refused"] == 2
    dropped = document(ottla("drop", "1", "--yes", "--format", "json"), "ottla.outbox.drop/1")
    assert dropped["items"] == [{**row, "result": "deleted"}]
    tried = ottla("retry", "2", "3", "--yes", "--format", "json")
    assert tried.exit_code == 1, "the second of them was not refused"
    found = document(tried, "ottla.outbox.retry/1")["items"]
    assert [(each["id"], each["result"]) for each in found] == [(2, "tried again"), (3, "not found")]
    assert ottla("retry", "2", "--yes").exit_code == 2
    assert (shown(ottla)["waiting"], shown(ottla)["refused"]) == (2, 0)


def test_a_database_without_the_tables_is_named(tmp_path: Path):
    path = tmp_path / "other.db"
    sqlite3.connect(path).close()
    path.touch()
    result = CliRunner().invoke(main, ["outbox", "show", "--store", str(path)])
    assert result.exit_code == 2
    assert "create_tables" in result.output
    assert CliRunner().invoke(main, ["outbox", "show", "--store", str(tmp_path / "none.db")]).exit_code == 2


def test_a_relay_goes_on_when_the_broker_is_back(add, ottla, place: str):
    with EmbeddedCluster() as cluster:
        kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
        topic = kafka.create_topic("orders")
        for number in range(5):
            add(topic, number, key="k")
        options = ["--store", place, "--bootstrap-servers", kafka.bootstrap_servers, "--interval", "0.02"]
        with cluster.faults.add(api="PRODUCE", topic=topic, hold=True, after_apply=True, count=1) as held:
            process = subprocess.Popen([sys.executable, "-m", "ottla", "outbox", "relay", *options])
            try:
                held.wait(hits=1, timeout_s=60)
                cluster.kill(1)
                held.release()
                assert shown(ottla)["waiting"] == 5, "none is confirmed"
                cluster.start_broker(1)
                wait_until(lambda: shown(ottla)["waiting"] == 0, 90)
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
            finally:
                process.kill()
                process.wait()
        arrived = [record.value for record in kafka.consume_all(topic, value=Json())]
        assert list(dict.fromkeys(arrived)) == list(range(5)), arrived
