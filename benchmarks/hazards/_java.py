"""Runs a consuming service of a Java peer: needs Java 17 and Maven, which fetches and compiles it at the first use.

The service (`<peer>/src/*.java`) prints one line `call VALUE` each time its handler is called, and what it has to say
besides; it ends when its input is closed. What it is told is in `name=value` arguments, which its file explains.
"""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path
from typing import Self

HERE = Path(__file__).parent

CONSUMERS = ("spring-kafka", "parallel-consumer")
"""The peers whose `Service` takes the same arguments: one script shows what becomes of a case with each of them."""


class Service:
    """One process. A context manager: it is stopped gracefully at the end of the block, if it was not before."""

    def __init__(self, peer: str, main: str, **options: object) -> None:
        self.lines: list[str] = []
        self.times: list[float] = []
        """When each line came, by `time.time()`."""
        self._process = subprocess.Popen(
            ["java", "-Xmx256m", "-cp", _class_path(peer), main, *(f"{key}={value}" for key, value in options.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def calls(self) -> list[str]:
        """The values its handler was called with, in order."""
        return [line.removeprefix("call ") for line in self.lines if line.startswith("call ")]

    @property
    def handled(self) -> list[str]:
        """The values that it was done with, in order."""
        return [line.removeprefix("handled ") for line in self.lines if line.startswith("handled ")]

    def count(self, line: str) -> int:
        return self.lines.count(line)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        if self._process.stdin is not None and self.is_running:
            self._process.stdin.close()
        try:
            self._process.wait(40)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reader.join(5)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)
        self._reader.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.stop()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.times.append(time.time())
            self.lines.append(line.rstrip("\n"))


def version(peer: str) -> str:
    """`spring-kafka 4.1.1`: what the peer's own jar on the class path is called."""
    jar = next(Path(jar) for jar in _class_path(peer).split(":") if Path(jar).name.startswith(peer))
    return jar.stem.replace(f"{peer}-core-", f"{peer} ").replace(f"{peer}-", f"{peer} ")


def say(peer: str, text: str) -> None:
    print(f"{version(peer)}: {text}", flush=True)


def _class_path(peer: str) -> str:
    built = HERE.parents[1] / "build" / "hazards" / peer
    listed = built / "class-path"
    sources = [*(HERE / peer).rglob("*.java"), HERE / peer / "pom.xml"]
    if not listed.exists() or listed.stat().st_mtime < max(file.stat().st_mtime for file in sources):
        command = ["mvn", "-q", "-B", "compile", "dependency:build-classpath", f"-Dmdep.outputFile={listed}"]
        subprocess.run(command, cwd=HERE / peer, check=True, stdout=subprocess.DEVNULL)
        listed.touch()
    return f"{listed.read_text().strip()}:{built / 'classes'}"
