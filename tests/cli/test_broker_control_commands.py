"""`ottla broker ...` against a cluster in a process of its own, as somebody at a terminal uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException, Producer

from ottla.cli import main
from ottla.testing import Kafka

Run = Callable[..., str]


class Process:
    """A cluster started with `ottla broker start --control-port 0`."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "ottla", "broker", "start", "--log-level", "error", "--control-port", "0"]
        self.process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
        self.bootstrap_servers = self._line("ready bootstrap=")
        self.control = self._line("control=")

    def _line(self, start: str) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(start), line
        return line.removeprefix(start).strip()

    def stop(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()
            self.process.communicate()


@pytest.fixture(scope="module")
def three() -> Iterator[Process]:
    process = Process("--brokers", "3", "--virtual-clock")
    Kafka(process.bootstrap_servers, kind="external").create_topic("t", partitions=2, replication_factor=3)
    yield process
    assert process.stop() == 0


@pytest.fixture
def ottla(three: Process) -> Run:
    """Run `ottla broker ...` and return what it printed; it must end with this exit code."""

    def run(*arguments: str, exit_code: int = 0) -> str:
        result = CliRunner().invoke(main, ["broker", *arguments], env={"OTTLA_BROKER_CONTROL": three.control})
        assert result.exit_code == exit_code, result.output
        return result.stdout if exit_code == 0 else result.output

    return run


@pytest.mark.slow
def test_the_control_api_is_on_the_second_line_and_on_loopback(three: Process, ottla: Run) -> None:
    assert three.control.startswith("http://127.0.0.1:")
    shown = ottla("status")
    for node, address in enumerate(three.bootstrap_servers.split(","), start=1):
        assert f"broker {node}  {address}  running" in shown
    assert "t-0  leader " in shown


@pytest.mark.slow
def test_a_fault_is_added_met_by_a_client_and_removed(three: Process, ottla: Run) -> None:
    added = ottla("faults", "add", "--api", "PRODUCE", "--topic", "t", "--error", "TOPIC_AUTHORIZATION_FAILED")
    number = added.split()[1].rstrip(":")
    assert "(0 hits)" in added
    producer = Producer({"bootstrap.servers": three.bootstrap_servers, "log_level": 0})
    errors: list[KafkaException] = []
    producer.produce("t", b"x", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert "TOPIC_AUTHORIZATION_FAILED" in str(errors[0])
    ottla("wait", "--fault", number, "--hits", "1", "--timeout-ms", "30000")
    assert "error=TOPIC_AUTHORIZATION_FAILED" in ottla("faults", "list")
    assert "Fault" in ottla("explain", "t", "0")
    assert "over" in ottla("faults", "remove", number)
    assert ottla("faults", "list") == "no faults\n"
    assert ottla("faults", "remove", "--all") == "no faults\n"


@pytest.mark.slow
def test_a_held_request_is_released(three: Process, ottla: Run) -> None:
    number = ottla("faults", "add", "--api", "PRODUCE", "--client-id", "held", "--hold").split()[1].rstrip(":")
    producer = Producer({"bootstrap.servers": three.bootstrap_servers, "client.id": "held", "log_level": 0})
    producer.produce("t", b"x", partition=1)
    ottla("wait", "--fault", number, "--hits", "1", "--timeout-ms", "30000")
    assert "holds 1" in ottla("faults", "list")
    assert "over" in ottla("faults", "release", number)
    assert producer.flush(30) == 0
    ottla("faults", "remove", "--all")


@pytest.mark.slow
def test_a_leader_is_killed_another_is_waited_for_and_the_old_one_started(three: Process, ottla: Run) -> None:
    ottla("wait", "--topic", "t", "--partition", "0", "--leader", "any", "--isr", "1,2,3", "--timeout-ms", "30000")
    (line,) = [line for line in ottla("status").splitlines() if line.startswith("t-0 ")]
    leader = line.split("leader ")[1].split()[0]
    rest = [node for node in ("1", "2", "3") if node != leader]
    assert ottla("kill", leader) == f"broker {leader}: killed\n"
    ottla(
        "wait", "--topic", "t", "--partition", "0", "--leader", "any", "--isr", ",".join(rest), "--timeout-ms", "30000"
    )
    assert f"{leader} is killed" in ottla("explain", "t")
    assert "found killed, wanted" in ottla("stop", leader, exit_code=2)
    assert ottla("start", leader) == f"broker {leader}: running\n"
    ottla("wait", "--topic", "t", "--isr", "1,2,3", "--timeout-ms", "30000")
    assert ottla("pause", rest[0]) == f"broker {rest[0]}: paused\n"
    assert ottla("resume", rest[0]) == f"broker {rest[0]}: running\n"
    ottla("wait", "--topic", "t", "--isr", "1,2,3", "--controller", "any", "--timeout-ms", "30000")


@pytest.mark.slow
def test_links_and_disks_are_broken_and_healed(ottla: Run) -> None:
    assert "1 -> 2: slow by 5 ms" in ottla("links", "slow", "1", "2", "--delay-ms", "5", "--one-way")
    assert "1 -> 3: cut" in ottla("links", "cut", "1", "3", "--one-way")
    assert "1 -> 2: slow" in ottla("links", "list")
    assert ottla("links", "heal") == "all links are whole\n"
    assert "broker 2: full" in ottla("disks", "break", "2", "full")
    assert "broker 2: full" in ottla("disks", "list")
    assert ottla("disks", "heal", "2") == "all disks are well\n"


@pytest.mark.slow
def test_a_broker_joins_while_the_cluster_runs(tmp_path: Path) -> None:
    process = Process("--brokers", "2", "--racks", "a,b", "--log-dirs", "2", "--log-dir-bytes", "10MiB,20MiB")
    try:
        environment = {"OTTLA_BROKER_CONTROL": process.control, "OTTLA_BOOTSTRAP_SERVERS": process.bootstrap_servers}
        environment["OTTLA_CLUSTERS"] = str(tmp_path / "none.toml")
        added = CliRunner().invoke(main, ["broker", "add", "--rack", "c"], env=environment)
        assert added.output.startswith("broker 3: running 127.0.0.1:"), added.output
        shown = CliRunner().invoke(main, ["cluster", "facts"], env=environment)
        brokers = json.loads(shown.stdout)["brokers"]
        assert [each["rack"] for each in brokers] == ["a", "b", "c"]
        assert [sorted(each["total_bytes"] for each in broker["log_dirs"]) for broker in brokers] == [
            [10 << 20, 20 << 20]
        ] * 3
        resized = CliRunner().invoke(
            main, ["broker", "disks", "break", "3", "limited", "--dir", "0", "--bytes", "1GiB"], env=environment
        )
        assert "broker 3: limited" in resized.output
    finally:
        assert process.stop() == 0


@pytest.mark.slow
def test_time_moves_forward(ottla: Run) -> None:
    before = int(ottla("advance", "0").split()[1])
    after = int(ottla("advance", "60000").split()[1])
    assert after - before >= 60_000
    ottla("wait", "--topic", "t", "--leader", "any", "--controller", "any", "--timeout-ms", "30000")


@pytest.mark.slow
def test_refusals_are_one_line_in_the_words_of_the_api(ottla: Run) -> None:
    assert "did you mean PRODUCE" in ottla("faults", "add", "--api", "PRODUCED", "--hold", exit_code=2)
    assert "broker: found 9, wanted one of 1, 2, 3" in ottla("kill", "9", exit_code=2)
    assert "wanted [7]" in ottla("wait", "--topic", "t", "--isr", "7", "--timeout-ms", "1", exit_code=2)
    assert "name one FAULT" in ottla("faults", "remove", exit_code=2)


def test_without_a_control_api_it_is_said_how_to_have_one() -> None:
    result = CliRunner().invoke(main, ["broker", "status"], env={"OTTLA_BROKER_CONTROL": ""})
    assert result.exit_code == 2
    assert "ottla broker start --control-port 0" in result.output
    for url in ("127.0.0.1", "http://127.0.0.1:x", "https://127.0.0.1:1"):
        result = CliRunner().invoke(main, ["broker", "status", "--control", url])
        assert (result.exit_code, "wanted http://127.0.0.1:PORT" in result.output) == (2, True), result.output
    result = CliRunner().invoke(main, ["broker", "status", "--control", "http://127.0.0.1:1"])
    assert result.exit_code == 2
    assert "no control API at http://127.0.0.1:1" in result.output


@pytest.mark.slow
def test_a_control_port_that_none_can_be_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla", "broker", "start", "--control-port", "65536"]
    data = tmp_path / "data"
    ended = subprocess.run([*command, "--data-dir", str(data)], capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "broker_embedded: --control-port: found 65536, wanted 0 to 65535\n"
    assert not data.exists() or not list(data.iterdir())


def test_a_control_port_that_is_taken_is_one_line_and_exit_code_2(three: Process) -> None:
    command = [sys.executable, "-m", "ottla", "broker", "start", "--log-level", "error"]
    taken = three.control.rpartition(":")[2]
    ended = subprocess.run([*command, "--control-port", taken], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "in use" in ended.stderr
    assert ended.stdout == ""


@pytest.mark.slow
def test_without_a_virtual_clock_time_cannot_be_moved() -> None:
    process = Process()
    try:
        result = CliRunner().invoke(main, ["broker", "advance", "5", "--control", process.control])
        assert result.exit_code == 2
        assert "virtual" in result.output.lower()
    finally:
        assert process.stop() == 0
