"""The examples in the help of commands that run services, look into databases and steer the embedded broker."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from help_examples import examples_of_nouns

from broker_embedded.cluster import EmbeddedCluster
from ottla import Outbox, Producer, TopicPartition
from ottla.cli import main
from ottla.schedule.headers import DEFAULT_NAME
from ottla.schedule.tasks.task_records import Definition
from ottla.stores import Sqlite
from ottla.sync.serve.scheduler import Scheduler
from ottla.sync.serve.task_registration import register_tasks
from ottla.testing import Kafka, wait_until

pytestmark = pytest.mark.complete

SERVICE = """
from ottla import App

app = App("billing")

@app.handler("orders", value=bytes)
def on_order(value: bytes) -> None:
    pass
"""
CLUSTERS = '[clusters.prod]\nbootstrap.servers = "{servers}"\n'

UNTIL_STOPPED = {
    "broker start": r"ready bootstrap=",
    "console": r"Uvicorn running|http://127",
    "exporter": r"metrics at http://",
    "outbox relay": r"relaying",
    "registry start": r"ready registry=",
    "run": r"partitions_assigned",
    "schedule run": r"delivering",
}
"""What a command prints when it serves, and can be told to stop."""
IN_PLACE_OF = {
    "postgresql://db/billing": "billing.db",  # a file in place of a server
    "postgresql://db/shop": "shop.db",
    "--port 9092": "--port 0",  # ports that are free
    "--health-port 8080": "--health-port 0",
    "ottla registry start": "ottla registry start --port 0",
    "--control-port 8083": "--control-port 0",
}
EXAMPLES = examples_of_nouns(
    *("config", "console", "exporter", "explain", "store-offsets", "outbox", "registry", "run", "schedule")
)
STARTS = [(path, line) for path, line in examples_of_nouns("broker") if line.startswith("ottla broker start --")]
OF_A_CLUSTER = [(path, line) for path, line in examples_of_nouns("broker") if (path, line) not in STARTS]


def runnable(line: str) -> list[str]:
    for found, instead in IN_PLACE_OF.items():
        line = line.replace(found, instead)
    return shlex.split(line)[1:]


def command_of(arguments: list[str]) -> str:
    if arguments[:2] == ["exporter", "--once"]:
        return "exporter --once"
    return " ".join(arguments[:2]) if arguments[0] in ("broker", "outbox", "registry", "schedule") else arguments[0]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"group.initial.rebalance.delay.ms": 0}) as running:
        kafka = Kafka(running.bootstrap_servers, kind="embedded", cluster=running)
        kafka.create_topic("orders", partitions=3)
        kafka.produce("orders", [b"1", b"2"], partition=0)
        for name in ("default", "reminders"):
            with Scheduler(kafka.bootstrap_servers, name=name):
                pass
        tasks = [
            Definition(id=f"billing/{id}", version=(1,), topic="orders", every_ms=3_600_000)
            for id in ("daily-report", "old-report")
        ]
        register_tasks(kafka.bootstrap_servers, DEFAULT_NAME, tasks, settings={})
        yield running


@pytest.fixture
def prepared(cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the examples speak of: a service, its offsets in a database, refused rows of an outbox, a late message."""
    monkeypatch.chdir(tmp_path)
    with Producer(cluster.bootstrap_servers, schedule="default") as producer:
        producer.send("orders", b"later", deliver_after=7_200, schedule_id="invoice-17").result()

    place = TopicPartition("orders", 0)
    store = Sqlite("billing.db")
    store.create_tables()
    session = store.session()
    session.pass_offset("billing", place, 1, session.claim_offsets("billing", "host/1", [place])[place].epoch)
    session.close()

    outbox = Outbox(Sqlite("shop.db"))
    outbox.create_tables()
    with sqlite3.connect("shop.db") as connection:
        for _ in range(2):
            outbox.add(connection, "orders", b"1", key=b"k")
        connection.execute("UPDATE ottla_outbox SET id = id + 4710")
    connection.close()
    parking = outbox.session()
    for number in (4711, 4712):
        parking.park(number, "RecordTooLarge: too large")
    parking.close()

    Path("users.txt").write_text("app=secret\n")
    Path("billing.py").write_text(SERVICE)
    Path("clusters.toml").write_text(CLUSTERS.format(servers=cluster.bootstrap_servers))
    Path("clusters.toml").chmod(0o600)
    return {"OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "OTTLA_CLUSTERS": "clusters.toml"}


@pytest.mark.parametrize(("path", "example"), EXAMPLES, ids=[f"{path}: {line}" for path, line in EXAMPLES])
def test_the_examples_run(path: str, example: str, prepared: dict[str, str]) -> None:
    arguments = runnable(example)
    if command_of(arguments) in UNTIL_STOPPED:
        starts_and_stops(arguments, prepared)
        return
    ended = CliRunner().invoke(main, [*arguments, *agreed(arguments)], env=prepared)
    assert ended.exit_code == 0, ended.output
    assert "Traceback" not in ended.output


def agreed(arguments: list[str]) -> list[str]:
    """What a person would type at the question."""
    asks = (["outbox", "retry"], ["outbox", "drop"], ["schedule", "pause"], ["schedule", "resume"])
    return ["--yes"] if arguments[:2] in asks else []


def starts_and_stops(arguments: list[str], environment: dict[str, str]) -> None:
    if arguments[0] == "console":
        pytest.importorskip("starlette")
    if arguments[0] in ("console", "exporter"):
        arguments = [*arguments, "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "ottla", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment, "BROWSER": "true"},
    )
    try:
        assert process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if re.search(UNTIL_STOPPED[command_of(arguments)], line):
                break
        assert process.poll() is None, "".join(said)
        if arguments[0] == "console":
            answers(said[-1])
        process.send_signal(signal.SIGINT if arguments[0] == "console" else signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode in (0, *([130] if arguments[0] == "console" else [])), "".join(said) + rest
        assert "Traceback" not in "".join(said) + rest
    finally:
        process.kill()
        process.communicate()


def answers(address: str) -> None:
    """Wait until the server behind the address serves: from then on it can be told to stop."""
    import http.client

    found = re.search(r"127\.0\.0\.1:(\d+)/", address)
    assert found is not None, address

    def is_there() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=30)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status < 500
        except ConnectionError:
            return False
        finally:
            connection.close()

    wait_until(is_there, timeout_s=30)


@pytest.mark.parametrize(("path", "example"), STARTS, ids=[f"{path}: {line}" for path, line in STARTS])
def test_a_broker_of_an_example_starts_and_stops(path: str, example: str) -> None:
    starts_and_stops(runnable(example), {})


@pytest.fixture(scope="module")
def control() -> Iterator[Callable[..., str]]:
    """`control("kill", "2")` on three brokers in a process of their own."""
    options = ["--brokers", "3", "--control-port", "0", "--virtual-clock", "--log-level", "error"]
    command = [sys.executable, "-m", "ottla", "broker", "start", *options, "--topics", "orders:1:3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        url = process.stdout.readline().removeprefix("control=").strip()

        def run(*arguments: str) -> str:
            words = [url if word == "http://127.0.0.1:8083" else word for word in arguments]
            ended = CliRunner().invoke(main, ["broker", *words], env={"OTTLA_BROKER_CONTROL": url})
            assert ended.exit_code == 0, (words, ended.output)
            return str(ended.output)

        yield run
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.parametrize(("path", "example"), OF_A_CLUSTER, ids=[f"{path}: {line}" for path, line in OF_A_CLUSTER])
def test_the_examples_of_a_cluster_that_runs(path: str, example: str, control: Callable[..., str]) -> None:
    arguments = shlex.split(example)[2:]
    with as_the_example_needs_it(arguments, control) as adapted:
        assert control(*adapted)


@contextmanager
def as_the_example_needs_it(arguments: list[str], control: Callable[..., str]) -> Iterator[list[str]]:
    """Broker 2 is down for what starts it, a fault is there for what releases or removes it; afterwards all is well."""
    if arguments[0] == "start":
        control("kill", "2")
    elif arguments[0] == "resume":
        control("pause", "2")
    elif arguments[0] == "faults" and arguments[-1] == "1":
        added = control("faults", "add", "--api", "PRODUCE", "--hold")
        arguments = [*arguments[:-1], added.split()[1].rstrip(":")]
    yield arguments
    if arguments[0] in ("kill", "stop"):
        control("start", "2")
    elif arguments[0] == "pause":
        control("resume", "2")
    control("links", "heal")
    control("disks", "heal")
    control("faults", "remove", "--all")
    control("wait", "--controller", "any", "--timeout-ms", "30000")
