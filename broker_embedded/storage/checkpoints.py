"""The small text files of a log directory and of a partition, in Kafka's formats.

Checkpoints: version (0), number of entries, one entry per line. Each is replaced as a whole, so a crash leaves the old
one or the new one.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping

from broker_embedded.common.errors import StartupError
from broker_embedded.common.filesystem import FileSystem, read_whole, write_whole
from broker_embedded.common.types import TopicPartition

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
CLEANER_OFFSET = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"

_VERSION = "0"
_CLEAN_SHUTDOWN_TEXT = b'{"version": 0, "brokerEpoch": -1}'


class CorruptCheckpointError(Exception):
    """The file contradicts its format."""


def read_lines(fs: FileSystem, path: str) -> list[str]:
    """Return the entries of a checkpoint."""
    try:
        lines = read_whole(fs, path).decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError(f"{path}: not a text file") from error
    if len(lines) < 2 or lines[0] != _VERSION or not lines[1].isdigit():
        raise CorruptCheckpointError(
            f"{path}: starts with {lines[:2]}, wanted version {_VERSION} and a number of entries"
        )
    entries = [line for line in lines[2:] if line]
    if len(entries) != int(lines[1]):
        raise CorruptCheckpointError(f"{path}: {len(entries)} entries, it announces {lines[1]}")
    return entries


def write_lines(fs: FileSystem, path: str, entries: Iterable[str]) -> None:
    """Replace a checkpoint, durably."""
    lines = list(entries)
    write_whole(fs, path, "".join(f"{line}\n" for line in (_VERSION, str(len(lines)), *lines)).encode())


def read_offsets(fs: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Return an offset per partition; empty if there is no file. Raises CorruptCheckpointError for a file of another
    format."""
    try:
        lines = read_lines(fs, path)
    except FileNotFoundError:
        return {}
    offsets = {}
    for line in lines:
        parts = line.split()
        if len(parts) != 3 or not parts[1].isdigit() or not parts[2].lstrip("-").isdigit():
            raise CorruptCheckpointError(f"{path}: line {line!r}, wanted `topic partition offset`")
        offsets[TopicPartition(parts[0], int(parts[1]))] = int(parts[2])
    return offsets


def write_offsets(fs: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    write_lines(fs, path, (f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())))


# -- partition.metadata


def write_partition_metadata(fs: FileSystem, directory: str, topic_id: bytes) -> None:
    """Write the topic id of a partition directory, so that a topic that was deleted and created again is not mistaken
    for the old one.

    Written once, into a directory that has none, so it replaces nothing. It is durable after `sync_partition_metadata`.
    """
    text = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
    file = fs.open(f"{directory}/{PARTITION_METADATA}", create=True)
    try:
        file.truncate(0)
        file.write_at(f"version: 0\ntopic_id: {text}\n".encode(), 0)
    finally:
        file.close()


def sync_partition_metadata(fs: FileSystem, directory: str) -> None:
    """Make the file durable, with its name and the names of the directory's other entries."""
    file = fs.open(f"{directory}/{PARTITION_METADATA}")
    try:
        file.flush()
    finally:
        file.close()
    fs.sync_dir(directory)


def read_partition_metadata(fs: FileSystem, directory: str) -> bytes | None:
    """Return the topic id (16 bytes), or None for a missing or unreadable file."""
    try:
        text = read_whole(fs, f"{directory}/{PARTITION_METADATA}").decode()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    values = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        topic_id = base64.urlsafe_b64decode(values.get("topic_id", "") + "==")
    except ValueError:
        return None
    return topic_id if len(topic_id) == 16 else None


# -- meta.properties


def write_meta_properties(fs: FileSystem, directory: str, properties: Mapping[str, str]) -> None:
    """Write cluster.id, node.id and directory.id of a log directory (version 1)."""
    lines = ["#", *(f"{key}={value}" for key, value in sorted({**properties, "version": "1"}.items()))]
    write_whole(fs, f"{directory}/{META_PROPERTIES}", "".join(f"{line}\n" for line in lines).encode())


def read_meta_properties(fs: FileSystem, directory: str) -> dict[str, str] | None:
    """Return the properties, or None without a file. Raises StartupError for a binary file."""
    path = f"{directory}/{META_PROPERTIES}"
    try:
        data = read_whole(fs, path)
    except FileNotFoundError:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise StartupError(
            f"{path}: not a text file, byte {error.start} is {data[error.start]:#04x}: restore it from a copy, or "
            "remove it if the directory is this broker's own"
        ) from None
    pairs = (line.split("=", 1) for line in text.splitlines() if line and line[0] not in "#!" and "=" in line)
    return {key.strip(): value.strip().replace("\\", "") for key, value in pairs}


# -- clean shutdown


def write_clean_shutdown(fs: FileSystem, directory: str) -> None:
    """Mark that every log in the directory was flushed and closed: the next start skips recovery."""
    write_whole(fs, f"{directory}/{CLEAN_SHUTDOWN}", _CLEAN_SHUTDOWN_TEXT)


def take_clean_shutdown(fs: FileSystem, directory: str) -> bool:
    """Remove the marker and return whether it existed."""
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    if not fs.exists(path):
        return False
    fs.remove(path)
    fs.sync_dir(directory)
    return True
