"""`ottla run --reload`: a change starts the service again, an import error does not end the watcher, and no start waits
for a session to end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from process_lines import ProcessLines

from ottla.admin import Admin
from ottla.cli.services import reload
from ottla.processes import file_changes
from ottla.processes.file_changes import FileChanges, TooManyFiles, changed_between, stamps_below
from ottla.testing import wait_until

SERVICE = """
import os, time
from ottla import App, Int64

app = App({group!r}, settings={{"group.instance.id": "me", "session.timeout.ms": 45_000}})

@app.handler({topic!r}, value=Int64())
def handle(number: int) -> None:
    print("handled", number, "by", {version!r}, os.getpid(), flush=True)

    while number == 666:
        time.sleep(0.01)
    if number == 7:
        time.sleep(2)  # so long the parent may take to notice a signal

@app.on_stop
def bye() -> None:
    print("stopped", {version!r}, flush=True)
"""


class TestBursts:
    """What counts as one change."""

    @pytest.fixture(params=["watchfiles", "times of change"])
    def folder(self, request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        if request.param == "watchfiles":
            pytest.importorskip("watchfiles", reason="watchfiles is not installed")
        else:
            monkeypatch.setitem(sys.modules, "watchfiles", None)
        (tmp_path / "one.py").write_text("1")
        return tmp_path

    def test_files_that_are_written_shortly_after_each_other_are_one_change(self, folder: Path) -> None:
        later = iter(["two.py", "three.py"])

        def sleep(seconds: float) -> None:
            if seconds == file_changes._QUIET_S and (name := next(later, None)) is not None:
                (folder / name).write_text("new")

        changes = FileChanges([folder], sleep=sleep)
        assert changes.next_burst() == []
        (folder / "one.py").write_text("changed")
        wanted = [str(folder / name) for name in ("one.py", "three.py", "two.py")]
        assert changes.next_burst() == wanted
        assert changes.next_burst() == []

    def test_only_source_files_of_ones_own_count(self, folder: Path) -> None:
        changes = FileChanges([folder], sleep=lambda seconds: None)
        for name in ("notes.txt", ".venv/lib.py", "__pycache__/one.py", "venv/x.py"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("new")
        assert changes.next_burst() == []
        (folder / "one.py").unlink()
        assert changes.next_burst() == [str(folder / "one.py")]


def test_what_changed_is_named() -> None:
    before = {"a": (1, 1), "b": (1, 1), "c": (1, 1)}
    assert changed_between(before, {"a": (1, 1), "b": (2, 1), "d": (1, 1)}) == ["b", "c", "d"]


def test_folders_that_are_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_changes, "_MOST_FILES", 2)
    for name in "abc":
        (tmp_path / f"{name}.py").write_text("")
    with pytest.raises(TooManyFiles, match="more than 2"):
        stamps_below([tmp_path])


def run_reloaded(folder: Path, servers: str, **environ: str) -> ProcessLines:
    """Start `ottla run --reload`, in a process group of its own."""
    command = [sys.executable, "-m", "ottla", "run", "reloaded_service:app", "--reload"]
    environ = {"OTTLA_BOOTSTRAP_SERVERS": servers, "OTTLA_LOG_LEVEL": "error", **environ}
    return ProcessLines(command, folder, in_own_group=True, **environ)


@pytest.fixture
def reloaded(
    tmp_path: Path, kafka: Any, kafka_topic: str, kafka_group: str
) -> Iterator[tuple[ProcessLines, Callable[[str], None]]]:
    def write(version: str) -> None:
        text = version if "\n" in version else SERVICE.format(group=kafka_group, topic=kafka_topic, version=version)
        (tmp_path / "reloaded_service.py").write_text(text)

    write("v1")
    running = run_reloaded(tmp_path, kafka.bootstrap_servers)
    yield running, write
    running.close()


@pytest.mark.complete
@pytest.mark.representative
def test_a_change_starts_the_service_again_and_an_import_error_does_not_end_the_watcher(
    reloaded: tuple[ProcessLines, Callable[[str], None]], kafka: Any, kafka_topic: str, kafka_group: str
) -> None:
    running, write = reloaded
    kafka.produce(kafka_topic, [b"\0" * 7 + b"\1"])
    first = running.line("handled 1 by v1")
    kafka.produce(kafka_topic, [b"\0" * 7 + b"\2"])
    running.line("handled 2 by v1")

    saved_s = time.monotonic()
    write("v2")
    running.line("stopped v1")
    kafka.produce(kafka_topic, [b"\0" * 7 + b"\3"])
    second = running.line("handled 3 by v2", timeout_s=20)  # a session ends after 45 s
    took_s = time.monotonic() - saved_s
    assert any("reloaded_service.py changed, starting again" in line for line in running.lines)
    assert any(line == "stopped v1" for line in running.lines), "gracefully"
    assert first.split()[-1] != second.split()[-1], "in a process of its own"
    assert not any(line.startswith("handled 2 by v2") for line in running.lines), "what was handled is committed"
    print(f"from the save to the first record: {took_s:.2f} s")

    write("import there_is_no_such_module\n")
    running.line("No module named 'there_is_no_such_module'")
    running.line("waiting for a change")
    assert running.process.poll() is None
    write("v3")
    kafka.produce(kafka_topic, [b"\0" * 7 + b"\4"])
    running.line("handled 4 by v3", timeout_s=20)

    running.process.send_signal(signal.SIGTERM)
    running.line("stopped v3")
    assert running.process.wait(20) == 0
    with Admin(kafka.bootstrap_servers) as admin:
        (group,) = admin.describe_groups(kafka_group)
    assert not group.members, "it left, although it has an instance id and a long session"


@pytest.mark.complete
def test_a_service_whose_watcher_was_killed_ends_too(
    reloaded: tuple[ProcessLines, Callable[[str], None]], kafka: Any, kafka_topic: str
) -> None:
    running, _ = reloaded
    kafka.produce(kafka_topic, [b"\0" * 7 + b"\1"])
    pid = int(running.line("handled 1 by v1").split()[-1])
    running.process.kill()
    running.line("stopped v1")

    def is_gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1].startswith("Z")

    wait_until(is_gone, 20, what="the end of the service")


@pytest.mark.complete
def test_the_next_service_runs_in_a_process_that_was_loaded_before_the_change(
    reloaded: tuple[ProcessLines, Callable[[str], None]], kafka: Any, kafka_topic: str
) -> None:
    running, write = reloaded
    children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children")
    if not children.exists():
        pytest.skip("the kernel does not list children of a process (CONFIG_PROC_CHILDREN)")
    kafka.produce(kafka_topic, [b"\0" * 7 + b"\1"])
    first = running.line("handled 1 by v1").split()[-1]
    wait_until(lambda: len(children.read_text().split()) == 2, 30, what="the spare process")
    (spare,) = set(children.read_text().split()) - {first}
    write("v2")
    running.line("stopped v1")
    kafka.produce(kafka_topic, [b"\0" * 7 + b"\2"])
    assert running.line("handled 2 by v2").split()[-1] == spare

    wait_until(lambda: len(children.read_text().split()) == 2, 30, what="the next one")
    os.kill(int((set(children.read_text().split()) - {spare}).pop()), signal.SIGKILL)
    write("v3")
    running.line("stopped v2")
    kafka.produce(kafka_topic, [b"\0" * 7 + b"\3"])
    assert running.line("handled 3 by v3")

    wait_until(lambda: len(children.read_text().split()) == 2, 30, what="the next one")
    running.process.send_signal(signal.SIGTERM)
    assert running.end() == 0, "without its spare process"
    assert running.lines[-1] == "stopped v3"


@pytest.mark.complete
@pytest.mark.representative("SIGINT")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_to_the_whole_process_group_is_one_stop(
    reloaded: tuple[ProcessLines, Callable[[str], None]], kafka: Any, kafka_topic: str, number: signal.Signals
) -> None:
    running, _ = reloaded
    kafka.produce(kafka_topic, [b"\0" * 7 + b"\7"])
    running.line("handled 7 by v1")
    os.killpg(running.process.pid, number)
    assert running.end() == 0
    assert "stopped v1" in running.lines, "gracefully"


@pytest.mark.complete
def test_a_second_signal_ends_the_service_at_once(
    tmp_path: Path, kafka: Any, kafka_topic: str, kafka_group: str
) -> None:
    text = SERVICE.format(group=kafka_group, topic=kafka_topic, version="v1")
    (tmp_path / "reloaded_service.py").write_text(text)
    running = run_reloaded(tmp_path, kafka.bootstrap_servers, OTTLA_LOG_LEVEL="info")
    try:
        kafka.produce(kafka_topic, [b"\0" * 6 + b"\2\x9a"])
        running.line("handled 666 by v1")
        running.process.send_signal(signal.SIGTERM)
        running.line("app_stopping")
        running.process.send_signal(signal.SIGTERM)
        running.line("ended at once by a second signal; delivered again: ", f"{kafka_topic}-0 from offset 0")
        assert running.end() == 128 + signal.SIGTERM
    finally:
        running.close()


DEAF = "import os, signal, threading; os.kill(os.getppid(), signal.SIGTERM); threading.Event().wait()"


def test_a_service_that_obeys_no_order_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reload, "_GRACE_S", 0.1)
    monkeypatch.setattr(reload, "_LAST_GRACE_S", 0.2)
    assert reload.Reloader([sys.executable, "-c", DEAF], [tmp_path]).run() == 128 + signal.SIGKILL
    assert capfd.readouterr().err.splitlines() == [
        "ottla: the service has not ended after 0.1 s, ending it at once",
        "ottla: the service has not ended after 0.2 s, killing it",
    ]


SLOW_START = """
import os, sys, time
if "_OTTLA_RELOAD_LINK" in os.environ:
    os.write(1, b"begins\\n")
    while not os.path.exists("may_go_on"):
        time.sleep(0.01)
"""


def test_ctrl_c_while_the_service_starts_is_a_stop_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_START)
    (tmp_path / "reloaded_service.py").write_text("import threading\nthreading.Event().wait()")
    running = run_reloaded(tmp_path, "localhost:1", PYTHONPATH=str(tmp_path))
    try:
        running.line("begins")
        os.killpg(running.process.pid, signal.SIGINT)
        (tmp_path / "may_go_on").touch()
        assert running.end() == 0
        assert not [line for line in running.lines if "Traceback" in line or "KeyboardInterrupt" in line]
    finally:
        running.close()
