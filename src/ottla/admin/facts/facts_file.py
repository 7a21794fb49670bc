"""Facts as JSON, saved on one machine and read on another. A file is untrusted input, so every value is checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from ottla import bounded_files
from ottla.admin.facts.cluster_facts import ClusterFacts
from ottla.errors import InputError

T = TypeVar("T")

SCHEMA: Final = "ottla.facts/1"
MOST_BYTES: Final = 1 << 30
"""A larger file is not read: 20,000 partitions with three replicas take some 10 MB."""

_NOT_JSON: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of the decoder for an invalid document."""


def to_json(schema: str, content: object) -> bytes:
    """Return one document: its schema's name first, then the fields of the dataclass."""
    fields: dict[str, Any] = {"schema": schema, **msgspec.to_builtins(content)}
    return msgspec.json.format(msgspec.json.encode(fields), indent=1) + b"\n"


def from_json(data: bytes, schema: str, kind: type[T], *, source: str) -> T:
    """Return the dataclass in a document of this schema. InputError names the place that is wrong and what was
    wanted."""
    try:
        found = msgspec.json.decode(data, type=_SchemaName)
    except _NOT_JSON as error:
        raise InputError(f"{source}: found {error or 'JSON nested too deeply'}, wanted the schema {schema}") from None
    if found.schema != schema:
        raise InputError(f"{source}: found the schema {found.schema[:100]!r}, wanted {schema!r}")
    try:
        return msgspec.json.decode(data, type=kind)
    except _NOT_JSON as error:
        raise InputError(f"{source}: {error or 'JSON nested too deeply'}") from None


def dump_facts(facts: ClusterFacts) -> bytes:
    """Return the facts as one JSON document."""
    return to_json(SCHEMA, facts)


def load_facts(data: bytes, *, source: str = "facts") -> ClusterFacts:
    """Return facts out of a JSON document. InputError where it is none."""
    return from_json(data, SCHEMA, ClusterFacts, source=source)


def save_facts(facts: ClusterFacts, path: str | Path) -> None:
    """Write the facts to a file, whole or not at all."""
    write_whole(path, dump_facts(facts))


def read_facts_file(path: str | Path) -> ClusterFacts:
    """Return the facts in a file."""
    return load_facts(read_bounded(path), source=str(path))


def read_bounded(path: str | Path) -> bytes:
    """Return the bytes of a file that a person named. InputError where it cannot be read or is larger than such files
    are."""
    return bounded_files.read_bounded(path, MOST_BYTES, wanted="at most that")[0]


def write_whole(path: str | Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write a file so that it has all of this or what it had before, whatever happens. InputError if it cannot be.

    `mode` is that of the file, less the process's umask. A symbolic link is followed. A device or a pipe (/dev/stdout,
    /dev/null) is written to, and never replaced."""
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            _write_to_device(path, data)
        else:
            _replace(Path(os.path.realpath(path)), data, mode)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _write_to_device(path: Path, data: bytes) -> None:
    with path.open("wb") as device:
        device.write(data)


def _replace(path: Path, data: bytes, mode: int) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    beside.unlink(missing_ok=True)  # another file's mode, or a link, would become this file's
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


class _SchemaName(msgspec.Struct):
    schema: str
