"""The README's first run starts from nothing: an empty folder, its commands, its code, and no topic there before."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SERVICE, SENDER, TEST = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = re.search(r"```bash\n(.*?)```", README, re.DOTALL)[1].strip().splitlines()

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture
def start(tmp_path: Path, port: str) -> Iterator[Start]:
    """Starts a command of the README in an empty folder, as a new user's shell would."""
    started: list[subprocess.Popen[str]] = []
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OTTLA_", "PYTHON"))}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"

    def run(command: list[str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [part.replace("9092", port) for part in command],
            cwd=tmp_path,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield run
    for process in reversed(started):
        process.kill()
        process.communicate()


@pytest.mark.parametrize("flags", [[], ["--asyncio"]], ids=["threads", "asyncio"])
def test_the_first_run_prints_the_order(start: Start, tmp_path: Path, flags: list[str]) -> None:
    install_command, broker_command, service_command = COMMANDS
    assert install_command == "pip install ottla", "what the test environment has"
    broker = start(broker_command.split())
    assert broker.stdout is not None
    assert broker.stdout.readline().startswith("ready bootstrap=")

    (tmp_path / "service.py").write_text(SERVICE)
    service = start([*service_command.split(), *flags])
    sender = start([sys.executable, "-c", SENDER])
    _, said = sender.communicate(timeout=60)
    assert (sender.returncode, said) == (0, "")
    assert service.stdout is not None
    assert "The service prints `order 1: 9.50`" in README
    assert service.stdout.readline() == "order 1: 9.50\n"

    service.send_signal(signal.SIGINT)
    _, said = service.communicate(timeout=60)
    assert service.returncode == 0, said
    assert "Traceback" not in said
    assert "error" not in said.lower()


def test_the_service_has_as_many_lines_as_it_says() -> None:
    assert "in fifteen lines" in SERVICE
    code = [line for line in SERVICE.splitlines()[1:] if line.strip()]
    assert len(code) <= 15


def test_the_test_that_is_shown_passes(tmp_path: Path) -> None:
    (tmp_path / "test_readme.py").write_text(TEST)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout
