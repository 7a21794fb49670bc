"""What a run of a plan is about to do, written and on disk before it does it: one JSON document a line.

After a kill at any point the same command goes on: what is done is read from the cluster, and the journal says which
moves are ours and how throttles were before. A last line that was cut off in the middle was never acted on.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from ottla.admin.facts.facts_file import read_bounded
from ottla.errors import InputError
from ottla.foreign_json import ForeignJsonError, read_json

BEGIN: Final = "begin"
THROTTLE: Final = "throttle"
SUBMIT: Final = "submit"
DIRS: Final = "dirs"
ELECT: Final = "elect"
CANCEL: Final = "cancel"
CANCELLED: Final = "cancelled"
"""Responses of brokers to a cancel. Without this line it is unknown whether they received it."""
REORDER: Final = "reorder"
RESTORE: Final = "restore"
RESTORED: Final = "restored"
DONE: Final = "done"

Line = Mapping[str, Any]


class Journal:
    """The journal of a run; `with Journal(path) as journal` locks the file. `lines` holds the lines of earlier runs and
    of this one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[Line] = []
        self._file: Any = None

    def __enter__(self) -> Journal:
        try:
            self._file = self.path.open("ab", buffering=0)  # closing it must write nothing
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror or error}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise InputError(f"{self.path}: another command runs this plan now") from None
        try:
            self.lines, whole = _read(self.path)
            self._file.truncate(whole)
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, step: str, **content: Any) -> None:
        """Write a line, and return when it is on disk."""
        line = {"step": step, **content}
        data = memoryview(json.dumps(line).encode() + b"\n")
        try:
            while data:
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InputError(
                f"{self.path}: {error.strerror or error}: no further move is begun, and moves under way continue;"
                " run the same command again when the file can be written"
            ) from None
        self.lines.append(line)

    def last(self, *steps: str) -> Line | None:
        """Return the last line of these steps."""
        return next((line for line in reversed(self.lines) if line["step"] in steps), None)


def read_journal(path: Path) -> list[Line]:
    """Return the lines of a journal without locking it; empty if it does not exist."""
    return _read(path)[0] if path.exists() else []


def is_written(path: Path) -> bool:
    """Return whether another command has this journal open now, and so runs its plan."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _read(path: Path) -> tuple[list[Line], int]:
    """Return the whole lines, and how many bytes they have."""
    data = read_bounded(path)
    whole = data.rfind(b"\n") + 1
    lines: list[Line] = []
    for number, text in enumerate(data[:whole].splitlines(), start=1):
        try:
            line = read_json(text)
        except ForeignJsonError:
            line = None
        if not isinstance(line, dict) or not isinstance(line.get("step"), str):
            raise InputError(f"{path}: line {number}: found {text[:60]!r}, wanted a step of a run as JSON")
        lines.append(line)
    return lines, whole


def submitted(lines: Iterable[Line]) -> dict[tuple[str, int], tuple[int, ...]]:
    """Return the moves that are ours: partition → replicas that were asked for, but for those whose cancel was
    answered."""
    found: dict[tuple[str, int], tuple[int, ...]] = {}
    for line in lines:
        if line["step"] == SUBMIT:
            found.update({(each["topic"], each["partition"]): tuple(each["replicas"]) for each in line["moves"]})
        elif line["step"] == CANCELLED:
            for each in line["moves"]:
                found.pop((each["topic"], each["partition"]), None)
    return found


def cancelled(lines: Iterable[Line]) -> set[tuple[str, int]]:
    """Return the moves that the run gave up and that are not finished. The next run tries them again."""
    found: set[tuple[str, int]] = set()
    for line in lines:
        if line["step"] == DONE:
            found.clear()
        if line["step"] == CANCEL:
            found |= {(each["topic"], each["partition"]) for each in line["moves"]}
        elif line["step"] == SUBMIT:
            found -= {(each["topic"], each["partition"]) for each in line["moves"]}
    return found
