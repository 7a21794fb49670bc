"""Processes of one script that are started again and again: its modules are imported once.

A test that kills a service fifteen times would import the clients fifteen times, which takes longer than what it tests.
So a template process imports what the script needs, and forks for each start: the script runs from its first line in
each of them, as its `__main__`. No client, thread or connection is there before the fork; the template refuses to fork
with a second thread.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import IO, Any, Self

MESSAGE_BYTES = 65_536

LONGEST_START_S = 100.0
"""How long a template may import on a busy machine."""

IMPORTED_BY_SERVICES = (
    "asyncio",
    "confluent_kafka.admin",
    "ottla.sync.serve.runner",
    "ottla.aio.serve.runner",
)
"""What services import when they start, and their scripts do not name."""

WITHOUT_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""What the template's environment has too: numpy and pyarrow start threads when they are imported."""


class WarmProcess:
    """A forked process of a script, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, script: str | Path, *arguments: str, stdout: Any = None, stderr: Any = None) -> None:
        """`stdout`, `stderr`: as in `subprocess.Popen`; a pipe only for `stdout`, and of text."""
        self.stdout: IO[str] | None = None
        self.returncode: int | None = None
        self._template = _template_of(script)
        with contextlib.ExitStack() as opened:
            outputs = [self._output(given, number, opened) for number, given in ((1, stdout), (2, stderr))]
            self.pid = self._template.fork(arguments, outputs)
        self._ended = os.pidfd_open(self.pid)  # it is no other process: the template reaps it when it is asked to

    def _output(self, given: Any, number: int, opened: contextlib.ExitStack) -> int:
        if given is None:
            return number
        if given == subprocess.DEVNULL:
            return opened.enter_context(Path(os.devnull).open("wb")).fileno()
        if given == subprocess.PIPE:
            reading, writing = os.pipe()
            self.stdout = os.fdopen(reading)
            return opened.enter_context(os.fdopen(writing, "wb")).fileno()
        return int(given if isinstance(given, int) else given.fileno())

    def poll(self) -> int | None:
        """The exit code, negative after a signal, or None while it runs."""
        if self.returncode is None:
            self._look(os.WNOHANG)
        return self.returncode

    def is_stopped(self) -> bool:
        """Whether a signal has stopped it since the last call; it must not have ended."""
        status = self._look(os.WNOHANG | os.WUNTRACED)
        assert self.returncode is None, f"it ended: {self.returncode}"
        return status is not None and os.WIFSTOPPED(status)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._ended, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1_000):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            self._look(0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._ended, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.stdout is not None:
            self.stdout.close()
        self.wait()

    def _look(self, options: int) -> int | None:
        if self.returncode is not None:
            return None
        pid, status = self._template.wait(self.pid, options)
        if not pid:
            return None
        if not os.WIFSTOPPED(status):
            self.returncode = os.waitstatus_to_exitcode(status)
            os.close(self._ended)
        return status


class _Template:
    """The process that has imported what a script needs. Thread-safe."""

    def __init__(self, script: str | Path) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            command = [sys.executable, __file__, str(there.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[there.fileno()], env=os.environ | WITHOUT_THREADS)
        self._control = here
        self._lock = threading.Lock()
        kind = "file" if isinstance(script, Path) else "text"
        here.settimeout(LONGEST_START_S)
        self._ask({kind: str(script)})
        atexit.register(self._close)

    def fork(self, arguments: Sequence[str], outputs: Sequence[int]) -> int:
        return int(self._ask({"arguments": arguments, "environ": dict(os.environ)}, outputs))

    def wait(self, pid: int, options: int) -> tuple[int, int]:
        found, status = self._ask({"pid": pid, "options": options})
        return int(found), int(status)

    def _ask(self, question: dict[str, Any], outputs: Sequence[int] = ()) -> Any:
        with self._lock:
            socket.send_fds(self._control, [json.dumps(question).encode()], list(outputs))
            answer = self._control.recv(MESSAGE_BYTES)
        assert answer, "the template has ended: its stderr says why"
        return json.loads(answer)

    def _close(self) -> None:
        self._control.close()
        self._process.wait(10)


@cache
def _template_of(script: str | Path) -> _Template:
    return _Template(script)


# -- in the template


def _serve(control: socket.socket) -> None:
    """Answer what is asked, until nobody is left to ask. Returns in each forked process, which is to run the script."""
    code = _script(json.loads(control.recv(MESSAGE_BYTES)))
    control.send(b"null")
    while True:
        message, outputs, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 2)
        if not message:
            sys.exit()
        question = json.loads(message)
        if "pid" in question:
            control.send(json.dumps(os.waitpid(question["pid"], question["options"])).encode())
            continue
        assert len(list(Path("/proc/self/task").iterdir())) == 1, "a thread would not be in the forked process"
        pid = os.fork()
        if not pid:
            break
        control.send(str(pid).encode())
        for output in outputs:
            os.close(output)
    control.close()
    for number, output in enumerate(outputs, start=1):
        os.dup2(output, number)
        os.close(output)
    os.environ.clear()
    os.environ.update(question["environ"])
    sys.argv[1:] = question["arguments"]
    _run(code)


def _script(named: dict[str, str]) -> Any:
    """The compiled script, after all that it imports anywhere has been imported."""
    path = named.get("file", "-c")
    text = Path(path).read_text(encoding="utf-8") if "file" in named else named["text"]
    sys.argv[:] = [path]
    sys.path[0] = str(Path(path).parent) if "file" in named else ""
    tree = ast.parse(text, path)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in imports:
        with contextlib.suppress(ImportError):  # of a store, say, that this test does not use
            exec(compile(ast.Module([node], []), path, "exec"), {"__name__": "imports"})
    for name in IMPORTED_BY_SERVICES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    return compile(tree, path, "exec")


def _run(code: CodeType) -> None:
    """As Python runs a script: what it does not catch ends the process."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    if sys.argv[0] != "-c":
        main.__file__ = sys.argv[0]
    exec(code, main.__dict__)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
