"""The lock of a checkpoint on a store without file locks: a lease that its owner renews.

    .ottla-lock/7      {"owner": "host:4711", "lease": "5f0c...", "beat": 12, "released": false}

1. A lock is a file with a number. To take it is to create the next number, by a conditional write: one of two wins.
2. The owner writes a new beat into its file every third of the lease.
3. Whoever finds a file that is not released watches it. A beat that changes: the owner lives, and the lock is refused.
   None for the whole lease: the owner is dead, and the next number may be taken.
4. Where writes are not conditional, a process that created its file watches it for two thirds of the lease. If the
   content changes, an owner that it overwrote is alive, or another process created the file at the same moment: the
   lock is refused. Otherwise it writes a beat, before those that watch it give up.

No two clocks are compared: the watcher measures with its own. An owner that cannot write for longer than the lease may
lose it while it runs; Spark then stops one of the two queries, for both write the same log.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from ottla.errors import ConfigError
from ottla.foreign_json import read_json
from ottla.spark.checkpoints.files import Files
from ottla.telemetry import log_event

FOLDER: Final = ".ottla-lock"
LEASE_S: Final = 30.0
_LOOKS: Final = 6
"""How often a lock that is held is looked at in the time of a lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The newest lock of a folder as it was read. `content` changes with each beat of its owner."""

    number: int
    owner: str
    content: bytes
    is_released: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Owner:
    """A process, and which of its leases."""

    process: str
    lease: str

    def content(self, *, beat: int, is_released: bool = False) -> bytes:
        return json.dumps({"owner": self.process, "lease": self.lease, "beat": beat, "released": is_released}).encode()


@contextmanager
def lease(files: Files, location: str, *, lease_s: float = LEASE_S) -> Iterator[None]:
    """Hold the lock of `location`. Raises `ConfigError` when its owner lives; waits a whole lease for one that died."""
    owner = _Owner(process=f"{socket.gethostname()}:{os.getpid()}", lease=uuid.uuid4().hex)
    number = _take(files, location, owner, lease_s)
    stop = threading.Event()
    renewal = threading.Thread(
        target=_renew, args=(files, location, number, owner, lease_s, stop), name="ottla-lease", daemon=True
    )
    renewal.start()
    try:
        yield
    finally:
        stop.set()
        renewal.join()
        _release(files, location, number, owner)


def read_held(files: Files, location: str) -> Held | None:
    """Return the newest lock, or None where there never was one."""
    content = None
    while content is None:  # whoever takes the next number deletes the one before it
        number = _newest(files, location, 0)
        if number == 0:
            return None
        content = files.read(_path(location, number))
    try:
        body = read_json(content)
        owner, is_released = str(body["owner"]), body["released"] is True
    except (ValueError, KeyError, TypeError):
        owner, is_released = "an unknown process", False  # cut off while it was written: as if it were held
    return Held(number=number, owner=owner, content=content, is_released=is_released)


def _take(files: Files, location: str, owner: _Owner, lease_s: float) -> int:
    seen = read_held(files, location)
    while True:
        if seen is not None and not seen.is_released:
            _await_death(files, location, seen, lease_s)
        number = 1 if seen is None else seen.number + 1
        if files.create(_path(location, number), owner.content(beat=0)):
            if not files.is_create_conditional:
                _await_no_other(files, location, number, owner, lease_s)
            if seen is not None:
                files.delete(_path(location, seen.number))
            return number
        seen = read_held(files, location)


def _await_death(files: Files, location: str, seen: Held, lease_s: float) -> None:
    """Return when the owner has shown no sign of life for a lease."""
    deadline = time.monotonic() + lease_s
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, lease_s / _LOOKS))
        now = read_held(files, location)
        if now is not None and now.is_released and now.number == seen.number:
            return
        if now is None or now.content != seen.content or now.number != seen.number:
            raise _is_held(location, seen)


def _await_no_other(files: Files, location: str, number: int, owner: _Owner, lease_s: float) -> None:
    """Wait two beats, then write a beat. Raises `ConfigError` if another owner wrote the file meanwhile."""
    deadline = time.monotonic() + lease_s * 2 / 3
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, lease_s / _LOOKS))
        now = read_held(files, location)
        if now is None or now.content != owner.content(beat=0):
            raise _is_held(location, now)
    files.write(_path(location, number), owner.content(beat=1))


def _is_held(location: str, held: Held | None) -> ConfigError:
    who = "another process" if held is None else held.owner
    return ConfigError(f"{location}: a query is running on this checkpoint ({who}); stop it first")


def _renew(files: Files, location: str, number: int, owner: _Owner, lease_s: float, stop: threading.Event) -> None:
    beat = 1
    while not stop.wait(lease_s / 3):
        beat += 1
        try:
            if _newest(files, location, number) != number:
                log_event("pipeline_lock_lost", "error", {"checkpoint": location})
                return
            files.write(_path(location, number), owner.content(beat=beat))
        except ConfigError as error:
            log_event("pipeline_lock_not_renewed", "warning", {"checkpoint": location, "reason": str(error)})


def _release(files: Files, location: str, number: int, owner: _Owner) -> None:
    """Let the next owner in at once. Where the store is out of reach it gets in after a lease."""
    try:
        if files.read(_path(location, number)) is not None:  # it is gone with a checkpoint that was moved away
            files.write(_path(location, number), owner.content(beat=0, is_released=True))
    except ConfigError as error:
        log_event("pipeline_lock_not_renewed", "warning", {"checkpoint": location, "reason": str(error)})


def _newest(files: Files, location: str, least: int) -> int:
    numbers = [int(name) for name in files.names(f"{location}/{FOLDER}") if name.isdigit()]
    return max([least, *numbers])


def _path(location: str, number: int) -> str:
    return f"{location}/{FOLDER}/{number}"
