"""A warm process behaves as a fresh one, as far as the tests that kill it look."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from warm_processes import WarmProcess

from ottla.testing import wait_until

SCRIPT = """
import os, sys, threading, time
from fractions import Fraction

number = 0

def main(what="", *more):
    global number
    number += 1
    print(__name__, number, "fractions" in sys.modules, *more, flush=True)
    if what == "end":
        sys.exit(7)
    if what == "fail":
        raise ValueError("as it should")
    if what == "threads":
        threading.Thread(target=print, args=["of a thread"]).start()
        return
    time.sleep(60)

if __name__ == "__main__":
    main(*sys.argv[1:])
"""

pytestmark = [pytest.mark.complete, pytest.mark.skipif(sys.platform != "linux", reason="needs pidfd_open and /proc")]


@pytest.fixture(params=["text", "file"])
def script(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    if request.param == "text":
        return SCRIPT
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def test_each_start_runs_the_script_from_its_first_line(script: str | Path) -> None:
    for _ in range(2):
        with WarmProcess(script, "end", "with this", stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.read() == "__main__ 1 True with this\n"
            assert process.wait(60) == 7
        assert process.poll() == 7


def test_what_it_does_not_catch_ends_it_with_a_traceback(script: str | Path, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log, WarmProcess(script, "fail", stdout=log, stderr=log) as process:
        assert process.wait(60) == 1
    assert (tmp_path / "log").read_text().endswith("ValueError: as it should\n")


def test_its_threads_are_waited_for_at_its_end(script: str | Path) -> None:
    with WarmProcess(script, "threads", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read() == "__main__ 1 True\nof a thread\n"
        assert process.wait(60) == 0


def test_it_is_stopped_continued_and_killed_by_signals(script: str | Path) -> None:
    with WarmProcess(script, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert process.poll() is None
        assert not process.is_stopped()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(signal.SIGSTOP)
        wait_until(process.is_stopped, 30, what="the stop")
        process.send_signal(signal.SIGCONT)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        process.kill()  # nobody is there any more
        with pytest.raises(AssertionError, match="it ended: -9"):
            process.is_stopped()


def test_it_has_the_environment_of_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import os\nprint(os.environ.get('WARM'))"
    for value in ("one", "other"):
        monkeypatch.setenv("WARM", value)
        with WarmProcess(script, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.read() == f"{value}\n"


def test_a_template_with_a_thread_does_not_fork(tmp_path: Path) -> None:
    (tmp_path / "with_a_thread.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    script = tmp_path / "script.py"
    script.write_text("import with_a_thread\n")
    with pytest.raises(AssertionError, match="the template has ended"):
        WarmProcess(script)
