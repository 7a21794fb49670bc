"""Kafka clients of other languages, as small programs that a test runs, talks to and kills.

Each program (tests/clients/<language>/) has up to three commands and prints one line per event, words between tabs. A
line written to its standard input tells it to go on, or to stop.

`produce BOOTSTRAP TOPIC`: create the topic by the admin client if it has one (`created PARTITIONS`); 50 records with
each compression (`half SENT`); further records, until told; 50 with each compression again (`produced SENT`). Record n
has the key `kn`, the header n = `n` and a value that begins with `n:`.

`consume BOOTSTRAP TOPIC GROUP PROTOCOL`: a member of a group (`assigned PARTITIONS`) that prints what it gets (`record
PARTITION OFFSET KEY HEADER NUMBER`) and commits it (`committed PARTITION OFFSET`), until told (`closed`).

`transact BOOTSTRAP TOPIC ID first`: six transactions of nine records `tN-n` over three partitions, every other one
aborted; where the client can, each commits the offset N + 1 for the group `ID-group`. After three: `half`, and on when
told. Then one that stays open (`open`), until the program is killed. `second`: the same id commits `taken-over-n`, then
all is read with read_committed (`value VALUE`, `closed`).

`share BOOTSTRAP TOPIC GROUP work` (where `has_share_groups`): a member of a share group with explicit acknowledgements.
An offset that ends in 3 is released the first time, one that ends in 5 is rejected, the others are accepted (`settled
PARTITION OFFSET COUNT OUTCOME`, once the broker has answered; `unknown` for `settled` after an error), until told
(`closed`). `hold` instead of `work`: it keeps what it leased (`held PARTITION OFFSET`), until it is killed.

`chain BOOTSTRAP FROM TO ID PROTOCOL` (franz-go's only): a member of a group that moves what is committed from one topic
to the next in short transactions (`moved RECORDS`, `aborted RECORDS`, `failed REASON` of a record), until told
(`closed`).
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from apache_kafka import Unavailable as Unavailable
from apache_kafka import libraries

PROGRAMS = Path(__file__).parent.parent / "clients"
BUILD_TIMEOUT_S = 300.0
WAIT_S = 90.0


class Program:
    """One run of a program. What it printed is kept; leaving the `with` block ends it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed at the end of the block)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0
        )
        self._lines: list[list[str]] = []
        self._changed = threading.Condition()
        self._is_at_end = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._errors.close()

    def said(self, word: str) -> list[list[str]]:
        """The words after `word` of every line that begins with it, so far."""
        with self._changed:
            return [line[1:] for line in self._lines if line[0] == word]

    def wait_for(self, word: str) -> list[str]:
        """The words after the first line that begins with `word`."""
        self.wait_until(lambda: bool(self.said(word)), f"a line that begins with {word!r}")
        return self.said(word)[0]

    def wait_until(self, is_so: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
        """Until what it printed makes `is_so` true; fails with what it printed if it ends or takes too long."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not is_so():
                left = deadline - time.monotonic()
                if self._is_at_end or left <= 0:
                    why = "it ended" if self._is_at_end else f"{timeout_s:g} s were over"
                    raise AssertionError(f"{why} before {what}; {self._what_happened()}")
                self._changed.wait(left)

    def tell(self) -> None:
        """What it waits for has happened."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")

    def kill(self) -> None:
        """`kill -9`."""
        self._process.kill()
        self._process.wait()
        self._reader.join(10)

    def wait(self) -> None:
        """Until it ends by itself; fails if its exit code is not 0."""
        try:
            code = self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end; {self._what_happened()}") from None
        self._reader.join(10)
        assert code == 0, f"exit code {code}; {self._what_happened()}"

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in iter(output.readline, b""):
                with self._changed:
                    self._lines.append(line.decode().rstrip("\n").split("\t"))
                    self._changed.notify_all()
        with self._changed:
            self._is_at_end = True
            self._changed.notify_all()

    def _what_happened(self) -> str:
        self._errors.seek(0)
        errors = self._errors.read().decode(errors="replace")[-3000:]
        return f"last lines: {self._lines[-5:]}, errors:\n{errors}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignClient:
    """A client and what its program can do."""

    name: str
    command: Callable[[], Sequence[str]]
    """Builds it if need be; Unavailable says what is missing."""
    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")
    """Those that it can write and read here."""
    protocols: Sequence[str] = ("classic",)
    has_transactions: bool = True
    commits_offsets_in_transactions: bool = True
    finds_new_coordinators_in_transactions: bool = True
    creates_topics: bool = True
    has_share_groups: bool = False
    has_headers: bool = True
    """False where it gives the same headers to everything that it sends."""
    leaves_out_what_was_aborted: bool = True
    writes_once: bool = True
    """False where the client, or the program that tries again in its place, writes a record twice after a failure."""

    def run(self, *arguments: str) -> Program:
        return Program([*self.command(), *arguments])


