"""`ottla run --workers N` as processes: they share the partitions, one port answers for all, what dies is replaced, and
a stop drains each of them."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from process_lines import ProcessLines

from ottla import Int64, Outbox, Producer
from ottla.admin import Admin
from ottla.stores import Sqlite
from ottla.testing import wait_until

SERVICE = """
import os, sys, time
from pathlib import Path
from ottla import App, Int64

app = App({group!r}, drain_s=2, settings={{"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}})
worker = os.environ["OTTLA_WORKER"]

def say(text: str) -> None:
    os.write(1, (text + "\\n").encode())  # whole lines: the log of two processes comes the same way

@app.on_start
def hello() -> None:
    if Path("fails").exists():
        sys.exit(3)
    say(f"started {{worker}} {{os.getpid()}}")

@app.handler({topic!r}, value=Int64())
{kind}def handle(number: int) -> None:
    say(f"handled {{number}} by {{worker}}")
    if number == 666 and not Path("hung").exists():
        Path("hung").touch()
        time.sleep(3_600)

@app.on_stop
def bye() -> None:
    say(f"stopped {{worker}}")
"""

Run = Callable[..., ProcessLines]
LONG_SESSION = '"session.timeout.ms": 45_000'
"""Longer than any wait of these tests."""


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    return make_topic(partitions=4)


@pytest.fixture
def run(tmp_path: Path, kafka: Any, topic: str, kafka_group: str) -> Iterator[Run]:
    started: list[ProcessLines] = []
    for name, kind in (("many_service", ""), ("loop_service", "async ")):
        (tmp_path / f"{name}.py").write_text(SERVICE.format(group=kafka_group, topic=topic, kind=kind))

    def start(*arguments: str, app: str = "many_service:app", in_own_group: bool = False, **more: str) -> ProcessLines:
        command = [sys.executable, "-m", "ottla", "run", app, "--log-format", "json", *arguments]
        environ = {"OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, **more}
        process = ProcessLines(command, tmp_path, in_own_group=in_own_group, **environ)
        started.append(process)
        return process

    yield start
    for each in started:
        each.close()


def pid_of(running: ProcessLines, worker: int, *, other_than: int = 0) -> int:
    """Wait until a worker has started, and return its process id. Workers start in any order."""
    while True:
        found = [int(line.split()[-1]) for line in running.lines if line.startswith(f"started {worker} ")]
        if found and found[-1] != other_than:
            return found[-1]
        running.line("started ")


def health_of(running: ProcessLines) -> Callable[[str], tuple[int, dict[str, Any]]]:
    address = running.line("ottla: health at ").split(" at ")[1].removesuffix("/health/ready")

    def ask(path: str = "/health/ready") -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(address + path, timeout=10) as response:
                text = response.read().decode()
                return response.status, json.loads(text) if path != "/metrics" else {"text": text}
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    return ask


def share_partitions(ask: Callable[..., tuple[int, dict[str, Any]]]) -> bool:
    status, body = ask()
    return status == 200 and {each["worker"] for each in body["partitions"]} == {1, 2}


def produce(kafka: Any, topic: str, *numbers: int) -> None:
    for number in numbers:
        kafka.produce(topic, [number], value=Int64(), partition=number % 4)


@pytest.mark.complete
@pytest.mark.representative("threads")
@pytest.mark.parametrize("flags", [(), ("--asyncio",)], ids=["threads", "asyncio"])
def test_workers_share_the_partitions_and_a_signal_drains_all(
    run: Run, kafka: Any, topic: str, kafka_group: str, flags: tuple[str, ...]
) -> None:
    running = run("--workers", "2", "--health-port", "0", *flags)
    ask = health_of(running)
    assert len({pid_of(running, 1), pid_of(running, 2), running.process.pid}) == 3
    wait_until(lambda: share_partitions(ask), 30, what="both workers have partitions")
    with Admin(kafka.bootstrap_servers) as admin:
        (group,) = admin.describe_groups(kafka_group)
    assert {member.client_id for member in group.members or ()} == {"ottla-w1", "ottla-w2"}

    produce(kafka, topic, *range(8))
    while {line.split()[-1] for line in running.lines if line.startswith("handled")} != {"1", "2"}:
        running.line("handled")
    status, metrics = ask("/metrics")
    if status == 200:  # where OpenTelemetry's SDK and Prometheus' client are installed
        assert 'ottla_worker_ready{worker="2"} 1' in metrics["text"]
        assert '{worker="1",' in metrics["text"]
    while sum(line.startswith("handled") for line in running.lines) < 8:
        running.line("handled")

    running.process.send_signal(signal.SIGTERM)
    assert running.end() == 0, running.lines
    assert sum(line.startswith("handled") for line in running.lines) == 8
    assert {"stopped 1", "stopped 2"} <= set(running.lines)
    with Admin(kafka.bootstrap_servers) as admin:
        (group,) = admin.describe_groups(kafka_group)
    assert not group.members


@pytest.mark.complete
def test_a_worker_that_is_killed_is_named_and_started_again(run: Run, kafka: Any, topic: str) -> None:
    running = run("--workers", "2", "--health-port", "0")
    ask = health_of(running)
    killed = pid_of(running, 1)
    pid_of(running, 2)
    wait_until(lambda: share_partitions(ask), 30, what="both workers have partitions")
    os.kill(killed, signal.SIGKILL)
    problems: set[str] = set()

    def is_named() -> bool:
        problems.update(ask()[1]["problems"])
        return "worker 1: it has ended, and is started again" in problems

    wait_until(is_named, 10, what="the worker is named")
    assert "worker 2: it has ended, and is started again" not in problems
    assert ask("/health/live")[0] == 200, "a restart of all would not help"
    assert json.loads(running.line("worker_ended"))["exit_code"] == -signal.SIGKILL
    pid_of(running, 1, other_than=killed)
    wait_until(lambda: share_partitions(ask), 60, what="both workers have partitions again")
    assert ask("/health")[1]["workers"][0]["starts"] == 2
    produce(kafka, topic, 0, 1, 2, 3)
    while not all(any(line.startswith(f"handled {number} by") for line in running.lines) for number in range(4)):
        running.line("handled")
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 0


@pytest.mark.complete
def test_a_killed_worker_with_an_instance_id_gets_its_partitions_back_without_waiting(
    run: Run, tmp_path: Path, topic: str, kafka_group: str
) -> None:
    text = SERVICE.format(group=kafka_group, topic=topic, kind="").replace('"session.timeout.ms": 6_000', LONG_SESSION)
    (tmp_path / "static_service.py").write_text(text)
    running = run("--workers", "2", app="static_service:app", OTTLA_CONSUMER_GROUP_INSTANCE_ID="pod-0")
    killed = pid_of(running, 1)
    own = json.loads(running.line('"partitions_assigned", "worker": 2'))["partitions"]
    os.kill(killed, signal.SIGKILL)
    again = json.loads(running.line('"partitions_assigned", "worker": 1', timeout_s=40))["partitions"]
    assert {*own, *again} == {f"{topic}-{number}" for number in range(4)}, "what worker 2 did not take"
    running.process.send_signal(signal.SIGTERM)
    assert running.end() == 0


@pytest.mark.complete
@pytest.mark.representative("frozen")
@pytest.mark.parametrize("how", ["frozen", "in its handler", "blocks its loop"])
def test_a_worker_that_hangs_is_replaced_although_its_process_exists(
    run: Run, kafka: Any, topic: str, how: str
) -> None:
    on_loop = {"app": "loop_service:app"} if how == "blocks its loop" else {}
    running = run("--workers", "1", "--hung-after", "4", *(("--asyncio",) if on_loop else ()), **on_loop)
    first = pid_of(running, 1)
    if how == "frozen":
        os.kill(first, signal.SIGSTOP)
    else:
        produce(kafka, topic, 666)
        running.line("handled 666 by 1")
    replaced = json.loads(running.line("worker_replaced"))
    assert replaced["reason"] == "it makes no progress"
    assert replaced["for_s"] >= replaced["limit_s"] == 4
    pid_of(running, 1, other_than=first)
    produce(kafka, topic, 670)
    running.line("handled 670 by 1", timeout_s=60)
    if how != "frozen":
        assert running.lines.count("handled 666 by 1") == 2, "delivered again, before what follows it"
    running.process.send_signal(signal.SIGTERM)
    assert running.end() == 0


@pytest.mark.complete
def test_one_worker_relays_the_outbox_and_both_share_the_schedule(
    run: Run, kafka: Any, topic: str, tmp_path: Path
) -> None:
    outbox = Outbox(Sqlite(str(tmp_path / "shop.db")), value=Int64())
    outbox.create_tables()
    (tmp_path / "beside_service.py").write_text(
        SERVICE.format(group=topic, topic=topic, kind="").replace("drain_s=2", f"scheduler={topic!r}, drain_s=2")
        + "\nfrom ottla import Outbox\nfrom ottla.stores import Sqlite\n"
        + "app.relay(Outbox(Sqlite('shop.db')), interval_s=0.05, lease_s=1)\n"
    )
    running = run("--workers", "2", app="beside_service:app")
    pid_of(running, 1)
    pid_of(running, 2)
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        for number in range(40):
            outbox.add(connection, topic, number)
    connection.close()
    with Producer(kafka.bootstrap_servers, value=Int64(), schedule=topic) as producer:
        for number in range(40, 80):
            producer.send(topic, number, deliver_after=1)
    while len({line.split()[1] for line in running.lines if line.startswith("handled")}) < 80:
        running.line("handled", timeout_s=60)
    running.process.send_signal(signal.SIGTERM)
    assert running.end() == 0
    assert sum(line.startswith("handled") for line in running.lines) == 80, "each once"


@pytest.mark.complete
def test_a_second_signal_ends_all_at_once_and_a_signal_to_the_whole_group_is_one(
    run: Run, kafka: Any, topic: str
) -> None:
    running = run("--workers", "2", in_own_group=True)
    pid_of(running, 1)
    pid_of(running, 2)
    os.killpg(running.process.pid, signal.SIGTERM)  # as systemd does: to the workers as well
    assert running.end() == 0
    assert {"stopped 1", "stopped 2"} <= set(running.lines), "gracefully"

    running = run("--workers", "1")
    pid_of(running, 1)
    (Path(running.folder) / "hung").unlink(missing_ok=True)
    produce(kafka, topic, 666)
    running.line("handled 666 by 1")
    running.process.send_signal(signal.SIGTERM)
    running.line("app_stopping")
    running.process.send_signal(signal.SIGTERM)
    running.line("ended at once by a second signal; delivered again: ", f"{topic}-2 from offset 0")
    assert running.end() == 128 + signal.SIGTERM


WORKER_THAT_STARTS_SLOWLY = """
import os, time
if "OTTLA_WORKER" in os.environ:
    os.write(1, b"begins\\n")
    while not os.path.exists("may_go_on"):
        time.sleep(0.01)
"""


def test_ctrl_c_while_a_worker_starts_is_one_stop_without_a_traceback(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WORKER_THAT_STARTS_SLOWLY)
    running = run("--workers", "2", in_own_group=True, PYTHONPATH=str(tmp_path))
    running.line("begins")
    os.killpg(running.process.pid, signal.SIGINT)  # as a terminal does: to the workers as well
    (tmp_path / "may_go_on").touch()
    assert running.end() == 0
    assert not [line for line in running.lines if "Traceback" in line or "KeyboardInterrupt" in line]


@pytest.mark.complete
def test_workers_whose_supervisor_was_killed_drain_and_end(run: Run) -> None:
    running = run("--workers", "2")
    pid_of(running, 1)
    pid_of(running, 2)
    running.process.kill()
    running.end()
    assert {"stopped 1", "stopped 2"} <= set(running.lines)


@pytest.mark.complete
def test_a_worker_that_always_fails_is_given_up_with_its_exit_code(run: Run, tmp_path: Path) -> None:
    (tmp_path / "fails").touch()
    running = run("--workers", "2")
    assert running.end(120) == 3
    events = [json.loads(line)["event"] for line in running.lines if line.startswith("{")]
    assert events.count("workers_given_up") == 1
    assert events.count("worker_ended") >= 4
    assert len([line for line in running.lines if "in 2 workers" in line]) == 1
    assert '"worker": 1' in "".join(running.lines)


@pytest.mark.complete
@pytest.mark.representative("an import error")
@pytest.mark.parametrize(
    ("module", "message", "code"),
    [
        pytest.param("import there_is_no_such_module", "No module named", 1, id="an import error"),
        pytest.param(
            "from ottla import App, Inbox\nfrom ottla.stores import Memory\napp = App('g')\n"
            "@app.handler('t', inbox=Inbox(Memory()))\ndef on_order(value: bytes) -> None: ...",
            "ConfigError: --workers: inbox= or offsets= of on_order: found Memory in the memory of one process",
            2,
            id="an inbox in memory",
        ),
    ],
)
def test_an_app_that_cannot_run_in_workers_is_refused_once(
    run: Run, tmp_path: Path, module: str, message: str, code: int
) -> None:
    (tmp_path / "refused_service.py").write_text(module)
    running = run("--workers", "3", app="refused_service:app")
    assert running.end() == code
    assert sum(message in line for line in running.lines) == 1
    given_up = [json.loads(line) for line in running.lines if "workers_given_up" in line]
    assert [each["worker"] for each in given_up] == [1]
