"""Logs that are being moved to another log directory (KIP-113): `<topic>-<partition>.<unique>-future` beside the
others.

A copy grows there until it is complete, and then replaces the log that it was copied from. A crash at any step leaves
one complete log: the old one has a marker while the new one is renamed, so that a start that finds both knows which one
to delete. A start removes an incomplete copy (Kafka continues it).
"""

from __future__ import annotations

import logging

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.filesystem import FileSystem, parent, write_whole
from broker_embedded.common.types import TopicPartition
from broker_embedded.storage import checkpoints
from broker_embedded.storage.faults import storage_error
from broker_embedded.storage.log import Log
from broker_embedded.storage.log_dir import FUTURE_DIR_SUFFIX
from broker_embedded.storage.log_factory import LogFactory

logger = logging.getLogger(__name__)

MAX_FILE_NAME = 255
REPLACED_MARKER = ".replaced"
"""In the directory of a log whose successor, in another log directory, is complete."""


class FutureLogs:
    """The copies of one broker."""

    def __init__(self, fs: FileSystem, opener: LogFactory) -> None:
        self._fs = fs
        self._opener = opener
        self._futures: dict[TopicPartition, Log] = {}
        self._made = 0

    def get(self, log: Log) -> Log | None:
        """Return the copy of a log that is being made."""
        return self._futures.get(TopicPartition(log.topic, log.partition))

    def in_dir(self, path: str) -> list[Log]:
        return [future for future in self._futures.values() if parent(future.directory) == path]

    def make(self, log: Log, path: str) -> Log:
        """Return an empty copy of `log` in another log directory; it starts where the log starts."""
        self._made += 1
        suffix = f"-{log.partition}.{self._made:032x}{FUTURE_DIR_SUFFIX}"
        directory = f"{path}/{log.topic[: MAX_FILE_NAME - len(suffix)]}{suffix}"
        try:
            self._fs.make_dirs(directory)
            if log.topic_id is not None:
                checkpoints.write_partition_metadata(self._fs, directory, log.topic_id)
            future = self._opener.open(directory, log.topic, log.partition, log.topic_id, log.config, saved=None)
            if log.log_start_offset:
                future.truncate_fully_and_start_at(log.log_start_offset)
            future.settle()
        except OSError as error:
            raise storage_error(error, path=directory, doing="creating") from error
        self._futures[TopicPartition(log.topic, log.partition)] = future
        return future

    def drop(self, log: Log) -> None:
        """Give the copy of `log` up."""
        future = self._futures.pop(TopicPartition(log.topic, log.partition), None)
        if future is None:
            return
        future.close_files()
        try:
            self._fs.remove_tree(future.directory)
        except OSError as error:
            raise storage_error(error, path=future.directory, doing="removing") from error

    def finish(self, log: Log) -> Log:
        """Complete the copy: give it the name of the log. The caller deletes the old log afterwards.

        If that fails the old log stays, and the marker is removed: otherwise the next start would delete it, with all
        that is written to it from now on.
        """
        tp = TopicPartition(log.topic, log.partition)
        future = self._futures[tp]
        target = f"{parent(future.directory)}/{log.name}"
        try:
            future.flush()
            write_whole(self._fs, f"{log.directory}/{REPLACED_MARKER}", b"")
            self._fs.sync_dir(log.directory)
            self._rename_durably(future.directory, target)
        except (OSError, BrokerError) as error:
            try:
                forget_marker(self._fs, log.directory)
            except OSError as also:
                logger.error("%s: %s", log.directory, also)
            if isinstance(error, BrokerError):
                raise
            raise storage_error(error, path=future.directory, doing="moving") from error
        future.moved_to_dir(target)
        del self._futures[tp]
        return future

    def _rename_durably(self, source: str, target: str) -> None:
        self._fs.rename(source, target)
        try:
            self._fs.sync_dir(parent(target))
        except OSError:
            self._fs.rename(target, source)
            raise

    def close(self) -> None:
        for future in self._futures.values():
            future.close_files()
        self._futures.clear()


def was_replaced(fs: FileSystem, directory: str) -> bool:
    """Return whether the log in `directory` has a successor elsewhere."""
    return fs.exists(f"{directory}/{REPLACED_MARKER}")


def forget_marker(fs: FileSystem, directory: str) -> None:
    """Delete the marker: the successor never got its name, so this is the log."""
    fs.remove(f"{directory}/{REPLACED_MARKER}")
    fs.sync_dir(directory)
