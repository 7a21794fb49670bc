"""A command whose stdout or stderr is a terminal, and what that shows."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Literal


class Terminal:
    """`ottla ARGUMENTS`, with its stdout or its stderr on a terminal. The other one is a pipe."""

    def __init__(self, *arguments: str, of: Literal["stdout", "stderr"] = "stdout") -> None:
        self._here, there = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=there if of == "stdout" else subprocess.PIPE,
            stderr=there if of == "stderr" else subprocess.PIPE,
        )
        os.close(there)
        self._readable = select.poll()  # not select.select: it takes no descriptor above 1,023
        self._readable.register(self._here, select.POLLIN)
        self.shown = ""

    def read(self, until: Callable[[str], bool], *, timeout_s: float = 90.0) -> str:
        """What is shown when `until` holds of it, or when the process has ended. Lines end with one newline."""
        deadline_s = time.monotonic() + timeout_s
        while not until(self.shown):
            assert time.monotonic() < deadline_s, self.shown[-500:]
            if self._readable.poll(100):
                try:
                    data = os.read(self._here, 65_536)
                except OSError:  # its end, on Linux
                    break
                self.shown += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return self.shown

    def end(self) -> tuple[int, str]:
        """The exit code, and what came through the pipe. `shown` is whole then."""
        out, err = self.process.communicate(timeout=90)
        self.read(lambda shown: False)
        os.close(self._here)
        return self.process.returncode, (out or err or b"").decode()
