"""Changing a query's checkpoint: other offsets, or none at all. Always with a backup, never under a running query.

Three traps that these functions know, and that editing files does not:

- Spark keeps checksums beside its files (`.7.crc`): a file that was edited alone cannot be read any more.
- A batch that was planned and not committed would run again with its old offsets, whatever the batch before it says.
- Windows, joins and dedup keep state in the checkpoint. Records that are read again are counted again.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from ottla.errors import ConfigError
from ottla.foreign_json import read_json
from ottla.records import TopicPartition
from ottla.spark.checkpoints.checkpoint import (
    START_FILES,
    Checkpoint,
    line_offsets,
    query_lock,
    read_checkpoint,
    read_lines,
)
from ottla.spark.checkpoints.offsets import Offsets, from_json_dict, to_json_dict
from ottla.spark.checkpoints.start_offsets import local_path


def check_new_offsets(checkpoint: Checkpoint, offsets: Mapping[TopicPartition, int], *, keep_state: bool) -> None:
    """Refuse what cannot be meant."""
    if not checkpoint.position:
        raise ConfigError(
            f"{checkpoint.path}: no batch is committed yet; give the query other starting offsets instead"
        )
    unknown = sorted(str(p) for p in offsets if p not in checkpoint.position)
    if unknown:
        known = ", ".join(str(p) for p in sorted(checkpoint.position))
        raise ConfigError(f"{checkpoint.path}: {', '.join(unknown)} is not read by this query; it reads {known}")
    negative = [f"{p}: {offset}" for p, offset in offsets.items() if offset < 0]
    if negative:
        raise ConfigError(f"{checkpoint.path}: found {', '.join(negative)}, wanted offsets from 0 on")
    if checkpoint.has_state and not keep_state:
        raise ConfigError(
            f"{checkpoint.path}: the query keeps state (windows, joins or dedup) of the records behind it; read again"
            " they count twice, skipped they are missing. Replay into a new version, or say --keep-state"
        )


def set_offsets(location: str, offsets: Mapping[TopicPartition, int], *, keep_state: bool = False) -> Path:
    """Let the query go on at these offsets; partitions not named keep theirs. Answers where the backup is."""
    with query_lock(location):
        checkpoint = read_checkpoint(location)
        check_new_offsets(checkpoint, offsets, keep_state=keep_state)
        backup = _back_up(checkpoint.path)
        if checkpoint.committed is None:
            _set_start(checkpoint.path, offsets)
            _forget_batches(checkpoint.path, after=-1)
        else:
            _set_batch(checkpoint.path / "offsets" / str(checkpoint.committed.number), offsets)
            _forget_batches(checkpoint.path, after=checkpoint.committed.number)
        return backup


def reset(location: str) -> Path:
    """Reset the query, as if it had never run. Returns the old checkpoint, which was moved away."""
    with query_lock(location):
        path = read_checkpoint(location).path
        backup = _backup_path(path)
        path.rename(backup)
        return backup


def _set_batch(file: Path, offsets: Mapping[TopicPartition, int]) -> None:
    lines = read_lines(file)
    changed = lines[:2]
    for line in lines[2:]:
        known = line_offsets(line)
        if known is None:
            changed.append(line)
            continue
        topic_ids = from_json_dict(read_json(line))[1]
        # json.dumps with its defaults: what the source itself writes, and Spark compares offsets as text.
        changed.append(json.dumps(to_json_dict(_merged(known, offsets), topic_ids)))
    _write(file, "\n".join(changed))


def _set_start(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    for file in path.glob(START_FILES):
        known = from_json_dict(read_json(file.read_text(encoding="utf-8")))[0]
        _write(file, json.dumps(to_json_dict(_merged(known, offsets))))


def _merged(known: Offsets, offsets: Mapping[TopicPartition, int]) -> Offsets:
    return known | {p: offset for p, offset in offsets.items() if p in known}


def _write(file: Path, text: str) -> None:
    scratch = file.with_name(f".{file.name}.ottla")
    scratch.write_text(text, encoding="utf-8")
    _checksum_of(file).unlink(missing_ok=True)
    scratch.replace(file)


def _forget_batches(path: Path, *, after: int) -> None:
    folder = path / "offsets"
    for file in list(folder.iterdir()) if folder.is_dir() else []:
        if file.name.isdigit() and int(file.name) > after:
            _checksum_of(file).unlink(missing_ok=True)
            file.unlink()


def _checksum_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.crc")


def _back_up(path: Path) -> Path:
    """Return a copy of everything but the state, which `set_offsets` leaves alone and which can be large."""
    backup = _backup_path(path)
    shutil.copytree(path, backup, ignore=lambda folder, _: ["state"] if local_path(folder) == path else [])
    return backup


def _backup_path(path: Path) -> Path:
    stem = f"{path.name}.backup-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    candidate, number = path.with_name(stem), 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{stem}-{number}")
    return candidate