@dataclass(slots=True)
class _Builds:
    """What was built in this run, in a folder that goes with it; what could not be had is asked for once."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="ottla-clients-")))
    done: dict[str, Path | Unavailable] = field(default_factory=dict)

    def get(self, name: str, build: Callable[[Path], None]) -> Path:
        if name not in self.done:
            target = self.folder / name
            target.mkdir(parents=True)
            try:
                build(target)
                self.done[name] = target
            except Unavailable as reason:
                self.done[name] = reason
        found = self.done[name]
        if isinstance(found, Unavailable):
            raise found
        return found


_builds: _Builds | None = None


def _built(name: str, build: Callable[[Path], None]) -> Path:
    global _builds
    if _builds is None:
        _builds = _Builds()
        atexit.register(shutil.rmtree, _builds.folder, ignore_errors=True)
    return _builds.get(name, build)


def _need(program: str, what_for: str) -> None:
    if shutil.which(program) is None:
        raise Unavailable(f"{program} is not on the PATH: {what_for}")


def _fetch(command: Sequence[str], folder: Path, registry: str) -> None:
    """What asks a registry: its failure means that there is nothing to test with."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{registry} did not answer within {BUILD_TIMEOUT_S:g} s") from None
    if done.returncode != 0:
        raise Unavailable(f"{registry} did not give what is needed: {(done.stderr or done.stdout).strip()[-300:]}")


def _compile(command: Sequence[str], folder: Path) -> None:
    """What asks nobody: its failure is a failure."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-3000:]


def _java() -> Sequence[str]:
    _need("javac", "the Java programs are compiled")
    jars = f"{libraries()}/*"
    sources = ("Client.java", "Share.java")
    classes = _built(
        "java", lambda target: _compile(["javac", "-cp", jars, "-d", str(target), *sources], PROGRAMS / "java")
    )
    return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{jars}", "Client"]


def built_go(source: Path) -> Path:
    """Return the folder with the programs of this Go module, built once for a run. Raises Unavailable without Go."""

    def build(target: Path) -> None:
        _need("go", "the Go programs are compiled")
        _fetch(["go", "mod", "download"], source, "Go's module proxy")
        _compile(["go", "build", "-mod=readonly", "-o", f"{target}/", "./..."], source)

    return _built(source.name, build)


def _go(program: str) -> Callable[[], Sequence[str]]:
    return lambda: [str(built_go(PROGRAMS / "go") / program)]


def _javascript(program: str) -> Callable[[], Sequence[str]]:
    def build(target: Path) -> None:
        _need("npm", "the JavaScript clients come from npm's registry")
        shutil.copytree(PROGRAMS / "javascript", target, dirs_exist_ok=True)
        _fetch(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], target, "npm's registry")

    return lambda: ["node", str(_built("javascript", build) / f"{program}.js")]


def _python() -> Sequence[str]:
    return [sys.executable, str(PROGRAMS / "python" / "client.py")]


def _kcat() -> Sequence[str]:
    _need("kcat", "Debian's package of that name, or Homebrew's, has it")
    return [sys.executable, str(PROGRAMS / "kcat" / "client.py")]


KAFKA_PYTHON = ForeignClient(
    name="kafka-python",
    command=_python,
    codecs=("none", "gzip", *(["zstd"] if find_spec("zstandard") else [])),
    finds_new_coordinators_in_transactions=False,  # 3.0.12 drops a request whose connection is refused
)
"""The one that PyPI gives: its round is part of `make test`."""

CLIENTS: Mapping[str, ForeignClient] = {
    each.name: each
    for each in (
        KAFKA_PYTHON,
        ForeignClient(name="java", command=_java, protocols=("classic", "consumer"), has_share_groups=True),
        ForeignClient(
            name="franz-go",
            command=_go("franz"),
            protocols=("classic", "consumer"),
            has_share_groups=True,
            commits_offsets_in_transactions=False,  # only together with its own group member
        ),
        ForeignClient(name="sarama", command=_go("sarama")),
        ForeignClient(
            name="kcat", command=_kcat, creates_topics=False, has_headers=False, commits_offsets_in_transactions=False
        ),
        ForeignClient(name="kafkajs", command=_javascript("kafkajs"), codecs=("none", "gzip", "snappy")),
        ForeignClient(
            name="platformatic",
            command=_javascript("platformatic"),
            writes_once=False,
            codecs=("none", "gzip", "snappy", "lz4"),  # zstd from Node.js 22.15 on
            commits_offsets_in_transactions=False,  # only those of its own consumer's messages
            finds_new_coordinators_in_transactions=False,  # 1.35.0 keeps the first one it was told of,
            protocols=("classic", "consumer"),
            leaves_out_what_was_aborted=False,  # and hands out aborted records to read_committed
        ),
    )
}
