"""Follows which bytes and names were made durable, so that a crash can take the others away.

POSIX, as strictly as `common.filesystem` puts it: bytes survive after `File.flush`, a new name after `sync_dir` of its
directory. Simplified: directories, renames, removals and truncations survive at once. What a file held when it was
first opened counts as durable.

Files are closed and opened again behind their owners' backs (`storage.file_pool`) and change their names (a segment
that is swapped in, a partition that is deleted): a record belongs to the file, not to a handle or a name.
"""

from __future__ import annotations

from broker_embedded.common.filesystem import File, FileSystem, parent


class FileRecord:
    """What would be left of one file."""

    __slots__ = ("durable_size", "is_name_durable", "overwritten", "path")

    def __init__(self, path: str, *, durable_size: int, is_name_durable: bool) -> None:
        self.path = path
        self.durable_size = durable_size
        self.is_name_durable = is_name_durable
        self.overwritten: list[tuple[int, bytes]] = []
        """Durable bytes that were written over since the last fsync, oldest first."""

    def remember(self, file: File, position: int, size: int) -> None:
        """Durable bytes are about to be written over."""
        self.overwritten.append((position, file.read_at(min(size, self.durable_size - position), position)))

    def truncated(self, size: int) -> None:
        self.durable_size = min(self.durable_size, size)

    def flushed(self, size: int) -> None:
        self.durable_size = size
        self.overwritten.clear()

    def forget(self, fs: FileSystem) -> None:
        """Make the file what a crash leaves."""
        if not fs.exists(self.path):
            return
        if not self.is_name_durable:
            fs.remove(self.path)
            return
        size = fs.size(self.path)
        if size <= self.durable_size and not self.overwritten:
            return
        file = fs.open(self.path)
        try:
            for position, data in reversed(self.overwritten):
                file.write_at(data[: max(0, self.durable_size - position)], position)
            if size > self.durable_size:
                file.truncate(self.durable_size)
        finally:
            file.close()


class Unsynced:
    """The records of all files that were opened through one file system."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._records: dict[str, FileRecord] = {}
        self._new_names: dict[str, list[FileRecord]] = {}
        """By directory: files that were created since it was last synced."""

    def opened(self, path: str, file: File, *, created: bool) -> FileRecord:
        record = self._records.get(path)
        if record is None:
            record = FileRecord(path, durable_size=0 if created else file.size(), is_name_durable=not created)
            self._records[path] = record
            if created:
                self._new_names.setdefault(parent(path), []).append(record)
        return record

    def renamed(self, source: str, target: str, *, replaces: bool) -> None:
        record = self._records.pop(source, None)
        if record is None:
            self._directory_renamed(source, target)
            return
        record.path = target
        self._records[target] = record
        if replaces:
            record.is_name_durable = True  # the old file or the new one; this model has the new one
        elif not record.is_name_durable:
            self._new_names.setdefault(parent(target), []).append(record)

    def removed(self, path: str) -> None:
        self._records.pop(path, None)

    def removed_tree(self, path: str) -> None:
        for record in self._below(path):
            del self._records[record.path]

    def synced_dir(self, path: str) -> None:
        for record in self._new_names.pop(path, ()):
            if parent(record.path) == path:
                record.is_name_durable = True

    def forget_below(self, path: str) -> None:
        """Take away what was not durable below `path`."""
        for record in self._below(path):
            record.forget(self._fs)
            del self._records[record.path]

    def _directory_renamed(self, source: str, target: str) -> None:
        for record in self._below(source):
            del self._records[record.path]
            record.path = target + record.path[len(source) :]
            self._records[record.path] = record

    def _below(self, path: str) -> list[FileRecord]:
        prefix = path.rstrip("/") + "/"
        return [record for record in self._records.values() if record.path.startswith(prefix)]
