"""`ottla run --workers`: a supervisor that runs the same service in several processes.

Each worker is `ottla run` in a new process (never a fork of one that has threads and connections), so
it imports everything by itself and is a group member of its own. `ottla.processes.supervision` decides; this starts,
stops and kills, and answers probes from what the workers have reported.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final

import click

from ottla.cli.services.orders import STOP, end_order
from ottla.cli.shared.signals import handled_signals, sigint_blocked
from ottla.config.worker_names import WORKER_VARIABLE
from ottla.processes.supervision import Effect, End, How, LogWorker, Start, Supervision, WorkerReport
from ottla.processes.worker_link import LINK_VARIABLE, Message, WorkerLink
from ottla.telemetry import log_event

_TICK_S: Final = 0.1
_LAST_MESSAGES_S: Final = 1.0
_SCRAPE_S: Final = 0.8
"""How long a scrape waits for all workers: less than the second after which the kubelet gives a probe up."""
_SILENT_MS: Final = 5_000
"""A worker that has not reported for so long is not ready, and is not asked for its metrics."""


class _Process:
    """A process of a worker, and what it has said."""

    def __init__(self, number: int, command: Sequence[str], heard: Callable[[_Process, Message], None]) -> None:
        self.number = number
        self.body: dict[str, Any] | None = None
        """The body of `/health` of its last report."""
        self.reported_s = time.monotonic()
        self.metrics: Message = {}
        self.has_metrics = threading.Condition()
        self._link, other = WorkerLink.pair()
        try:
            descriptor = other.fileno()
            environment = {**os.environ, WORKER_VARIABLE: str(number), LINK_VARIABLE: str(descriptor)}
            with sigint_blocked():  # a terminal sends Ctrl-C to the worker as well, whose imports it would end
                self._popen = subprocess.Popen(command, pass_fds=[descriptor], env=environment)
        except BaseException:
            self._link.close()
            raise
        finally:
            other.close()
        self.pid = self._popen.pid
        self._reader = threading.Thread(target=self._read, args=(heard,), name=f"ottla-worker-{number}", daemon=True)
        self._reader.start()

    def exit_code(self) -> int | None:
        """Return the exit code, when it has ended and all it said is read."""
        code = self._popen.poll()
        if code is not None:
            self._reader.join(_LAST_MESSAGES_S)  # what it has started may hold the link open
            self._link.close()
        return code

    def end(self, how: How, number: int) -> None:
        """End it. `Popen` sends no signal to a process that has ended, whose id may be another's by now."""
        if how is How.KILLED:
            self._popen.kill()
        elif how is How.AT_ONCE:
            self._link.send_at_once(end_order(number))
        else:
            self._link.send_at_once(STOP)

    def ask_metrics(self, scrape: int) -> bool:
        return self._link.send_at_once({"do": "metrics", "id": scrape})

    def _read(self, heard: Callable[[_Process, Message], None]) -> None:
        while (message := self._link.receive()) is not None:
            if message.get("said") == "metrics":
                with self.has_metrics:
                    self.metrics = message
                    self.has_metrics.notify_all()
            else:
                if message.get("said") == "report":
                    self.body, self.reported_s = message["body"], time.monotonic()
                heard(self, message)


