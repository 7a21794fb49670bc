"""One log directory: its lock, its identity, the offsets saved in it, the partition directories found in it."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping

from broker_embedded.common.errors import StartupError
from broker_embedded.common.filesystem import FileSystem, Lock, write_whole
from broker_embedded.common.types import TopicPartition
from broker_embedded.storage import checkpoints
from broker_embedded.storage.checkpoints import CorruptCheckpointError
from broker_embedded.storage.faults import storage_error
from ottla_wire.facts import fact

logger = logging.getLogger(__name__)

DELETE_DIR_SUFFIX = "-delete"
STRAY_DIR_SUFFIX = "-stray"
FUTURE_DIR_SUFFIX = "-future"
_PROBE = ".writable"


@fact
class OffsetCheckpoint:
    """Contents of a directory's checkpoints."""

    is_clean: bool
    recovery_points: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]
    cleaned_to: Mapping[TopicPartition, int]


class LogDir:
    """See the module. Open it with `LogDir.open`."""

    def __init__(self, fs: FileSystem, path: str, lock: Lock) -> None:
        self._fs = fs
        self._lock = lock
        self._written: dict[str, Mapping[TopicPartition, int]] = {}
        self.path = path

    @classmethod
    def open(cls, fs: FileSystem, path: str) -> LogDir:
        """Create, lock and probe the directory; StartupError with path and remedy if that cannot be."""
        try:
            fs.make_dirs(path)
            lock = fs.lock(f"{path}/{checkpoints.LOCK}")
        except BlockingIOError:
            raise StartupError(
                f"{path} is locked by another broker: stop that one, or set log.dirs to another directory"
            ) from None
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTDIR):
                raise StartupError(f"{path} is not a directory: set log.dirs to one") from error
            raise StartupError(storage_error(error, path=path, doing="opening").message) from error
        try:
            write_whole(fs, f"{path}/{_PROBE}", b"")
            fs.remove(f"{path}/{_PROBE}")
        except OSError as error:
            lock.release()
            raise StartupError(storage_error(error, path=path, doing="writing").message) from error
        return cls(fs, path, lock)

    def release(self) -> None:
        """Give the lock up."""
        self._lock.release()

    # -- identity

    def bind_identity(self, *, cluster_id: str, node_id: int, new_directory_id: Callable[[], str]) -> str:
        """Write `meta.properties` if there is none, else check that the directory is ours; returns its directory id."""
        found = checkpoints.read_meta_properties(self._fs, self.path)
        if found is None:
            found = {"cluster.id": cluster_id, "node.id": str(node_id), "directory.id": new_directory_id()}
            checkpoints.write_meta_properties(self._fs, self.path, found)
        for key, wanted in (("cluster.id", cluster_id), ("node.id", str(node_id))):
            if found.get(key, wanted) != wanted:
                raise StartupError(
                    f"{self.path}/{checkpoints.META_PROPERTIES}: {key} is {found[key]}, this broker has {wanted}: "
                    "set log.dirs to this broker's own directory"
                )
        if "directory.id" not in found:
            found["directory.id"] = new_directory_id()
            checkpoints.write_meta_properties(self._fs, self.path, found)
        return found["directory.id"]

    # -- saved offsets

    def read_saved_offsets(self) -> OffsetCheckpoint:
        """Return the checkpoints. An unreadable one is logged and counts as empty: more is recovered, nothing is
        lost."""
        names = frozenset(self._fs.list_dir(self.path))
        return OffsetCheckpoint(
            is_clean=checkpoints.CLEAN_SHUTDOWN in names and checkpoints.take_clean_shutdown(self._fs, self.path),
            recovery_points=self._read(checkpoints.RECOVERY_POINT, names),
            log_starts=self._read(checkpoints.LOG_START, names),
            high_watermarks=self._read(checkpoints.HIGH_WATERMARK, names),
            cleaned_to=self._read(checkpoints.CLEANER_OFFSET, names),
        )

    def write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace a checkpoint unless it says the same already."""
        if self._written.get(name) != offsets:
            checkpoints.write_offsets(self._fs, f"{self.path}/{name}", offsets)
            self._written[name] = offsets

    def mentions(self, tp: TopicPartition) -> bool:
        """Return whether a checkpoint on the disk has an offset for the partition."""
        return any(tp in offsets for offsets in self._written.values())

    def _read(self, name: str, present: frozenset[str]) -> Mapping[TopicPartition, int]:
        path = f"{self.path}/{name}"
        try:
            offsets = self._written[name] = checkpoints.read_offsets(self._fs, path) if name in present else {}
            return offsets
        except CorruptCheckpointError as error:
            logger.warning("ignored a checkpoint: %s", error)
            return {}

    # -- partitions

    def partition_dirs(self) -> list[str]:
        """Return names of partition directories. What a deletion or an unfinished move left behind is removed."""
        found = []
        for name in self._fs.list_dir(self.path):
            path = f"{self.path}/{name}"
            is_left_over = name.endswith((DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX))
            topic, _, partition = name.rpartition("-")
            is_partition = bool(topic) and partition.isascii() and partition.isdigit() and int(partition) < 2**31
            if not (is_left_over or is_partition) or not self._fs.is_dir(path):
                continue
            if is_left_over:
                self._fs.remove_tree(path)
            else:
                found.append(name)
        return found
