"""Logs that are no longer served: their directories are renamed at once, and later removed or kept under that name."""

from __future__ import annotations

import logging
from collections import deque

from broker_embedded.common.clock import Clock
from broker_embedded.common.filesystem import FileSystem, parent
from broker_embedded.storage.faults import storage_error
from broker_embedded.storage.log import Log
from broker_embedded.storage.log_dir import DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX
from broker_embedded.storage.log_dirs import LogDirs

logger = logging.getLogger(__name__)

_MAX_FILE_NAME = 255


class RetiredLogs:
    """See the module. If the disk refuses a rename, BrokerError is raised and the log is unchanged."""

    def __init__(self, fs: FileSystem, clock: Clock, dirs: LogDirs) -> None:
        self._fs = fs
        self._clock = clock
        self._dirs = dirs
        self._count = 0
        self._doomed: deque[tuple[int, str]] = deque()

    def delete(self, log: Log) -> None:
        """Rename the directory to `<name>.<unique>-delete`; it is removed after file.delete.delay.ms."""
        target = self._move_out_of_the_way(log, DELETE_DIR_SUFFIX)
        log.close_files()
        self._doomed.append((self._clock.now_ms() + log.config.file_delete_delay_ms, target))
        self._sync_names(target)

    def set_aside(self, log: Log) -> None:
        """Rename the directory to `<name>.<unique>-stray`, as Kafka does with a stray. Nothing removes it."""
        directory = log.directory
        target = self._move_out_of_the_way(log, STRAY_DIR_SUFFIX)
        log.close_files()
        self._sync_names(target)
        logger.error("%s is kept as %s: nothing in the metadata says whose it is", directory, target)

    def remove_due(self, *, now_ms: int) -> None:
        """Remove the directories whose time has come."""
        due = [entry for entry in self._doomed if entry[0] <= now_ms]
        if not due:
            return
        self._doomed = deque(entry for entry in self._doomed if entry[0] > now_ms)
        for _, path in due:
            try:
                self._fs.remove_tree(path)
            except OSError as error:
                logger.error("%s", storage_error(error, path=path, doing="removing"))

    def _move_out_of_the_way(self, log: Log, suffix: str) -> str:
        self._count += 1
        suffix = f"-{log.partition}.{self._clock.now_ms():016x}{self._count:016x}{suffix}"
        target = f"{parent(log.directory)}/{log.topic[: _MAX_FILE_NAME - len(suffix)]}{suffix}"
        try:
            self._fs.rename(log.directory, target)
        except OSError as error:
            raise storage_error(error, path=log.directory, doing="renaming") from error
        log.moved_to_dir(target)
        return target

    def _sync_names(self, target: str) -> None:
        try:
            self._fs.sync_dir(parent(target))
        except OSError as error:
            # It has its new name here; only a crash of the machine could bring the old one back.
            logger.error("%s", storage_error(error, path=target, doing="renaming"))
            self._dirs.refused(parent(target), error)
