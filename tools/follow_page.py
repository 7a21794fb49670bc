"""Follow a page of the documentation literally: write its files, apply its diffs, run its commands, compare the output.

    python tools/follow_page.py docs/tutorial.md --folder /tmp/empty --bin .venv/bin

Blocks are understood by their first line:

    ```python title="service.py"          a file to write
    ```diff title="service.py"            lines to change in it: all lines but the added ones must stand there together
    ```console                            `$ command`, then what it prints
    ```console title="terminal: NAME"     the same in a terminal of its own: a command may go on, `^C` interrupts it

In what is printed, `...` stands for anything, also within a line. Lines of a terminal may come in any order, and other
lines between them. Blocks in `bash` install things and are left out. Ports of the page are replaced by free ones.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

PORTS = ("9092", "8080", "9308")
COMMAND_S = 600
"""A command that has not ended by then hangs. Spark's needs half a minute of two idle cores."""
BLOCK = re.compile(
    r'^## (?P<section>[^\n]+)$|^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


class PageIsWrong(AssertionError):
    """What the page says and what happened are two things."""


@dataclass(frozen=True)
class Block:
    """A fenced block, and the section that it stands in."""

    section: str
    language: str
    title: str
    text: str


def blocks_of(page: Path) -> Iterator[Block]:
    section = ""
    for found in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if found["section"]:
            section = found["section"]
        else:
            yield Block(section, found["language"], found["title"] or "", found["text"])


@dataclass
class Terminal:
    """A process that goes on while the page does other things."""

    name: str
    process: subprocess.Popen[str] | None = None
    readers: list[threading.Thread] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    printed: threading.Condition = field(default_factory=threading.Condition)

    def start(self, command: str, **options: object) -> None:
        self.lines.clear()
        self.process = subprocess.Popen(  # type: ignore[call-overload]
            shlex.split(command), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
        )
        # A pipe each: in one, a line of the log may begin where a `print` of another thread has not ended its own.
        self.readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for reader in self.readers:
            reader.start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self.printed:
                    self.lines.append(line.rstrip("\n"))
                    self.printed.notify_all()

    def wait_for(self, line: str, timeout_s: float = 60) -> None:
        """A line that was not waited for before."""
        with self.printed:
            if not self.printed.wait_for(lambda: any(map(matcher(line), self.lines)), timeout_s):
                raise PageIsWrong(f"terminal {self.name}: wanted {line!r}, found:\n" + "\n".join(self.lines))
            self.lines.remove(next(filter(matcher(line), self.lines)))

    def interrupt(self, timeout_s: float = 60) -> None:
        assert self.process is not None, f"terminal {self.name}: nothing runs"
        os.killpg(self.process.pid, signal.SIGINT)
        code = self.process.wait(timeout_s)
        if code not in (0, 130):
            raise PageIsWrong(f"terminal {self.name}: ended with {code}:\n" + "\n".join(self.lines))
        self.process = None

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for reader in self.readers:
            reader.join(10)


def matcher(wanted: str):  # type: ignore[no-untyped-def]
    """Whether a line is the wanted one; `...` is anything, and spaces at the ends and their number do not count."""
    parts = [r"\s+".join(map(re.escape, part.split())) for part in wanted.split("...")]
    return re.compile(r"\s*" + ".*".join(parts) + r"\s*").fullmatch


class Follower:
    """Follows one page in one folder."""

    def __init__(self, folder: Path, bin_folder: Path) -> None:
        self.folder = folder
        self.terminals: dict[str, Terminal] = {}
        self.ports = {port: _free_port() for port in PORTS}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTTLA_", "PYTEST_"))}
        self.environment = {**kept, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
        self.environment |= {"OTTLA_BOOTSTRAP_SERVERS": f"localhost:{self.ports['9092']}", "COLUMNS": "200"}
        self.environment.pop("PYTHONPATH", None)

    def follow(self, block: Block) -> None:
        text = block.text
        for port, free in self.ports.items():
            text = text.replace(port, free)
        if block.language == "python" and block.title:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif block.language == "diff":
            self._apply(self.folder / block.title, text)
        elif block.language == "console" and block.title.startswith("terminal: "):
            self._in_terminal(self._terminal(block.title.removeprefix("terminal: ")), text)
        elif block.language == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                self._run(*part.split("\n", 1))

    def close(self) -> None:
        for terminal in self.terminals.values():
            terminal.close()

    def _terminal(self, name: str) -> Terminal:
        return self.terminals.setdefault(name, Terminal(name))

    def _in_terminal(self, terminal: Terminal, text: str) -> None:
        for line in text.splitlines():
            if line == "^C":
                terminal.interrupt()
            elif line.startswith("$ "):
                terminal.start(line[2:], cwd=self.folder, env=self.environment, start_new_session=True)
            else:
                terminal.wait_for(line)

    def _run(self, command: str, wanted: str) -> None:
        deadline = time.monotonic() + 30
        while True:
            done = subprocess.run(
                command,
                shell=True,
                cwd=self.folder,
                env=self.environment,
                text=True,
                capture_output=True,
                timeout=COMMAND_S,
            )
            problem = self._difference(command, wanted, done)
            if problem is None:
                return
            # What is asked of may still be on its way: a record that is retried, a service or a replica that starts.
            if time.monotonic() > deadline or not command.startswith(
                ("curl", "ottla dlq list", "ottla dlq show", "ottla groups show", "ottla doctor --only")
            ):
                raise PageIsWrong(problem)
            time.sleep(0.2)

    def _difference(self, command: str, wanted: str, done: subprocess.CompletedProcess[str]) -> str | None:
        found = done.stdout.splitlines()
        for line in wanted.splitlines():
            if line != "..." and not any(map(matcher(line), found)):
                return (
                    f"$ {command}\nwanted {line!r}, found exit code {done.returncode} and\n{done.stdout}{done.stderr}"
                )
        if done.returncode:
            return f"$ {command}\nended with {done.returncode}: {done.stderr}"
        return None

    def _apply(self, path: Path, diff: str) -> None:
        lines = [line or " " for line in diff.split("\n")[:-1]]
        before = "".join(f"{line[1:]}\n" for line in lines if line[0] in " -")
        after = "".join(f"{line[1:]}\n" for line in lines if line[0] in " +")
        text = path.read_text(encoding="utf-8")
        if text.count(before) != 1:
            raise PageIsWrong(f"{path.name}: the lines of this diff stand there {text.count(before)} times:\n{diff}")
        path.write_text(text.replace(before, after), encoding="utf-8")


def follow(page: Path, folder: Path, bin_folder: Path, *, without: str | None = None) -> int:
    """Follow every block of a page, but those of a section; returns how many there were."""
    follower = Follower(folder, bin_folder)
    count = 0
    try:
        for block in blocks_of(page):
            if without is None or without not in block.section:
                follower.follow(block)
                count += 1
    finally:
        follower.close()
    return count


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--bin", type=Path, default=Path(sys.executable).parent)
    parser.add_argument("--without", help="leave out the sections whose title contains this")
    options = parser.parse_args()
    began = time.monotonic()
    number = follow(options.page, options.folder, options.bin.absolute(), without=options.without)
    print(f"{options.page}: {number} blocks, {time.monotonic() - began:.1f} s")
