"""The demo's data, display and child processes, each without the others."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

from ottla.cli.demo.background import Background
from ottla.cli.demo.children import Child, ChildFailed
from ottla.cli.demo.data import read_flights, read_weather
from ottla.cli.demo.display import DemoDisplay, DemoStage
from ottla.testing import wait_until


def test_flights_come_in_order_of_scheduled_departure_and_some_are_cancelled():
    flights = read_flights(2_000)
    assert len(flights) == 2_000
    assert [f.scheduled_ms for f in flights] == sorted(f.scheduled_ms for f in flights)
    assert any(f.dep_time is None and f.dep_delay is None for f in flights)


def test_weather_covers_every_airport_up_to_the_hour_asked_for():
    last_ms = 1_357_100_000_000
    weather = list(read_weather(last_ms))
    assert {w.origin for w in weather} == {"EWR", "JFK", "LGA"}
    assert max(w.hour_ms for w in weather) <= last_ms < max(w.hour_ms for w in weather) + 3_600_000


def test_where_output_is_not_a_terminal_each_stage_says_when_it_starts_and_ends():
    stream = io.StringIO()
    stage = DemoStage(name="producer", unit="flights", total=10)
    with DemoDisplay(Console(file=stream, force_terminal=False, width=40), [stage]) as display:
        display.refresh()
        stage.start()
        display.refresh()
        display.refresh()
        stage.done = 10
        stage.finish()
        display.refresh()
    lines = stream.getvalue().splitlines()
    assert [line.split()[:2] for line in lines] == [["producer", "running"], ["producer", "done"]]
    assert "10 of 10 flights" in lines[-1]
    assert "\x1b" not in stream.getvalue()


def test_in_a_terminal_the_stages_are_a_live_table():
    stream = io.StringIO()
    stage = DemoStage(name="producer", unit="flights", total=10)
    with DemoDisplay(Console(file=stream, force_terminal=True, width=100), [stage]) as display:
        stage.start()
        stage.done = 4
        display.refresh()
    assert "4 of 10 flights" in stream.getvalue()
    assert "\x1b[" in stream.getvalue()


def child(tmp_path, code: str, lines: list[str]) -> Child:
    return Child("child", ["-c", code], log_path=tmp_path / "child.log", on_line=lines.append)


def test_a_child_that_fails_is_named_with_the_end_of_its_log(tmp_path):
    failing = child(tmp_path, "import sys; print('no disk', file=sys.stderr); sys.exit(3)", [])
    with pytest.raises(ChildFailed, match=r"child ended with exit code 3(.|\n)*no disk"):
        failing.wait_finished(20)
    failing.stop()


def test_stopping_a_child_ends_what_it_started_too(tmp_path):
    lines: list[str] = []
    code = (
        "import subprocess, sys, time\n"
        "grandchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(grandchild.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    running = child(tmp_path, code, lines)
    wait_until(lambda: lines, timeout_s=20)
    running.stop()
    grandchild = int(lines[0])
    wait_until(lambda: not is_running(grandchild), timeout_s=10)


@pytest.mark.complete
def test_a_child_that_ignores_sigterm_is_killed(tmp_path):
    lines: list[str] = []
    code = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(600)"
    running = child(tmp_path, code, lines)
    wait_until(lambda: lines, timeout_s=20)
    running.stop(grace_s=0.2)
    assert not is_running(running.pid)


def test_a_line_told_to_a_child_arrives_and_its_answer_comes_back(tmp_path):
    lines: list[str] = []
    echo = child(tmp_path, "print('heard', input())", lines)
    echo.send_line("go")
    echo.wait_finished(20)
    echo.stop()
    assert lines == ["heard go"]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False
    return True


def test_children_do_not_get_the_terminals_interrupt(tmp_path):
    """Ctrl-C goes to the foreground group; the children are in groups of their own."""
    lines: list[str] = []
    running = child(tmp_path, "import os; print(os.getpgid(0), flush=True); input()", lines)
    wait_until(lambda: lines, timeout_s=20)
    assert int(lines[0]) == running.pid != os.getpgid(0)
    running.stop()


class _Fails(Background):
    def _work(self) -> None:
        raise ConnectionError("the control API is gone")


def test_what_goes_wrong_beside_the_display_is_raised_to_who_waits_for_it():
    stage = DemoStage(name="broker failure", unit="")
    failing = _Fails("demo-test", stage)
    failing.finish()  # nothing was begun
    failing.start()
    for ask in (failing.finish, failing.check):
        with pytest.raises(ConnectionError, match="control API"):
            ask()
    assert failing.is_done
