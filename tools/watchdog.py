"""Ends processes that this one started, and removes their folder, if this one dies before it does so itself.

`kill -9`, the SIGTERM of `timeout` and a test worker that crashes run no `finally`. The watchdog is a shell that reads
a pipe: the kernel closes the pipe when this process ends, however it ends. A process that was forked from this one
without an exec has the pipe too, and delays the end.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

_SHELL = """
while read -r pids; do
    [ "$pids" = closed ] && exit
    guarded=$pids
done
if [ -n "$guarded" ]; then
    kill -9 $guarded
    sleep 1
fi
rm -rf -- "$1"
"""


class Watchdog:
    """A shell in a session of its own: Ctrl-C and signals to this process's group do not reach it."""

    def __init__(self, folder: Path) -> None:
        self._shell = subprocess.Popen(
            ["sh", "-c", _SHELL, "watchdog", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def guard(self, pids: Iterable[int]) -> None:
        """Guard these processes, and no longer those of the call before."""
        self._write(" ".join(map(str, pids)))

    def close(self) -> None:
        """End the watchdog: everything that it guarded has ended, and its folder is the caller's to remove."""
        self._write("closed")
        self._shell.communicate()

    def _write(self, line: str) -> None:
        """Write a line to the shell. One that was killed guards nothing, and the caller cleans up by itself."""
        assert self._shell.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._shell.stdin.write(f"{line}\n")
            self._shell.stdin.flush()
