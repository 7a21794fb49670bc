"""`ottla run --reload`: a parent that watches files, ends the service gracefully and starts it again.

The service is a process of its own, so each start imports everything of it again. One that ends by itself, at an import
error for instance, is reported, and started again at the next change. The parent never ends before the service has.

Meanwhile a spare process has loaded Ottla and its client, and waits: at the next change it has only the service's own
modules to import. That is half of the time from a save to the first record.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

import ottla
from ottla.cli.services.orders import GO, STOP, end_order
from ottla.cli.shared.signals import handled_signals, sigint_blocked
from ottla.errors import ConfigError
from ottla.processes.file_changes import FileChanges, TooManyFiles
from ottla.processes.supervision import ENDED_BY_STOP
from ottla.processes.worker_link import RELOAD_VARIABLE, WorkerLink

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
        with handled_signals(self._signals.append):
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
                    self._spare = self._spawned()
            self._drop_spare()
            return self._end()

    def _start(self) -> None:
        spare, self._spare = self._spare, None
        if spare is None or not spare.go():
            spare = self._spawned()
            spare.go()
        self._child = spare
        self._started_s = time.monotonic()

    def _spawned(self) -> _Child:
        """Start a process that loads Ottla and waits until it may run the service."""
        link, other = WorkerLink.pair()
        try:
            descriptor = other.fileno()
            # Python takes compiled code for current whose source was changed within the same second to the same size.
            own = {"PYTHONDONTWRITEBYTECODE": "1", RELOAD_VARIABLE: str(descriptor)}
            with sigint_blocked():  # a terminal sends Ctrl-C to the service as well, whose imports it would end
                process = subprocess.Popen(self._command, pass_fds=[descriptor], env={**os.environ, **own})
        except BaseException:
            link.close()
            raise
        finally:
            other.close()
        return _Child(process, link)

    def _drop_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.link.close()  # which it waits for
            try:
                spare.process.wait(_LAST_GRACE_S)
            except subprocess.TimeoutExpired:
                spare.process.kill()
                spare.process.wait()

    def _end(self) -> int:
        """End the service: gracefully, then at once, then by force. Returns its exit code; 0 if none runs."""
        if self._child is None:
            return 0
        child = self._child
        order = STOP
        for seconds in (_GRACE_S, _LAST_GRACE_S):
            child.link.send_at_once(order)
            if self._has_ended(child, seconds):
                break
            then = "ending it at once" if order is STOP else "killing it"
            _say(f"the service has not ended after {seconds:g} s, {then}")
            order = end_order(signal.SIGTERM)
        else:
            child.process.kill()
        self._forget()
        code = child.process.wait()
        code = code if code >= 0 else 128 - code
        is_first_order = order is STOP and len(self._signals) <= 1
        return 0 if is_first_order and code in ENDED_BY_STOP else code  # it ended while importing, so nothing was lost

    def _has_ended(self, child: _Child, seconds: float) -> bool:
        """Wait for the end. A second signal to the parent ends the service at once, a third one kills it."""
        passed = 1
        for _ in range(round(seconds / 0.05)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(0.05)
                return True
            if len(self._signals) > passed:
                passed = len(self._signals)
                if passed == 2:
                    child.link.send_at_once(end_order(self._signals[-1]))
                else:
                    child.process.kill()
        return False

    def _forget(self) -> None:
        if self._child is not None:
            self._child.link.close()
        self._child = None


@dataclass(frozen=True, slots=True)
class _Child:
    """A process of the service, and the link by which it is ordered to stop."""

    process: subprocess.Popen[bytes]
    link: WorkerLink

    def go(self) -> bool:
        """Let the process run the service. Returns False if it has ended."""
        if self.link.send_at_once(GO):
            return True
        self.link.close()
        self.process.wait()
        return False


def _named(changed: Sequence[str]) -> str:
    names = [os.path.relpath(path) for path in changed[:_MOST_NAMED]]
    more = len(changed) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _say(text: str) -> None:
    click.echo(f"ottla: {text}", err=True)
