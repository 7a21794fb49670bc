from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker_embedded.__main__ import main as module_main
from broker_embedded.process_options import GENERAL, SECURITY
from ottla.cli import main
from ottla.testing import Kafka

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "ottla", "broker", "start", "--log-level", "error", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("ready bootstrap="), line
    return line.removeprefix("ready bootstrap=").strip()


def three_free_ports() -> int:
    """The first of three neighbouring ports that nobody listens on."""
    while True:
        with ExitStack() as held:
            first = held.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            base: int = first.getsockname()[1]
            try:
                for port in (base + 1, base + 2):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
            return base


@pytest.mark.slow
def test_it_says_where_it_is_serves_clients_and_ends_cleanly_on_sigterm(start: Start, tmp_path: Path) -> None:
    process = start("--data-dir", str(tmp_path), "--set", "num.partitions=2")
    kafka = Kafka(address_of(process), kind="external")
    kafka.create_topic("orders")
    kafka.produce("orders", ["a"])
    assert [record.raw_value for record in kafka.consume_all("orders")] == [b"a"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


@pytest.mark.slow
def test_three_brokers_take_three_ports_from_the_one_given(start: Start) -> None:
    base = three_free_ports()
    addresses = address_of(start("--brokers", "3", "--port", str(base))).split(",")
    assert addresses == [f"127.0.0.1:{base + n}" for n in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [(["--set", "novalue"], "KEY=VALUE"), (["--set", "no.such.setting=1"], "no.such.setting")],
)
def test_what_it_cannot_start_with_is_one_line_and_exit_code_2(start: Start, arguments: list[str], wanted: str) -> None:
    process = start(*arguments)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 2
    assert wanted in errors
    assert "Traceback" not in errors


def test_wrong_options_are_refused_before_anything_starts() -> None:
    for arguments in (["--brokers", "0"], ["--port", "70000"], ["--log-level", "loud"]):
        assert CliRunner().invoke(main, ["broker", "start", *arguments]).exit_code == 2


@pytest.mark.parametrize("option", [each.name for each in (*GENERAL, *SECURITY) if each.alone is None])
def test_an_option_without_its_value_is_refused(option: str) -> None:
    result = CliRunner().invoke(main, ["broker", "start", "--log-dirs", "0", option])
    assert (result.exit_code, f"Option '{option}' requires an argument" in result.stderr) == (2, True)


def test_help_names_the_line_that_scripts_wait_for() -> None:
    shown = CliRunner().invoke(main, ["broker", "start", "--help"]).output
    assert "ready bootstrap=" in shown


def test_help_of_the_module_says_that_it_takes_bytes_without_units(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        module_main(["--help"])
    assert "--log-dir-bytes BYTES,..." in capsys.readouterr().out
