"""`ottla schedule` and `ottla schedule run`, against a broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result
from command_output import document

from ottla import Producer
from ottla.cli import main
from ottla.schedule.tasks.task_records import Definition
from ottla.sync.serve.scheduler import Scheduler
from ottla.sync.serve.task_registration import register_tasks
from ottla.testing import Kafka, wait_until


@pytest.fixture
def name(kafka: Kafka, kafka_group: str) -> str:
    with Scheduler(kafka.bootstrap_servers, name=kafka_group):
        return kafka_group


@pytest.fixture
def producer(kafka: Kafka, name: str) -> Iterator[Producer[bytes, bytes]]:
    with Producer(kafka.bootstrap_servers, schedule=name) as made:
        yield made


@pytest.fixture
def ottla(kafka: Kafka, name: str) -> Callable[..., Result]:
    def run(*arguments: str) -> Result:
        environment = {"OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "COLUMNS": "160"}
        return CliRunner().invoke(main, ["schedule", *arguments, "--name", name], env=environment)

    return run


def test_what_waits_is_listed_shown_and_cancelled(ottla, producer, kafka: Kafka, make_topic: Callable[..., str]):
    topic = make_topic()
    producer.send(topic, b"one", key=b"k", deliver_after=7_200, schedule_id="later").result()
    producer.send(topic, b"two", deliver_after=3_600, schedule_id="sooner").result()
    producer.send("other", b"three", deliver_after=86_400 * 30).result()
    listed = ottla("list", "--format", "json").output
    assert listed.index("sooner") < listed.index("later") < listed.index("other")
    assert "3 messages wait" in listed
    assert "1 messages wait" in ottla("list", "--topic", "other").output
    shown = ottla("show", "later")
    assert shown.exit_code == 0, shown.output
    assert topic in shown.output
    cancelled = ottla("cancel", "later", "--yes", "--format", "json")
    assert cancelled.exit_code == 0, cancelled.output
    assert document(cancelled, "ottla.schedule.cancel/1")["id"] == "later"
    assert "2 messages wait" in ottla("list").output
    gone = ottla("show", "later")
    assert gone.exit_code == 2
    assert "no message waits with the id 'later'" in gone.output


def declared(kafka: Kafka, name: str, *ids: str, topic: str = "runs") -> None:
    tasks = [Definition(id=id, version=(1, 10), topic=topic, cron="0 8 * * mon-fri", tz="Europe/Berlin") for id in ids]
    register_tasks(kafka.bootstrap_servers, name, tasks, settings={})


def listed(ottla: Callable[..., Result]) -> dict[str, dict[str, object]]:
    return {item["id"]: item for item in document(ottla("list", "--format", "json"), "ottla.schedule.list/1")["items"]}


def test_recurring_tasks_are_listed_paused_resumed_and_removed(ottla, producer, kafka: Kafka, name: str):
    producer.send("orders", b"one", deliver_after=30 * 86_400, schedule_id="later").result()
    declared(kafka, name, "billing/daily", "billing/weekly", "shop/weekly")
    found = listed(ottla)
    assert [*found] == ["billing/daily", "billing/weekly", "shop/weekly", "later"]
    daily = found["billing/daily"]
    assert (daily["recurs"], daily["version"], daily["is_paused"]) == ("0 8 * * mon-fri Europe/Berlin", "1.10", False)
    assert found["later"]["recurs"] is None
    assert "1 messages wait, 3 recurring tasks" in ottla("list").output
    said = ottla("pause", "daily", "--yes", "--format", "json")
    assert document(said, "ottla.schedule.task/1")["id"] == "billing/daily"
    assert "acknowledged: pause billing/daily" in said.stderr
    paused = listed(ottla)["billing/daily"]
    assert (paused["due"], paused["is_paused"], paused["recurs"]) == (
        None,
        True,
        "0 8 * * mon-fri Europe/Berlin (paused)",
    )
    assert ottla("resume", "billing/daily", "--dry-run").exit_code == 0
    assert listed(ottla)["billing/daily"]["is_paused"] is True
    assert ottla("resume", "billing/daily", "--yes").exit_code == 0
    assert listed(ottla)["billing/daily"]["due"] is not None
    shown = document(ottla("show", "billing/daily", "--format", "json"), "ottla.schedule.show/1")
    assert [item["id"] for item in shown["items"]] == ["billing/daily"]
    assert ottla("remove", "billing/daily", "--yes").exit_code == 0
    assert "billing/daily" not in listed(ottla)
    several = ottla("pause", "weekly", "--yes")
    assert (several.exit_code, "of several groups, wanted one of billing/weekly, shop/weekly" in several.stderr) == (
        2,
        True,
    )
    unknown = ottla("trigger", "none", "--yes")
    assert (unknown.exit_code, "no task has the id 'none'; there are" in unknown.stderr) == (2, True)


def test_tasks_are_listed_and_shown_before_a_scheduler_has_run(kafka: Kafka, kafka_group: str):
    name = f"{kafka_group}-early"
    declared(kafka, name, "billing/daily")

    def run(*arguments: str) -> Result:
        options = ["--name", name, "--bootstrap-servers", kafka.bootstrap_servers]
        return CliRunner().invoke(main, ["schedule", *arguments, *options], env={"COLUMNS": "160"})

    assert list(listed(run)) == ["billing/daily"]
    assert "0 messages wait, 1 recurring tasks" in run("list").output
    assert run("show", "billing/daily").exit_code == 0
    unknown = run("show", "none")
    assert (unknown.exit_code, "no message waits with the id 'none'" in unknown.stderr) == (2, True)


@pytest.mark.parametrize("command", ["list", "show x"])
def test_a_schedule_that_there_is_not_is_created_by_its_own_command(kafka: Kafka, kafka_group: str, command: str):
    name, servers = f"{kafka_group}-none", kafka.bootstrap_servers
    missing = CliRunner().invoke(main, ["schedule", *command.split(), "--name", name, "-b", servers])
    assert missing.exit_code == 2
    assert f"ottla schedule run --name {name} --bootstrap-servers {servers}" in missing.stderr
    assert "topics create" not in missing.stderr


@pytest.mark.parametrize("command", ["list", "show x", "pause x", "run"])
def test_a_name_that_no_schedule_can_have_is_refused(command: str):
    ended = CliRunner().invoke(main, ["schedule", *command.split(), "--name", "bad name"])
    assert (ended.exit_code, "part of its topic's: topic: found 'ottla.schedule.bad name'" in ended.stderr) == (2, True)


def test_a_paused_task_that_is_triggered_runs_once_more(ottla, kafka: Kafka, name: str, make_topic):
    topic = make_topic()
    declared(kafka, name, "billing/daily", topic=topic)
    assert ottla("pause", "daily", "--yes").exit_code == 0
    scheduler = Scheduler(kafka.bootstrap_servers, name=name)
    thread = threading.Thread(target=scheduler.run)
    thread.start()
    try:
        assert ottla("trigger", "daily", "--yes").exit_code == 0
        wait_until(lambda: len(kafka.consume_all(topic)) == 1, 60, what="the run")
    finally:
        scheduler.stop()
        thread.join()
    (record,) = kafka.consume_all(topic)
    assert json.loads(record.raw_value)["is_triggered"] is True
    assert listed(ottla)["billing/daily"]["is_paused"] is True


def test_a_scheduler_runs_until_it_is_told_to_stop(producer, kafka: Kafka, name: str, make_topic: Callable[..., str]):
    topic = make_topic()
    command = [sys.executable, "-m", "ottla", "schedule", "run", "--name", name]
    command += ["--bootstrap-servers", kafka.bootstrap_servers]
    command += ["--set", "session.timeout.ms=9s", "--set", "heartbeat.interval.ms=3s", "--set", "client.id=mine"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=dict(os.environ))
    try:
        producer.send(topic, b"v", deliver_after=0.2).result()
        wait_until(lambda: len(kafka.consume_all(topic)) == 1, 60, what="the message")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert b"scheduler_stopped" in said


def test_a_setting_of_another_client_is_refused_in_a_sentence(kafka: Kafka) -> None:
    command = ["schedule", "run", "-b", kafka.bootstrap_servers, "--set"]
    refused = CliRunner().invoke(main, [*command, "linger.ms=5"])
    assert refused.exit_code == 2
    assert "linger.ms: found for an admin client, but it is a setting of a producer" in refused.stderr
    wrong = CliRunner().invoke(main, [*command, "session.timeout.ms=1d"])
    assert (wrong.exit_code, "session.timeout.ms" in wrong.stderr) == (2, True), wrong.stderr


def test_a_scheduler_serves_its_health(kafka: Kafka, name: str):
    command = [sys.executable, "-m", "ottla", "schedule", "run", "--name", name, "--health-port", "0"]
    command += ["--bootstrap-servers", kafka.bootstrap_servers]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        try:
            assert process.stderr is not None
            told = next(line for line in process.stderr if "health at" in line)
            url = told.split()[-1]
            wait_until(lambda: answered(url) == (200, []), 60, what="a scheduler that is ready")
            process.send_signal(signal.SIGTERM)
            assert "scheduler_stopped" in process.stderr.read()
        finally:
            process.kill()
    assert process.returncode == 0


def answered(url: str) -> tuple[int, list[str]]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, json.load(answer)["problems"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)["problems"]
