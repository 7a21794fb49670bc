"""What Spark wrote into a query's checkpoint: offsets planned, batches committed, the watermark, state or none.

    checkpoint = read_checkpoint("/data/checkpoints/delays/v1/by_hour")
    checkpoint.position        # the offsets of the last committed batch: where a restart goes on

Spark first writes `offsets/N` (the plan of batch N), runs the batch, then writes `commits/N`. A restart runs the batch
that was planned and not committed again, with the same offsets. Reading needs neither Spark nor Java.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from ottla.errors import ConfigError
from ottla.foreign_json import read_json
from ottla.spark.checkpoints.files import Files, files_of, is_local, local_path
from ottla.spark.checkpoints.lease import lease
from ottla.spark.checkpoints.offsets import Offsets, from_json_dict, tasks_of

try:
    import fcntl
except ImportError:  # Windows has no such locks: there nothing tells whether a query runs
    fcntl = None  # type: ignore[assignment]

START_PREFIX = "ottla-starting-offsets"
LOCK_NAME = ".ottla-query.lock"
_NO_OFFSETS = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """One file of the offset log. `sources` are in the order of the query; None: that source had nothing yet."""

    number: int
    sources: tuple[Offsets | None, ...]
    tasks: tuple[int | None, ...]
    """Of each source: in how many tasks the batch reads it; None where it was not kept."""
    watermark_ms: int

    @property
    def position(self) -> Offsets:
        """The end offsets of all Kafka sources together."""
        return {p: offset for offsets in self.sources if offsets for p, offset in offsets.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint as it stood when it was read."""

    location: str
    query_id: str | None
    planned: PlannedBatch | None
    committed: PlannedBatch | None
    has_state: bool
    start: Offsets

    @property
    def position(self) -> Offsets:
        """Return the query's position: behind the last committed batch, or its fixed start."""
        return self.start if self.committed is None else self.committed.position

    @property
    def unfinished(self) -> PlannedBatch | None:
        """The batch that was planned and not committed: a restart runs it again, with the same offsets."""
        if self.planned is None or (self.committed is not None and self.planned.number <= self.committed.number):
            return None
        return self.planned


def is_checkpoint(location: str) -> bool:
    """Return whether a query has ever written here."""
    names = files_of(location).names(location.rstrip("/"))
    return "metadata" in names or "offsets" in names


def read_checkpoint(location: str) -> Checkpoint:
    """Return the checkpoint at `location`; a ConfigError when there is none."""
    location = location.rstrip("/")
    files = files_of(location)
    start = _start(files, location)
    if not is_checkpoint(location) and not start:
        raise ConfigError(f"{location}: no checkpoint of a Spark query (found neither metadata nor offsets)")
    planned, committed = _numbers(files, f"{location}/offsets"), _numbers(files, f"{location}/commits")
    last = committed[-1] if committed else None
    return Checkpoint(
        location=location,
        query_id=_query_id(files, f"{location}/metadata"),
        planned=_batch(files, location, planned[-1]) if planned else None,
        committed=_batch(files, location, last) if last in planned and last is not None else None,
        has_state=bool(files.names(f"{location}/state")),
        start=start,
    )


@contextmanager
def query_lock(location: str) -> Iterator[None]:
    """Hold the lock of this checkpoint while a query runs on it, or it is edited.

    On local disk the system releases it when a process dies. Elsewhere it is a lease (`lease.py`), which ends half a
    minute after its owner. Raises ConfigError when another one holds it.
    """
    if not is_local(location):
        with lease(files_of(location), location.rstrip("/")):
            yield
        return
    path = local_path(location)
    path.mkdir(parents=True, exist_ok=True)
    with (path / LOCK_NAME).open("w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConfigError(f"{path}: a query is running on this checkpoint; stop it first") from None
        yield


@contextmanager
def query_locks(locations: Sequence[str]) -> Iterator[None]:
    """Hold the locks of several checkpoints. They are taken side by side: to wait for one that a dead process has left
    takes as long as a lease, and for all of them no longer."""
    with ExitStack() as held:
        with ThreadPoolExecutor(max(1, len(locations)), thread_name_prefix="ottla-locks") as pool:
            taken = [pool.submit(held.enter_context, query_lock(location)) for location in locations]
        for each in taken:
            each.result()
        yield


def read_lines(files: Files, file: str) -> list[str]:
    """Return the lines of an offset log file: a version, the batch's metadata, then one line for each source."""
    content = files.read(file)
    if content is None:
        raise FileNotFoundError(f"{file}: no such file")
    lines = content.decode("utf-8").splitlines()
    if len(lines) < 2 or lines[0] != "v1":
        found = lines[0] if lines else "nothing"
        raise ConfigError(f"{file}: found {found!r}, wanted an offset log of version v1")
    return lines


def line_offsets(line: str) -> Offsets | None:
    """Return the offsets in a line, or None where it is not that of a Kafka source."""
    if line == _NO_OFFSETS:
        return None
    try:
        return from_json_dict(read_json(line))[0]
    except (ValueError, AttributeError, TypeError):
        return None  # another kind of source, a rate or a file source


def _line_tasks(line: str) -> int | None:
    try:
        return tasks_of(read_json(line))
    except (ValueError, AttributeError, TypeError):
        return None  # as above


def read_starts(files: Files, location: str) -> dict[str, Offsets]:
    """Return the files with starting offsets, by their address. Spark writes some of them as folders, with one part."""
    found = {}
    for name in files.names(location):
        if not (name.startswith(START_PREFIX) and name.endswith(".json")):
            continue
        path = f"{location}/{name}"
        parts = [path, *(f"{path}/{part}" for part in files.names(path) if part.startswith("part-"))]
        for part in parts:
            content = files.read(part)
            if content:
                found[part] = from_json_dict(read_json(content))[0]
    return found


def _batch(files: Files, location: str, number: int) -> PlannedBatch:
    lines = read_lines(files, f"{location}/offsets/{number}")
    metadata: dict[str, Any] = read_json(lines[1])
    return PlannedBatch(
        number=number,
        sources=tuple(line_offsets(line) for line in lines[2:]),
        tasks=tuple(_line_tasks(line) for line in lines[2:]),
        watermark_ms=int(metadata.get("batchWatermarkMs", 0)),
    )


def _numbers(files: Files, folder: str) -> list[int]:
    return sorted(int(name) for name in files.names(folder) if name.isdigit())


def _query_id(files: Files, file: str) -> str | None:
    try:
        return str(read_json(files.read(file) or b"")["id"])
    except (ValueError, KeyError):
        return None


def _start(files: Files, location: str) -> Offsets:
    return {p: offset for offsets in read_starts(files, location).values() for p, offset in offsets.items()}
