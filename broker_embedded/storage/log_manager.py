"""All logs of one broker: the log directories, their locks, recovery at start, checkpoints, periodic work.

Responsible for: `.lock`, `meta.properties`, `.kafka_cleanshutdown`, `recovery-point-offset-checkpoint`,
`log-start-offset-checkpoint`, `replication-offset-checkpoint`, `cleaner-offset-checkpoint`; which directory gets a new
partition (the one with the fewest).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext

from broker_embedded.common.clock import Clock
from broker_embedded.common.errors import BrokerError, StartupError
from broker_embedded.common.facts import fact
from broker_embedded.common.filesystem import FileSystem, parent
from broker_embedded.common.types import TopicPartition
from broker_embedded.storage import checkpoints, offset_checkpoints
from broker_embedded.storage.cleaner import LogCleaner
from broker_embedded.storage.faults import storage_error, takes_dir_offline
from broker_embedded.storage.file_pool import FilePool, OpenFiles
from broker_embedded.storage.future_logs import FutureLogs, forget_marker, was_replaced
from broker_embedded.storage.log import Log
from broker_embedded.storage.log_config import LogConfig
from broker_embedded.storage.log_dir import DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX, LogDir, SavedOffsets
from broker_embedded.storage.log_loader import LogLoader
from broker_embedded.storage.offset_checkpoints import partition_of
from broker_embedded.storage.schedule import Intervals, Schedule, Work
from ottla_wire.protocol import ErrorCode

__all__ = ["Intervals", "LogDirView", "LogManager"]

logger = logging.getLogger(__name__)

MANY_LOGS = 20
_MAX_FILE_NAME = 255

DirListener = Callable[[str, Sequence[Log]], None]


@fact
class LogDirView:
    """One row of DescribeLogDirs."""

    path: str
    total_bytes: int
    usable_bytes: int
    logs: Sequence[Log]
    futures: Sequence[Log] = ()
    """Copies of logs that are being moved here."""
    offline_reason: str | None = None
    """Why nothing in it is served, or None."""


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
        config_for: Callable[[str], LogConfig] | None = None,
        intervals: Intervals | None = None,
        open_files: OpenFiles | None = None,
        cleaner_enabled: bool = True,
        must_be_whole: bool = False,
    ) -> None:
        """`must_be_whole`: for logs whose records depend on each other. Each start reads every batch, and StartupError
        refuses one that would lose valid batches behind a damaged one.
        """
        if not dirs:
            raise StartupError("log.dirs is empty: name at least one directory")
        self._fs = fs
        self._clock = clock
        self._must_be_whole = must_be_whole
        self._config_for = config_for or (lambda topic: LogConfig())
        self._pool = FilePool(fs, open_files)
        self._logs: dict[TopicPartition, Log] = {}
        self._futures = FutureLogs(fs, self._open_like)
        self._doomed_dirs: list[tuple[int, str]] = []
        self._deleted = 0
        self._is_closed = False
        self._dirs: dict[str, LogDir] = {}
        self._dir_listeners: list[DirListener] = []
        self.offline_dirs: dict[str, str] = {}
        """Directories whose disk failed while the broker ran, and why. They are not used until the next start."""
        self.cleaner = LogCleaner()
        self._cleaner_enabled = cleaner_enabled
        self._schedule = Schedule(intervals or Intervals(), now_ms=clock.now_ms())
        try:
            for path in dirs:
                self._dirs[path.rstrip("/")] = LogDir.open(fs, path.rstrip("/"))
        except StartupError:
            for log_dir in self._dirs.values():
                log_dir.release()
            raise

    # -- identity

    def bind_identity(self, *, cluster_id: str, node_id: int, new_directory_id: Callable[[], str]) -> dict[str, str]:
        """Write or check `meta.properties` of each directory; returns directory ids by path."""
        return {
            path: log_dir.bind_identity(cluster_id=cluster_id, node_id=node_id, new_directory_id=new_directory_id)
            for path, log_dir in self._dirs.items()
        }

    @property
    def dirs(self) -> Sequence[str]:
        return tuple(self._dirs)

    # -- directories that fail

    def add_dir_listener(self, listener: DirListener) -> None:
        """Tell `listener` which directory went offline, with the logs in it: they serve nothing from now on."""
        self._dir_listeners.append(listener)

    def fail_dir(self, path: str, reason: str) -> None:
        """Take a directory offline. What is in the other directories goes on."""
        if path not in self._dirs or path in self.offline_dirs:
            return
        logger.error("%s: offline, the other log directories go on: %s", path, reason)
        self.offline_dirs[path] = reason
        logs = self._logs_in(path)
        for log in (*logs, *self._futures.in_dir(path)):
            log.offline_reason = reason
        for listener in self._dir_listeners:
            listener(path, logs)

    def _on_failure(self, log: Log, error: OSError) -> None:
        self._dir_failed(parent(log.directory), error)

    def _dir_failed(self, path: str, error: OSError) -> None:
        """Take a directory offline if its disk cannot be believed any more."""
        if takes_dir_offline(error):
            self.fail_dir(path, f"{error.filename or path}: {error.strerror or error}")

    # -- logs

    def load_all(self) -> Iterable[Log]:
        """Open every partition directory found; recover what was not shut down cleanly."""
        for log_dir in self._dirs.values():
            saved = log_dir.read_saved_offsets()
            for name in log_dir.partition_dirs():
                self._load(log_dir, name, saved)
            self._report_losses(log_dir, saved)
        for log in self.logs:
            if was_replaced(self._fs, log.directory):
                forget_marker(self._fs, log.directory)
        return self.logs

    def _report_losses(self, log_dir: LogDir, saved: SavedOffsets) -> None:
        """Say which logs end before what a checkpoint says was durable."""
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

    @property
    def logs(self) -> Sequence[Log]:
        return tuple(self._logs.values())

    def get(self, topic: str, partition: int) -> Log | None:
        """The log, if it is here."""
        return self._logs.get(TopicPartition(topic, partition))

    def get_or_create(
        self, topic: str, partition: int, topic_id: bytes | None = None, config: LogConfig | None = None
    ) -> Log:
        """The log; created in the directory with the fewest partitions if it is new. Writes partition.metadata.

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

    def delete(self, topic: str, partition: int) -> None:
        """Rename the directory to `<name>.<unique>-delete` at once; `tick` removes it after file.delete.delay.ms."""
        log = self._logs.pop(TopicPartition(topic, partition), None)
        if log is None:
            return
        self.cleaner.forget(log)
        if log.offline_reason is not None:
            logger.warning("%s: its disk is offline, it cannot be deleted; the next start finds it", log.directory)
            return
        target = self._move_out_of_the_way(log, DELETE_DIR_SUFFIX)
        log.close_files()
        self._doomed_dirs.append((self._clock.now_ms() + log.config.file_delete_delay_ms, target))
        self._sync_names(target)

    def set_aside(self, topic: str, partition: int) -> None:
        """Rename the directory to `<name>.<unique>-stray`: its name is needed, and its records may be too.

        As Kafka does with a stray. Nothing serves or removes it.
        """
        log = self._logs.pop(TopicPartition(topic, partition), None)
        if log is None:
            return
        self.cleaner.forget(log)
        directory = log.directory
        target = self._move_out_of_the_way(log, STRAY_DIR_SUFFIX)
        log.close_files()
        self._sync_names(target)
        logger.error("%s is kept as %s: nothing in the metadata says whose it is", directory, target)

    def _move_out_of_the_way(self, log: Log, suffix: str) -> str:
        """Rename a log's directory; it is still this manager's if that fails."""
        self._deleted += 1
        suffix = f"-{log.partition}.{self._clock.now_ms():016x}{self._deleted:016x}{suffix}"
        target = f"{parent(log.directory)}/{log.topic[: _MAX_FILE_NAME - len(suffix)]}{suffix}"
        try:
            self._fs.rename(log.directory, target)
        except OSError as error:
            self._logs[TopicPartition(log.topic, log.partition)] = log
            raise storage_error(error, path=log.directory, doing="renaming") from error
        log.moved_to_dir(target)
        return target

    def _sync_names(self, target: str) -> None:
        try:
            self._fs.sync_dir(parent(target))
        except OSError as error:
            # It has its new name here; only a crash of the machine could bring the old one back.
            logger.error("%s", storage_error(error, path=target, doing="renaming"))
            self._dir_failed(parent(target), error)

    # -- moving between directories

    def future(self, log: Log) -> Log | None:
        """The copy of `log` that is being made in another directory."""
        return self._futures.get(log)

    def start_move(self, log: Log, path: str) -> Log:
        """An empty copy of `log` in the directory `path`, for the caller to fill. An earlier one is given up."""
        self._futures.drop(log)
        return self._futures.make(log, path)

    def cancel_move(self, log: Log) -> None:
        """Give up the copy of `log`, if there is one."""
        self._futures.drop(log)

    def finish_move(self, log: Log) -> Log:
        """The copy of `log` is complete and takes its place: from then on nothing that fails leads back to `log`."""
        future = self._futures.finish(log)
        try:
            self.delete(log.topic, log.partition)
        except (OSError, BrokerError) as error:
            logger.error("%s has moved, the next start removes what is left of it: %s", log.directory, error)
        self._logs[partition_of(future)] = future
        paths = {parent(log.directory), parent(future.directory)}
        self._write(offset_checkpoints.write_all, among=paths)
        return future

    def _open_like(self, directory: str, log: Log) -> Log:
        return self._build(directory, log.topic, log.partition, log.topic_id, log.config, is_clean=True, saved=None)

    # -- periodic work

    def tick(self, *, now_ms: int) -> None:
        """Periodic work that is due: retention, flush.ms, checkpoints, producer expiry, compaction, removal of files.

        A log whose disk fails is logged and does not keep the others from their work.
        """
        is_due = self._schedule.is_due
        if is_due(Work.FLUSH, now_ms=now_ms):
            self._each(self._flush_if_due, now_ms)
        if is_due(Work.RETENTION, now_ms=now_ms):
            self._each(lambda log, now: log.apply_retention(now_ms=now), now_ms)
        if is_due(Work.PRODUCER_EXPIRATION, now_ms=now_ms):
            self._each(_expire_producers, now_ms)
        if self._cleaner_enabled and is_due(Work.CLEANER, now_ms=now_ms):
            self.clean(now_ms=now_ms)
        if is_due(Work.RECOVERY_POINT, now_ms=now_ms):
            self._write(offset_checkpoints.write_recovery_points)
        if is_due(Work.HIGH_WATERMARK, now_ms=now_ms):
            self._write(offset_checkpoints.write_high_watermarks)
        self._each(lambda log, now: log.purge_deleted(now_ms=now), now_ms)
        self._remove_doomed_dirs(now_ms)

    def clean(self, *, now_ms: int, max_steps: int | None = None) -> None:
        """Compact what is dirty enough, until nothing is or `max_steps` were taken (one step reads about 1 MB).

        With `max_steps` a long cleaning is continued by the next call, so that requests are answered in between.
        """
        online = [log for log in self.logs if log.offline_reason is None and not log.is_stray]
        cleaned = self.cleaner.run(online, now_ms=now_ms, max_steps=max_steps)
        for path in {parent(log.directory) for log in cleaned} - set(self.offline_dirs):
            offset_checkpoints.write_cleaner_offsets(self._dirs[path], self._logs_in(path))

    def checkpoint(self) -> None:
        """Write the offset checkpoints of every directory now."""
        for path, log_dir in self._dirs.items():
            if path not in self.offline_dirs:
                offset_checkpoints.write_all(log_dir, self._logs_in(path))

    def describe_dirs(self) -> Sequence[LogDirView]:
        """DescribeLogDirs."""
        views = []
        for path in self._dirs:
            if path in self.offline_dirs:
                views.append(
                    LogDirView(
                        path=path, total_bytes=-1, usable_bytes=-1, logs=(), offline_reason=self.offline_dirs[path]
                    )
                )
                continue
            usage = self._fs.usage(path)
            views.append(
                LogDirView(
                    path=path,
                    total_bytes=usage.total,
                    usable_bytes=usage.usable,
                    logs=self._logs_in(path),
                    futures=self._futures.in_dir(path),
                )
            )
        return views

    def close(self) -> None:
        """Flush and close every log, write checkpoints and the clean-shutdown marker, release the locks.

        A directory in which a log cannot be closed gets no marker: its next start recovers.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self.cleaner.stop()
        self._futures.close()
        for path, log_dir in self._dirs.items():
            if path in self.offline_dirs:
                self._let_go(path)
                log_dir.release()
                continue
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
                self._let_go(path)
            log_dir.release()

    def abandon(self) -> None:
        """Let go of everything as a killed process does: no flush, no checkpoint, no marker.

        The next start recovers.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self.cleaner.stop()
        self._futures.close()
        for path, log_dir in self._dirs.items():
            self._let_go(path)
            log_dir.release()

    # -- helpers

    def _let_go(self, path: str) -> None:
        """Give up the files of a directory, whatever its disk says to that."""
        for log in self._logs_in(path):
            try:
                log.close_files()
            except OSError as error:
                logger.warning("%s: not closed: %s", log.directory, error)

    def _create(self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig) -> Log:
        directory = self._make_partition_dir(topic, partition)
        path = parent(directory)
        try:
            if topic_id is not None:
                checkpoints.write_partition_metadata(self._fs, directory, topic_id)
            log = self._open(directory, topic, partition, topic_id, config, is_clean=True, saved=None)
            log.is_settled = False
            if self._must_be_whole:
                log.settle()
            if self._dirs[path].mentions(partition_of(log)):
                # A deleted partition of the same name: its offsets must not be believed of this one after a crash.
                offset_checkpoints.write_all(self._dirs[path], self._logs_in(path))
        except OSError as error:
            self._dir_failed(path, error)
            raise storage_error(error, path=directory, doing="creating") from error
        return log

    def _make_partition_dir(self, topic: str, partition: int) -> str:
        """The directory of a new partition, where the fewest are; a log directory whose disk fails is passed over."""
        while True:
            online = [path for path in self._dirs if path not in self.offline_dirs]
            if not online:
                raise BrokerError(
                    ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline: replace the disks, restart"
                )
            path = online[0]
            if len(online) > 1:
                counts = Counter(parent(log.directory) for log in self._logs.values())
                path = min(online, key=lambda p: counts[p])
            directory = f"{path}/{topic}-{partition}"
            try:
                self._fs.make_dirs(directory)
            except OSError as error:
                self._dir_failed(path, error)
                if path not in self.offline_dirs:
                    raise storage_error(error, path=directory, doing="creating") from error
            else:
                return directory

    def _load(self, log_dir: LogDir, name: str, saved: SavedOffsets) -> None:
        topic, _, number = name.rpartition("-")
        directory = f"{log_dir.path}/{name}"
        known = self._logs.get(TopicPartition(topic, int(number)))
        if known is not None and was_replaced(self._fs, directory):
            self._fs.remove_tree(directory)
            return
        if known is not None and was_replaced(self._fs, known.directory):
            self.delete(topic, int(number))
            known = None
        if known is not None:
            raise StartupError(
                f"{directory} and {known.directory} hold the same partition: move one of them out of log.dirs"
            )
        topic_id = checkpoints.read_partition_metadata(self._fs, directory)
        try:
            self._open(
                directory, topic, int(number), topic_id, self._config_for(topic), is_clean=saved.is_clean, saved=saved
            )
        except OSError as error:
            raise StartupError(str(storage_error(error, path=directory, doing="loading"))) from error

    def _open(
        self,
        directory: str,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        config: LogConfig,
        *,
        is_clean: bool,
        saved: SavedOffsets | None,
    ) -> Log:
        log = self._build(directory, topic, partition, topic_id, config, is_clean=is_clean, saved=saved)
        self._logs[partition_of(log)] = log
        return log

    def _build(
        self,
        directory: str,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        config: LogConfig,
        *,
        is_clean: bool,
        saved: SavedOffsets | None,
    ) -> Log:
        tp = TopicPartition(topic, partition)
        loaded = LogLoader(
            self._fs,
            self._pool,
            directory,
            name=str(tp),
            config=config,
            now_ms=self._clock.now_ms(),
            is_clean=is_clean,
            recovery_point=saved.recovery_points.get(tp, 0) if saved else 0,
            log_start_offset=saved.log_starts.get(tp, 0) if saved else 0,
            must_be_whole=self._must_be_whole,
        ).load()
        log = Log(
            self._fs,
            self._pool,
            directory,
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            config=config,
            clock=self._clock,
            loaded=loaded,
            high_watermark=saved.high_watermarks.get(tp, 0) if saved else 0,
            on_cut=self._on_cut,
            on_failure=self._on_failure,
        )
        log.cleaned_to = min(saved.cleaned_to.get(tp, 0) if saved else 0, log.log_end_offset)
        return log

    def _logs_in(self, path: str) -> list[Log]:
        return [log for log in self._logs.values() if parent(log.directory) == path]

    def _on_cut(self, log: Log) -> None:
        """After DeleteRecords a crash must not bring the records back; after a truncation new records in the place of
        old, fsynced ones must not pass for fsynced."""
        log_dir = self._dirs.get(parent(log.directory))
        if log_dir is not None:
            offset_checkpoints.write_recovery_points(log_dir, self._logs_in(log_dir.path))

    def _write(self, what: Callable[[LogDir, Iterable[Log]], None], *, among: Collection[str] | None = None) -> None:
        """Write a checkpoint of every directory, or of those named; a disk that refuses it may be a failed one."""
        self._each_dir(lambda log_dir: what(log_dir, self._logs_in(log_dir.path)), among=among)

    def _flush_if_due(self, log: Log, now_ms: int) -> None:
        if log.unflushed_records and now_ms - log.flushed_at_ms >= log.config.flush_ms:
            log.flush()
        else:
            log.flush_rolled()

    def _each(self, work: Callable[[Log, int], object], now_ms: int) -> None:
        for log in self.logs:
            if log.offline_reason is not None or log.is_stray:
                continue
            try:
                work(log, now_ms)
            except (OSError, BrokerError) as error:
                logger.error("%s: %s", log.name, error)
                if isinstance(error, OSError):
                    self._on_failure(log, error)

    def _each_dir(self, work: Callable[[LogDir], None], *, among: Collection[str] | None = None) -> None:
        for path, log_dir in self._dirs.items():
            if path in self.offline_dirs or (among is not None and path not in among):
                continue
            try:
                work(log_dir)
            except OSError as error:
                logger.error("%s", storage_error(error, path=path, doing="writing checkpoints"))
                self._dir_failed(path, error)

    def _remove_doomed_dirs(self, now_ms: int) -> None:
        due = [(due_ms, path) for due_ms, path in self._doomed_dirs if due_ms <= now_ms]
        for entry in due:
            self._doomed_dirs.remove(entry)
            try:
                self._fs.remove_tree(entry[1])
            except OSError as error:
                logger.error("%s", storage_error(error, path=entry[1], doing="removing"))


def _expire_producers(log: Log, now_ms: int) -> None:
    log.producers.expire(now_ms=now_ms, after_ms=log.config.producer_id_expiration_ms)
