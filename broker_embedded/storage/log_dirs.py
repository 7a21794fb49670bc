"""The log directories of one broker: online ones, failed ones, and the choice for a new partition. A directory whose
disk reports an error goes offline; logs in the others continue."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from broker_embedded.common.errors import BrokerError, StartupError
from broker_embedded.common.filesystem import FileSystem, parent
from broker_embedded.storage.faults import storage_error, takes_dir_offline
from broker_embedded.storage.log import Log
from broker_embedded.storage.log_dir import LogDir
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

logger = logging.getLogger(__name__)

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
    """Why the directory is offline, or None."""


class LogDirs:
    """Opens and locks the directories. If one cannot be opened or locked, raises StartupError and locks none.

    `logs_in` and `futures_in` return what is in a directory: the logs that are served, and the copies that are being
    made.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        fs: FileSystem,
        logs_in: Callable[[str], Sequence[Log]],
        futures_in: Callable[[str], Sequence[Log]],
    ) -> None:
        if not paths:
            raise StartupError("log.dirs is empty: name at least one directory")
        self._fs = fs
        self._logs_in = logs_in
        self._futures_in = futures_in
        self._listeners: list[DirListener] = []
        self._dirs: dict[str, LogDir] = {}
        self.offline: dict[str, str] = {}
        """Directories whose disk failed while the broker ran, and why. They are not used until the next start."""
        self.cordoned: frozenset[str] = frozenset()
        """Directories that get no new partitions while there are others (KIP-1066)."""
        try:
            for path in paths:
                self._dirs[path.rstrip("/")] = LogDir.open(fs, path.rstrip("/"))
        except StartupError:
            for log_dir in self._dirs.values():
                log_dir.release()
            raise

    def __iter__(self) -> Iterator[LogDir]:
        """Iterate over all directories, offline ones included."""
        return iter(self._dirs.values())

    def __getitem__(self, path: str) -> LogDir:
        return self._dirs[path]

    def of(self, log: Log) -> LogDir | None:
        """Return the directory of a log; None if unknown."""
        return self._dirs.get(parent(log.directory))

    @property
    def paths(self) -> Sequence[str]:
        return tuple(self._dirs)

    def bind_identity(self, *, cluster_id: str, node_id: int, new_directory_id: Callable[[], str]) -> dict[str, str]:
        """Write or check `meta.properties` of each directory; returns directory ids by path."""
        return {
            path: log_dir.bind_identity(cluster_id=cluster_id, node_id=node_id, new_directory_id=new_directory_id)
            for path, log_dir in self._dirs.items()
        }

    # -- failures

    def add_listener(self, listener: DirListener) -> None:
        """Call `listener` with each directory that went offline and its logs, which are no longer served."""
        self._listeners.append(listener)

    def fail(self, path: str, reason: str) -> None:
        """Take a directory offline. Logs in the other directories continue."""
        if path not in self._dirs or path in self.offline:
            return
        logger.error("%s: offline, the other log directories go on: %s", path, reason)
        self.offline[path] = reason
        logs = self._logs_in(path)
        for log in (*logs, *self._futures_in(path)):
            log.offline_reason = reason
        for listener in self._listeners:
            listener(path, logs)

    def refused(self, path: str, error: OSError) -> None:
        """Handle a disk error: the directory goes offline if its disk cannot be trusted."""
        if takes_dir_offline(error):
            self.fail(path, f"{error.filename or path}: {error.strerror or error}")

    def log_refused(self, log: Log, error: OSError) -> None:
        """Take a directory offline if a step of a log failed there."""
        self.refused(parent(log.directory), error)

    # -- work

    def each(self, work: Callable[[LogDir], None], *, among: Collection[str] | None = None) -> None:
        """Apply to every online directory, or to those named; a failure of one does not stop the others."""
        for path, log_dir in self._dirs.items():
            if path in self.offline or (among is not None and path not in among):
                continue
            try:
                work(log_dir)
            except OSError as error:
                logger.error("%s", storage_error(error, path=path, doing="writing checkpoints"))
                self.refused(path, error)

    def make_partition_dir(self, name: str, *, logs: Iterable[Log]) -> str:
        """Return the directory of a new partition: the one with the fewest partitions. A log directory whose disk fails
        is passed over.

        So is a cordoned one, if there is another: the controller may have chosen this broker before it knew.
        """
        while True:
            online = [path for path in self._dirs if path not in self.offline]
            if not online:
                raise BrokerError(
                    ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline: replace the disks, restart"
                )
            online = [path for path in online if path not in self.cordoned] or online
            path = online[0]
            if len(online) > 1:
                counts = Counter(parent(log.directory) for log in logs)
                path = min(online, key=lambda p: counts[p])
            directory = f"{path}/{name}"
            try:
                self._fs.make_dirs(directory)
            except OSError as error:
                self.refused(path, error)
                if path not in self.offline:
                    raise storage_error(error, path=directory, doing="creating") from error
            else:
                return directory

    def describe(self) -> Sequence[LogDirView]:
        """Return the log directories for DescribeLogDirs."""
        return [self._view(path) for path in self._dirs]

    def _view(self, path: str) -> LogDirView:
        reason = self.offline.get(path)
        if reason is None:
            try:
                usage = self._fs.usage(path)
            except OSError as error:  # its disk failed, and nobody had noticed
                self.refused(path, error)
                reason = self.offline.get(path, f"{path}: {error.strerror or error}")
        if reason is not None:
            return LogDirView(path=path, total_bytes=-1, usable_bytes=-1, logs=(), offline_reason=reason)
        return LogDirView(
            path=path,
            total_bytes=usage.total,
            usable_bytes=usage.usable,
            logs=self._logs_in(path),
            futures=self._futures_in(path),
        )