class Workers:
    """Runs `command` in `count` processes. `health` and `scrape` may be called by any thread."""

    def __init__(self, command: Sequence[str], count: int, *, loading_limit_s: float) -> None:
        self._command = list(command)
        self._supervision = Supervision(count, loading_limit_ms=round(loading_limit_s * 1_000))
        self._processes: dict[int, _Process] = {}
        self._messages: SimpleQueue[tuple[_Process, Message]] = SimpleQueue()
        self._signals: list[int] = []
        self._turned_s = time.monotonic()
        self._scrapes = 0
        self._has_said_group = False

    def run(self) -> int:
        """Run until SIGTERM or SIGINT, or until a worker is given up. Returns the exit code."""
        noticed = 0
        with handled_signals(self._signals.append):
            while not self._supervision.is_over:
                self._take_messages()
                while noticed < len(self._signals):
                    noticed += 1
                    self._act(self._supervision.signalled(_now_ms()))
                for process in list(self._processes.values()):
                    self._note_end_of(process)
                self._act(self._supervision.tick(_now_ms()))
                self._turned_s = time.monotonic()
        return self._supervision.exit_code or 0

    def body(self) -> dict[str, Any]:
        """Return the health of all workers as one: ready if each is."""
        from ottla.cli.services.workers_health import merged_body, worker_body

        now_s = time.monotonic()
        parts = []
        for worker in self._supervision.workers:
            process = self._processes.get(worker.number)
            silent_ms = 0 if process is None else round((now_s - process.reported_s) * 1_000)
            parts.append(
                worker_body(
                    worker,
                    None if process is None else process.body,
                    pid=None if process is None else process.pid,
                    silent_ms=silent_ms if silent_ms > _SILENT_MS else 0,
                )
            )
        return merged_body(parts, supervisor_silent_s=now_s - self._turned_s)

    def scrape(self) -> tuple[str, bytes] | None:
        """Return content type and text of the metrics of all workers that answer in time; None if none has any."""
        from ottla.cli.services.workers_health import workers_text
        from ottla.telemetry.metrics.merged_text import merged_text

        self._scrapes += 1
        scrape = self._scrapes
        ends_s = time.monotonic() + _SCRAPE_S
        silent_since_s = time.monotonic() - _SILENT_MS / 1_000
        processes = sorted(self._processes.values(), key=lambda each: each.number)
        asked = [each for each in processes if each.reported_s >= silent_since_s and each.ask_metrics(scrape)]
        texts: dict[int, str] = {}
        content_type = ""
        for process in asked:
            with process.has_metrics:
                process.has_metrics.wait_for(
                    lambda process=process: process.metrics.get("id") == scrape,  # type: ignore[misc]
                    max(0.0, ends_s - time.monotonic()),
                )
                if process.metrics.get("id") == scrape and process.metrics["content_type"]:
                    content_type, texts[process.number] = process.metrics["content_type"], process.metrics["text"]
        if not texts:
            return None
        return content_type, (merged_text(texts) + workers_text(self.body()["workers"])).encode()

    def _take_messages(self) -> None:
        with suppress(Empty):
            process, message = self._messages.get(timeout=_TICK_S)
            while True:
                if self._processes.get(process.number) is process:
                    self._note(process, message)
                process, message = self._messages.get_nowait()

    def _note(self, process: _Process, message: Message) -> None:
        supervision, number = self._supervision, process.number
        if message["said"] == "loaded":
            if not self._has_said_group:
                self._has_said_group = True
                what = f"group {message['group']!r} in {supervision.count} workers"
                click.echo(f"ottla: running {what}; Ctrl-C or SIGTERM stops them", err=True)
            limits = {"grace_ms": int(message["grace_ms"]), "hung_after_ms": int(message["hung_after_ms"])}
            self._act(supervision.loaded(number, **limits, now_ms=_now_ms()))
        elif message["said"] == "refused":
            supervision.refused(number)
        elif message["said"] == "report":
            report = WorkerReport(
                is_alive=message["body"]["alive"],
                stuck_ms=int(message["stuck_ms"]),
                silent_ms=int(message["silent_ms"]),
            )
            supervision.reported(number, report, _now_ms())

    def _note_end_of(self, process: _Process) -> None:
        code = process.exit_code()
        if code is None:
            return
        while not self._messages.empty():
            self._take_messages()
        del self._processes[process.number]
        self._act(self._supervision.ended(process.number, code, _now_ms()))

    def _act(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, LogWorker):
                log_event(effect.event, effect.level, effect.fields)
            elif isinstance(effect, Start):
                self._start(effect.worker)
            elif isinstance(effect, End) and (process := self._processes.get(effect.worker)) is not None:
                process.end(effect.how, self._signals[-1] if self._signals else 15)

    def _start(self, number: int) -> None:
        try:
            process = _Process(number, self._command, lambda process, message: self._messages.put((process, message)))
        except OSError as error:  # no memory, or no process id, for now
            log_event("worker_not_started", "error", {"worker": number, "error": str(error)})
            self._act(self._supervision.ended(number, 1, _now_ms()))
            return
        self._processes[number] = process
        log_event("worker_started", "info", {"worker": number, "pid": process.pid})


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
