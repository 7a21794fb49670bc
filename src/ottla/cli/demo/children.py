"""The demo's child processes: started in groups of their own, watched, and always ended.

Ctrl-C in a terminal reaches every process of the foreground group at once. Children therefore get sessions of their
own, so that the demo alone decides the order in which they stop: first the services, then the broker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from ottla.errors import OttlaError


class ChildFailed(OttlaError, has_page=False):
    """Read the log that the message names: a process of the demo ended before its work was done."""


class Child:
    """One child process. Its stderr goes to `log_path`; each line of its stdout is handed to `on_line`."""

    def __init__(
        self,
        name: str,
        arguments: list[str],
        *,
        log_path: Path,
        on_line: Callable[[str], None],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._log: IO[bytes] = log_path.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(on_line,), name=f"demo-{name}-stdout", daemon=True)
        self._reader.start()

    def _read(self, on_line: Callable[[str], None]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            on_line(line.decode("utf-8", "replace").rstrip("\n"))

    @property
    def pid(self) -> int:
        return self._process.pid

    def send_line(self, line: str) -> None:
        """Send one line to the child's stdin. A child that has ended is reported by `check`, not here."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass

    def check(self) -> None:
        """Raise `ChildFailed` when the process has ended with an error."""
        code = self._process.poll()
        if code is not None and code != 0:
            raise ChildFailed(
                f"{self.name} ended with exit code {code}; the last lines of {self.log_path}:\n{self.log_tail()}"
            )

    def wait_ready(self, ready: threading.Event, timeout_s: float) -> None:
        """Wait until `on_line` has set `ready`; raise `ChildFailed` when it ends before, or needs longer."""
        deadline_s = time.monotonic() + timeout_s
        while not ready.wait(0.02):
            self.check()
            if time.monotonic() > deadline_s:
                raise ChildFailed(f"{self.name}: not ready after {timeout_s:.0f} s; see {self.log_path}")

    def wait_finished(self, timeout_s: float | None) -> None:
        """Wait for a clean end; raise `ChildFailed` on an error or when it takes longer than `timeout_s` seconds.
        None: however long it takes."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ChildFailed(f"{self.name} was still running after {timeout_s:.0f} s; see {self.log_path}") from None
        self._reader.join(5)
        self.check()

    def terminate_and_check(self, grace_s: float = 15.0) -> None:
        """Ask the process to stop, as an orchestrator would (SIGTERM), and expect a clean end."""
        if self._process.poll() is None:
            self._process.terminate()
        self.wait_finished(grace_s)

    def log_tail(self) -> str:
        """Return the end of the child's stderr, indented, without the frames of Java stack traces: the file has
        those."""
        text = self.log_path.read_text("utf-8", "replace").splitlines()
        shown = [line for line in text if line.strip() and not line.lstrip().startswith(("at ", "... "))]
        return "\n".join(f"    {line}" for line in shown[-12:])

    def stop(self, grace_s: float = 8.0) -> None:
        """End the process and everything it started: SIGTERM, then SIGKILL for what is left of its group."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                pass
        _kill_group(self._process.pid)
        self._process.wait()
        self._reader.join(5)
        for stream in (self._process.stdin, self._process.stdout, self._log):
            try:
                if stream is not None:
                    stream.close()
            except BrokenPipeError:
                pass


def _kill_group(group: int) -> None:
    """Kill what is left of a process group, and wait until the group is gone."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return
        time.sleep(0.02)
