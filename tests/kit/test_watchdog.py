"""What `tools/watchdog.py` guards ends with the process that started it, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import apache_kafka
import pytest
from watchdog import Watchdog

from ottla.testing import wait_until

TOOLS = Path(apache_kafka.__file__).parent
GUARDED = """
import subprocess, sys
from pathlib import Path
from watchdog import Watchdog

folder = Path(sys.argv[1])
folder.mkdir()
watchdog = Watchdog(folder)
processes = [subprocess.Popen(["sleep", "300"], stdout=subprocess.DEVNULL, start_new_session=True) for _ in range(3)]
watchdog.guard(process.pid for process in processes)
watchdog.guard(process.pid for process in processes[1:])
print(*(process.pid for process in processes), flush=True)
sys.stdin.readline()
watchdog.close()
"""
UNGUARDED = """
import os, signal, subprocess, sys
from pathlib import Path
from watchdog import Watchdog

folder = Path(sys.argv[1])
folder.mkdir()
watchdog = Watchdog(folder)
if sys.argv[2] == "ended":
    process = subprocess.Popen(["true"])
    watchdog.guard([process.pid])
    process.wait()
    watchdog.guard([])
os.kill(os.getpid(), signal.SIGKILL)
"""
KAFKA = """
import sys
from apache_kafka import ApacheKafka

with ApacheKafka() as kafka:
    print(kafka.data_dir, *kafka.pids(), flush=True)
    sys.stdin.readline()
"""


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # nobody may wait for it any more


def started(program: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(TOOLS)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
def test_what_is_guarded_ends_with_a_process_that_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "data"
    with started(GUARDED, str(folder)) as process:
        assert process.stdout is not None
        no_longer, *guarded = map(int, process.stdout.readline().split())
        assert all(map(is_running, guarded))
        process.send_signal(number)
        process.wait()
    try:
        wait_until(lambda: not any(map(is_running, guarded)) and not folder.exists(), timeout_s=30)
        assert is_running(no_longer)
    finally:
        os.kill(no_longer, signal.SIGKILL)


def test_nothing_is_ended_by_a_watchdog_that_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with started(GUARDED, str(folder)) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        process.communicate("\n")
    assert process.returncode == 0
    assert all(map(is_running, pids))
    assert folder.exists()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("guarded", ["nothing", "ended"])
def test_the_folder_is_removed_where_nothing_is_guarded(tmp_path: Path, guarded: str) -> None:
    folder = tmp_path / "data"
    with started(UNGUARDED, str(folder), guarded) as process:
        assert process.wait() == -signal.SIGKILL
    wait_until(lambda: not folder.exists(), timeout_s=30)


def test_a_watchdog_that_was_killed_can_be_closed(tmp_path: Path) -> None:
    watchdog = Watchdog(tmp_path)
    os.kill(watchdog._shell.pid, signal.SIGKILL)
    watchdog._shell.wait()
    watchdog.guard([os.getpid()])
    watchdog.close()
    assert tmp_path.exists()


@pytest.mark.complete
def test_apache_kafka_ends_with_a_process_that_is_killed() -> None:
    try:
        apache_kafka.libraries(apache_kafka.newest())
    except apache_kafka.Unavailable as reason:
        pytest.skip(str(reason))
    with started(KAFKA) as process:
        assert process.stdout is not None
        folder, *pids = process.stdout.readline().split()
        assert is_running(int(pids[0]))
        process.kill()
        process.wait()
    wait_until(lambda: not is_running(int(pids[0])) and not Path(folder).exists(), timeout_s=30)
