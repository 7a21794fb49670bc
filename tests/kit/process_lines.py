"""A command in a process of its own, and the lines that it and its children print."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path


class ProcessLines:
    """Runs `command` in `folder`; stdout and stderr are one."""

    def __init__(self, command: Sequence[str], folder: Path, *, in_own_group: bool = False, **environ: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": "", **environ},
            start_new_session=in_own_group,
        )
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def close(self) -> None:
        """Kill it, and wait until its children have ended too."""
        self.process.kill()
        self.process.wait()
        self._reader.join(60)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def line(self, *wanted: str, timeout_s: float = 30) -> str:
        """Wait for a line with all of these texts."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line with {wanted!r} in {timeout_s:g} s: {self.lines}") from None
            if line is None:
                raise AssertionError(f"it ended without a line with {wanted!r}: {self.lines}")
            self.lines.append(line)
            if all(text in line for text in wanted):
                return line

    def end(self, timeout_s: float = 60) -> int:
        """Wait until it and its children have ended. Returns its exit code; `lines` has all it printed."""
        deadline = time.monotonic() + timeout_s
        while (line := self._queue.get(timeout=max(0.0, deadline - time.monotonic()))) is not None:
            self.lines.append(line)
        return self.process.wait(timeout_s)
