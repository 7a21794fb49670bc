"""Changing a query's checkpoint: other offsets, or none at all. Always with a backup, never under a running query.

Three traps that these functions know, and that editing files does not:

- Spark keeps checksums beside its files (`.7.crc`): a file that was edited alone cannot be read any more.
- A batch that was planned and not committed would run again with its old offsets, whatever the batch before it says.
- Windows, joins and dedup keep state in the checkpoint. Records that are read again are counted again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from ottla.errors import ConfigError
from ottla.foreign_json import read_json
from ottla.records import TopicPartition
from ottla.spark.checkpoints.checkpoint import (
    Checkpoint,
    line_offsets,
    query_lock,
    read_checkpoint,
    read_lines,
    read_starts,
)
from ottla.spark.checkpoints.files import Files, files_of, walk
from ottla.spark.checkpoints.lease import FOLDER
from ottla.spark.checkpoints.offsets import Offsets, from_json_dict, to_json_dict


def check_new_offsets(checkpoint: Checkpoint, offsets: Mapping[TopicPartition, int], *, keep_state: bool) -> None:
    """Refuse what cannot be meant."""
    if not checkpoint.position:
        raise ConfigError(
            f"{checkpoint.location}: no batch is committed yet; give the query other starting offsets instead"
        )
    unknown = sorted(str(p) for p in offsets if p not in checkpoint.position)
    if unknown:
        known = ", ".join(str(p) for p in sorted(checkpoint.position))
        raise ConfigError(f"{checkpoint.location}: {', '.join(unknown)} is not read by this query; it reads {known}")
    negative = [f"{p}: {offset}" for p, offset in offsets.items() if offset < 0]
    if negative:
        raise ConfigError(f"{checkpoint.location}: found {', '.join(negative)}, wanted offsets from 0 on")
    if checkpoint.has_state and not keep_state:
        raise ConfigError(
            f"{checkpoint.location}: the query keeps state (windows, joins or dedup) of the records behind it; read"
            " again they count twice, skipped they are missing. Replay into a new version, or say --keep-state"
        )


def set_offsets(location: str, offsets: Mapping[TopicPartition, int], *, keep_state: bool = False) -> str:
    """Let the query go on at these offsets; partitions not named keep theirs. Answers where the backup is."""
    with query_lock(location):
        checkpoint = read_checkpoint(location)
        check_new_offsets(checkpoint, offsets, keep_state=keep_state)
        location, files = checkpoint.location, files_of(location)
        backup = _back_up(files, location)
        if checkpoint.committed is None:
            _set_start(files, location, offsets)
            _forget_batches(files, location, after=-1)
        else:
            _set_batch(files, f"{location}/offsets/{checkpoint.committed.number}", offsets)
            _forget_batches(files, location, after=checkpoint.committed.number)
        return backup


def reset(location: str) -> str:
    """Reset the query, as if it had never run. Returns the old checkpoint, which was moved away."""
    with query_lock(location):
        location = read_checkpoint(location).location
        files = files_of(location)
        backup = _backup_path(files, location)
        files.move(location, backup)
        return backup


def _set_batch(files: Files, file: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = read_lines(files, file)
    changed = lines[:2]
    for line in lines[2:]:
        known = line_offsets(line)
        if known is None:
            changed.append(line)
            continue
        topic_ids = from_json_dict(read_json(line))[1]
        # json.dumps with its defaults: what the source itself writes, and Spark compares offsets as text.
        changed.append(json.dumps(to_json_dict(_merged(known, offsets), topic_ids)))
    _write(files, file, "\n".join(changed))


def _set_start(files: Files, location: str, offsets: Mapping[TopicPartition, int]) -> None:
    for file, known in read_starts(files, location).items():
        _write(files, file, json.dumps(to_json_dict(_merged(known, offsets))))


def _merged(known: Offsets, offsets: Mapping[TopicPartition, int]) -> Offsets:
    return known | {p: offset for p, offset in offsets.items() if p in known}


def _write(files: Files, file: str, text: str) -> None:
    files.delete(_checksum_of(file))
    files.write(file, text.encode("utf-8"))


def _forget_batches(files: Files, location: str, *, after: int) -> None:
    for name in files.names(f"{location}/offsets"):
        if name.isdigit() and int(name) > after:
            files.delete(_checksum_of(f"{location}/offsets/{name}"))
            files.delete(f"{location}/offsets/{name}")


def _checksum_of(file: str) -> str:
    folder, _, name = file.rpartition("/")
    return f"{folder}/.{name}.crc"


def _back_up(files: Files, location: str) -> str:
    """Copy everything but the state, which `set_offsets` does not change and which can be large. Returns the copy's
    location."""
    backup = _backup_path(files, location)
    for file in walk(files, location, skip=("state", FOLDER)):
        files.write(f"{backup}{file.removeprefix(location)}", files.read(file) or b"")
    return backup


def _backup_path(files: Files, location: str) -> str:
    folder, _, name = location.rpartition("/")
    stem = f"{name}.backup-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    taken = files.names(folder or "/")
    candidate, number = stem, 1
    while candidate in taken:
        number += 1
        candidate = f"{stem}-{number}"
    return f"{folder}/{candidate}"
