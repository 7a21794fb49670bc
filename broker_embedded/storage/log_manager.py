"""All logs of one broker: found or recovered at the start, created, deleted, moved, closed.

It decides which logs exist, writes `.kafka_cleanshutdown`, and says when offset checkpoints are written. `log_dirs` has
the directories and which of them have failed, `log_factory` opens the log of a directory, `maintenance_rounds` does the
periodic work, `retired_logs` has the logs that are no longer served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext

from broker_embedded.common.clock import Clock
from broker_embedded.common.errors import BrokerError, StartupError
from broker_embedded.common.filesystem import FileSystem, parent
from broker_embedded.common.topic_settings import TopicConfig
from broker_embedded.common.types import TopicPartition
from broker_embedded.storage import checkpoints, offset_checkpoints
from broker_embedded.storage.cleaner import LogCleaner
from broker_embedded.storage.faults import storage_error
from broker_embedded.storage.file_pool import FilePool, OpenFiles
from broker_embedded.storage.future_logs import FutureLogs, forget_marker, was_replaced
from broker_embedded.storage.log import Log
from broker_embedded.storage.log_dir import LogDir, OffsetCheckpoint
from broker_embedded.storage.log_dirs import LogDirs
from broker_embedded.storage.log_factory import LogFactory
from broker_embedded.storage.maintenance_rounds import MaintenanceRounds
from broker_embedded.storage.offset_checkpoints import partition_of
from broker_embedded.storage.retired_logs import RetiredLogs
from broker_embedded.storage.schedule import Intervals, Schedule
from ottla_wire.protocol import ErrorCode

logger = logging.getLogger(__name__)

MANY_LOGS = 20


class LogManager:
    """Opens the directories, each one locked, and owns every `Log` in them.

    A directory that another broker has locked or that cannot be written raises StartupError, which names the path and
    the remedy. `config_for(topic)` gives a topic's settings when its log is loaded or created without any. `open_files`
    bounds the files of all log managers that share it.
    """

    def __init__(
        self,
        dirs: Sequence[str],
        *,
        fs: FileSystem,
        clock: Clock,
        config_for: Callable[[str], TopicConfig] | None = None,
        intervals: Intervals | None = None,
        open_files: OpenFiles | None = None,
        cleaner_enabled: bool = True,
        must_be_whole: bool = False,
    ) -> None:
        """`must_be_whole`: for logs whose records depend on each other. Each start reads every batch, and StartupError
        refuses one that would lose valid batches behind a damaged one.
        """
        self._fs = fs
        self._must_be_whole = must_be_whole
        self._config_for = config_for or (lambda topic: TopicConfig())
        self._logs: dict[TopicPartition, Log] = {}
        self.directories = LogDirs(
            dirs, fs=fs, logs_in=self._logs_in, futures_in=lambda path: self._futures.in_dir(path)
        )
        self._opener = LogFactory(
            fs,
            FilePool(fs, open_files),
            clock=clock,
            must_be_whole=must_be_whole,
            on_cut=self._on_cut,
            on_failure=self.directories.log_refused,
        )
        self._futures = FutureLogs(fs, self._opener)
        self._retired = RetiredLogs(fs, clock, self.directories)
        self._is_closed = False
        self.cleaner = LogCleaner()
        self._rounds = MaintenanceRounds(
            logs=lambda: self.logs,
            logs_in=self._logs_in,
            dirs=self.directories,
            schedule=Schedule(intervals or Intervals(), now_ms=clock.now_ms()),
            cleaner=self.cleaner,
            cleaner_enabled=cleaner_enabled,
        )

    # -- directories

    def cordon(self, wanted: Collection[str]) -> frozenset[str]:
        """Replace the set of cordoned directories ("*": all). Returns unknown names."""
        named = frozenset(path.rstrip("/") for path in wanted) - {"*"}
        paths = frozenset(self.directories.paths)
        self.directories.cordoned = paths if "*" in wanted else named & paths
        return named - paths

    def _logs_in(self, path: str) -> list[Log]:
        return [log for log in self._logs.values() if parent(log.directory) == path]

    # -- the start

    def load_all(self) -> Iterable[Log]:
        """Open every partition directory found; recover what was not shut down cleanly."""
        for log_dir in self.directories:
            saved = log_dir.read_saved_offsets()
            for name in log_dir.partition_dirs():
                self._load(log_dir, name, saved)
            self._report_losses(log_dir, saved)
        for log in self.logs:
            if was_replaced(self._fs, log.directory):
                forget_marker(self._fs, log.directory)
        return self.logs

    def _load(self, log_dir: LogDir, name: str, saved: OffsetCheckpoint) -> None:
        topic, _, number = name.rpartition("-")
        tp = TopicPartition(topic, int(number))
        directory = f"{log_dir.path}/{name}"
        known = self._logs.get(tp)
        if known is not None and was_replaced(self._fs, directory):
            self._fs.remove_tree(directory)
            return
        if known is not None and was_replaced(self._fs, known.directory):
            self.delete(*tp)
            known = None
        if known is not None:
            raise StartupError(
                f"{directory} and {known.directory} hold the same partition: move one of them out of log.dirs"
            )
        topic_id = checkpoints.read_partition_metadata(self._fs, directory)
        try:
            self._logs[tp] = self._opener.open(directory, *tp, topic_id, self._config_for(topic), saved=saved)
        except OSError as error:
            raise StartupError(str(storage_error(error, path=directory, doing="loading"))) from error

    def _report_losses(self, log_dir: LogDir, saved: OffsetCheckpoint) -> None:
        """Log which logs end before the offset that a checkpoint says was durable."""
        for topic_partition, recovery_point in saved.recovery_points.items():
            log = self._logs.get(topic_partition)
            if log is not None and log.log_end_offset < recovery_point:
                logger.error(
                    "%s: ends at offset %d, it was on the disk up to %d: what lay between is lost",
                    log.directory,
                    log.log_end_offset,
                    recovery_point,
                )
            elif log is None and self._must_be_whole and recovery_point:
                logger.error(
                    "%s/%s is gone, it was on the disk up to offset %d", log_dir.path, topic_partition, recovery_point
                )

    # -- logs

    @property
    def logs(self) -> Sequence[Log]:
        return tuple(self._logs.values())

    def get(self, topic: str, partition: int) -> Log | None:
        """Return the log, if it is here."""
        return self._logs.get(TopicPartition(topic, partition))

    def get_or_create(
        self, topic: str, partition: int, topic_id: bytes | None = None, config: TopicConfig | None = None
    ) -> Log:
        """Return the log; created in the directory with the fewest partitions if it is new. Writes partition.metadata.

        INCONSISTENT_TOPIC_ID if the directory belongs to another topic of the same name (deleted, then created again).
        """
        log = self._logs.get(TopicPartition(topic, partition))
        if log is None:
            log = self._create(topic, partition, topic_id, config or self._config_for(topic))
        elif topic_id is not None and log.topic_id is None:
            checkpoints.write_partition_metadata(self._fs, log.directory, topic_id)
            checkpoints.sync_partition_metadata(self._fs, log.directory)
            log.topic_id = topic_id
        elif topic_id is not None and log.topic_id != topic_id:
            raise BrokerError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{log.directory}: holds topic id {log.topic_id.hex() if log.topic_id else None}, "
                f"wanted {topic_id.hex()}; delete the old partition first",
            )
        return log

    def _create(self, topic: str, partition: int, topic_id: bytes | None, config: TopicConfig) -> Log:
        tp = TopicPartition(topic, partition)
        directory = self.directories.make_partition_dir(str(tp), logs=self._logs.values())
        log_dir = self.directories[parent(directory)]
        try:
            if topic_id is not None:
                checkpoints.write_partition_metadata(self._fs, directory, topic_id)
            log = self._logs[tp] = self._opener.open(directory, topic, partition, topic_id, config, saved=None)
            if self._must_be_whole:
                log.settle()
            if log_dir.mentions(tp):
                # A deleted partition of the same name: its offsets must not be believed of this one after a crash.
                offset_checkpoints.write_all(log_dir, self._logs_in(log_dir.path))
        except OSError as error:
            self.directories.refused(log_dir.path, error)
            raise storage_error(error, path=directory, doing="creating") from error
        return log

    def delete(self, topic: str, partition: int) -> None:
        """Rename the directory to `<name>.<unique>-delete` at once; `tick` removes it after file.delete.delay.ms."""
        log = self.get(topic, partition)
        if log is not None and log.offline_reason is not None:
            self._forget(log)
            logger.warning("%s: its disk is offline, it cannot be deleted; the next start finds it", log.directory)
        elif log is not None:
            self._retire(log, self._retired.delete)

    def set_aside(self, topic: str, partition: int) -> None:
        """Rename the directory to `<name>.<unique>-stray`: its name is needed, and its records may be too."""
        log = self.get(topic, partition)
        if log is not None:
            self._retire(log, self._retired.set_aside)

    def _retire(self, log: Log, retire: Callable[[Log], None]) -> None:
        """Retire a log; it stays with this manager if the disk refuses the rename."""
        tp = self._forget(log)
        try:
            retire(log)
        except BrokerError:
            self._logs[tp] = log
            raise

    def _forget(self, log: Log) -> TopicPartition:
        tp = partition_of(log)
        del self._logs[tp]
        self.cleaner.forget(log)
        return tp

    # -- moving between directories

    def future(self, log: Log) -> Log | None:
        """Return the copy of `log` that is being made in another directory."""
        return self._futures.get(log)

    def start_move(self, log: Log, path: str) -> Log:
        """Return an empty copy of `log` in the directory `path`, for the caller to fill. An earlier one is given up."""
        self._futures.drop(log)
        return self._futures.make(log, path)

    def cancel_move(self, log: Log) -> None:
        """Give up the copy of `log`, if there is one."""
        self._futures.drop(log)

    def finish_move(self, log: Log) -> Log:
        """Replace the directory of `log` by its complete copy. A failure after this point keeps the copy."""
        future = self._futures.finish(log)
        try:
            self.delete(log.topic, log.partition)
        except (OSError, BrokerError) as error:
            logger.error("%s has moved, the next start removes what is left of it: %s", log.directory, error)
        self._logs[partition_of(future)] = future
        paths = {parent(log.directory), parent(future.directory)}
        self._rounds.write(offset_checkpoints.write_all, among=paths)
        return future

    # -- periodic work

    def tick(self, *, now_ms: int) -> None:
        """Run due periodic work, and remove deleted files."""
        self._rounds.tick(now_ms=now_ms)
        self._retired.remove_due(now_ms=now_ms)

    def clean(self, *, now_ms: int, max_steps: int | None = None) -> None:
        """Compact what is dirty enough, until nothing is or `max_steps` were taken (one step reads about 1 MB).

        With `max_steps` a long cleaning is continued by the next call, so that requests are answered in between.
        """
        self._rounds.clean(now_ms=now_ms, max_steps=max_steps)

    def checkpoint(self) -> None:
        """Write the offset checkpoints of every directory now."""
        for log_dir in self.directories:
            if log_dir.path not in self.directories.offline:
                offset_checkpoints.write_all(log_dir, self._logs_in(log_dir.path))

    def _on_cut(self, log: Log) -> None:
        """Update checkpoints after a cut: a crash must not bring deleted records back, or count new records as
        fsynced.
        """
        log_dir = self.directories.of(log)
        if log_dir is not None:
            offset_checkpoints.write_recovery_points(log_dir, self._logs_in(log_dir.path))

    # -- the end

    def close(self) -> None:
        """Flush and close every log, write checkpoints and the clean-shutdown marker, release the locks.

        A directory in which a log cannot be closed gets no marker: its next start recovers.
        """
        for log_dir in self._begin_end():
            if log_dir.path in self.directories.offline:
                self._close_files(log_dir.path)
            else:
                self._close_dir(log_dir)
            log_dir.release()

    def abandon(self) -> None:
        """Release everything as a killed process does: no flush, no checkpoint, no marker. The next start recovers."""
        for log_dir in self._begin_end():
            self._close_files(log_dir.path)
            log_dir.release()

    def _begin_end(self) -> list[LogDir]:
        """Return the directories to release; none after the first call."""
        if self._is_closed:
            return []
        self._is_closed = True
        self.cleaner.stop()
        self._futures.close()
        return list(self.directories)

    def _close_dir(self, log_dir: LogDir) -> None:
        path = log_dir.path
        try:
            logs = self._logs_in(path)
            # One log costs eight waits for the disk, a thousand of them seconds.
            together = self._fs.synced_together(path) if len(logs) > MANY_LOGS else nullcontext()
            with together:
                for log in logs:
                    log.close()
            offset_checkpoints.write_all(log_dir, self._logs_in(path))
            checkpoints.write_clean_shutdown(self._fs, path)
        except (OSError, BrokerError) as error:
            logger.error("%s: not shut down cleanly, the next start will recover it: %s", path, error)
            self._close_files(path)

    def _close_files(self, path: str) -> None:
        """Close the files of a directory; errors of its disk are logged."""
        for log in self._logs_in(path):
            try:
                log.close_files()
            except OSError as error:
                logger.warning("%s: not closed: %s", log.directory, error)
