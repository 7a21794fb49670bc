"""`ottla run --reload`: a parent that watches files, ends the service gracefully and starts it again.

The service is a process of its own, so each start imports everything of it again. One that ends by itself, at an import
error for instance, is reported, and started again at the next change. The parent never ends before the service has.

Meanwhile a spare process has loaded Ottla and its client, and waits: at the next change it has only the service's own
modules to import. That is half of the time from a save to the first record.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

import ottla
from ottla.cli.shared.signals import noted_signals
from ottla.errors import ConfigError
from ottla.processes.file_changes import FileChanges, TooManyFiles

_GRACE_S: Final = 30.0
"""How long a service may take to drain, commit and leave its group; longer than `drain_s` is by default."""
_LAST_GRACE_S: Final = 5.0
_MOST_NAMED: Final = 3
_SPARE_AFTER_S: Final = 2.0
"""When the service has started, the spare process takes no CPU from it."""
_OTTLA: Final = Path(ottla.__file__).parent


class Reloader:
    """Runs `command`, and again at each change below `folders`."""

    def __init__(self, command: Sequence[str], folders: Sequence[Path]) -> None:
        self._command = list(command)
        try:
            self._changes = FileChanges(folders)
        except TooManyFiles as error:
            raise ConfigError(f"--reload: {error}; name folders: --reload-dir src") from None
        self._child: _Child | None = None
        self._spare: _Child | None = None
        self._started_s = 0.0
        self._signals: list[int] = []

    def run(self) -> int:
        """Watch until SIGTERM or SIGINT. Returns the exit code of the service that was ended last."""
        with noted_signals(self._signals):
            self._start()
            while not self._signals:
                changed = self._changes.next_burst()
                if self._signals:
                    break
                if changed:
                    _say(f"{_named(changed)} changed, starting again")
                    if any(Path(path).is_relative_to(_OTTLA) for path in changed):
                        self._drop_spare()
                    self._end()
                    self._start()
                elif self._child is not None and self._child.process.poll() is not None:
                    _say(f"the service ended with exit code {self._child.process.returncode}, waiting for a change")
                    self._forget()
                elif self._spare is None and time.monotonic() - self._started_s >= _SPARE_AFTER_S:
                    self._spare = self._spawned(_OTTLA_SPARE="1")
            self._drop_spare()
            return self._end()

    def _start(self) -> None:
        spare, self._spare = self._spare, None
        self._child = spare if spare is not None and spare.go() else self._spawned()
        self._started_s = time.monotonic()

    def _spawned(self, **environ: str) -> _Child:
        reading, writing = os.pipe()
        try:
            # Python takes compiled code for current whose source was changed within the same second to the same size.
            own = {"PYTHONDONTWRITEBYTECODE": "1", "_OTTLA_PARENT_PIPE": str(reading), **environ}
            process = subprocess.Popen(self._command, pass_fds=[reading], env={**os.environ, **own})
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        return _Child(process, writing)

    def _drop_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            os.close(spare.pipe)  # which it waits for
            try:
                spare.process.wait(_LAST_GRACE_S)
            except subprocess.TimeoutExpired:
                spare.process.kill()
                spare.process.wait()

    def _end(self) -> int:
        """End the service: gracefully, then at once, then by force. Returns its exit code; 0 if none runs."""
        if self._child is None:
            return 0
        child = self._child.process
        # A terminal sends Ctrl-C to the service as well: a second signal would end it at once.
        if not (self._signals and self._signals[0] == signal.SIGINT and _is_in_foreground()):
            child.send_signal(signal.SIGTERM)
        for seconds in (_GRACE_S, _LAST_GRACE_S):
            code = self._waited(child, seconds)
            if code is not None:
                self._forget()
                return code
            _say(f"the service has not ended after {seconds:g} s, ending it at once")
            child.send_signal(signal.SIGTERM)
        child.kill()
        child.wait()
        self._forget()
        return child.returncode

    def _waited(self, child: subprocess.Popen[bytes], seconds: float) -> int | None:
        """Wait for the end; a second signal to the parent is passed on, which ends the service at once."""
        passed = max(1, len(self._signals))
        for _ in range(round(seconds / 0.05)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(0.05)
            if len(self._signals) > passed and not _is_in_foreground():
                passed = len(self._signals)
                child.send_signal(signal.SIGTERM)
        return None

    def _forget(self) -> None:
        if self._child is not None:
            os.close(self._child.pipe)
        self._child = None


@dataclass(frozen=True, slots=True)
class _Child:
    """A process of the service, and the pipe whose end it waits for: the parent's."""

    process: subprocess.Popen[bytes]
    pipe: int

    def go(self) -> bool:
        """Let a spare process run the service. Returns False if it has ended."""
        try:
            os.write(self.pipe, b"\n")
        except BrokenPipeError:
            os.close(self.pipe)
            self.process.wait()
            return False
        return True


def wait_as_spare(reading: int) -> None:
    """Wait in a spare process until the service is to run in it. Raises `SystemExit` if it is not needed."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it Ctrl-C as well
    if not os.read(reading, 1):
        raise SystemExit(0)
    signal.signal(signal.SIGINT, before)
    importlib.invalidate_caches()


def end_with_parent(reading: int) -> None:
    """Stop this service when its parent has died: no other process would end it."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            os.read(reading, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="ottla-parent", daemon=True).start()


def _is_in_foreground() -> bool:
    """Return whether a terminal sends its signals to this process and its children."""
    try:
        return sys.stdin is not None and sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


def _named(changed: Sequence[str]) -> str:
    names = [os.path.relpath(path) for path in changed[:_MOST_NAMED]]
    more = len(changed) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _say(text: str) -> None:
    click.echo(f"ottla: {text}", err=True)
