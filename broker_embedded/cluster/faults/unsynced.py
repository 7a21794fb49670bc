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
    """The content of one file that would survive a crash."""

    __slots__ = ("durable_size", "is_name_durable", "overwritten", "path")

    def __init__(self, path: str, *, durable_size: int, is_name_durable: bool) -> None:
        self.path = path
        self.durable_size = durable_size
        self.is_name_durable = is_name_durable
        self.overwritten: list[tuple[int, bytes]] = []
        """Durable bytes that were written over since the last fsync, oldest first."""

    def remember(self, file: File, position: int, size: int) -> None:
        """Remember durable bytes that are about to be overwritten."""
        self.overwritten.append((position, file.read_at(min(size, self.durable_size - position), position)))

    def truncated(self, size: int) -> None:
        self.durable_size = min(self.durable_size, size)

    def flushed(self, size: int) -> None:
        self.durable_size = size
        self.overwritten.clear()

    def forget(self, fs: FileSystem) -> None:
        """Reduce the file to what a crash would leave."""
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
        self._children: dict[str, dict[str, None]] = {}
        """By directory: its files that have a record, and its directories that have one below. Replicas are deleted one
        by one, and a cluster may have ten thousand."""
        self._new_names: dict[str, list[FileRecord]] = {}
        """By directory: files that were created since it was last synced."""

    def opened(self, path: str, file: File, *, created: bool) -> FileRecord:
        record = self._records.get(path)
        if record is None:
            record = FileRecord(path, durable_size=0 if created else file.size(), is_name_durable=not created)
            self._add(record)
            if created:
                self._new_names.setdefault(parent(path), []).append(record)
        return record

    def renamed(self, source: str, target: str, *, replaces: bool) -> None:
        record = self._records.get(source)
        if record is None:
            for record in self._below(source):
                self._rename(record, target + record.path[len(source) :])
            return
        self._rename(record, target)
        if replaces:
            record.is_name_durable = True  # the old file or the new one; this model has the new one
        elif not record.is_name_durable:
            self._new_names.setdefault(parent(target), []).append(record)

    def removed(self, path: str) -> None:
        if path in self._records:
            self._remove(path)

    def removed_tree(self, path: str) -> None:
        for record in self._below(path):
            self._remove(record.path)

    def synced_dir(self, path: str) -> None:
        for record in self._new_names.pop(path, ()):
            if parent(record.path) == path:
                record.is_name_durable = True

    def forget_below(self, path: str) -> None:
        """Remove everything below `path` that was not durable."""
        for record in self._below(path):
            record.forget(self._fs)
            self._remove(record.path)

    def _add(self, record: FileRecord) -> None:
        self._records[record.path] = record
        path, directory = record.path, parent(record.path)
        while path != directory:
            siblings = self._children.setdefault(directory, {})
            if path in siblings:
                return
            siblings[path] = None
            path, directory = directory, parent(directory)

    def _remove(self, path: str) -> None:
        del self._records[path]
        directory = parent(path)
        while path != directory:
            siblings = self._children[directory]
            del siblings[path]
            if siblings:
                return
            del self._children[directory]
            path, directory = directory, parent(directory)

    def _rename(self, record: FileRecord, path: str) -> None:
        self._remove(record.path)
        if path in self._records:
            self._remove(path)
        record.path = path
        self._add(record)

    def _below(self, path: str) -> list[FileRecord]:
        found = []
        waiting = [path.rstrip("/") or "/"]
        while waiting:
            for child in self._children.get(waiting.pop(), ()):
                record = self._records.get(child)
                if record is None:
                    waiting.append(child)
                else:
                    found.append(record)
        return found
