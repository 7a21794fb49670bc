"""A range of one segment's bytes, passed to the response writer. Nothing is read before it is needed."""

from __future__ import annotations

import os
from typing import Self

from broker_embedded.storage.file_pool import PooledFile
from ottla_wire.protocol.region import Region


class LogSlice(Region):
    """Starts with the batch that contains the wanted offset; may end inside a batch (clients drop a partial one).

    Valid until the segment's file is removed, `file.delete.delay.ms` after the segment left the log.
    """

    __slots__ = ("_file", "position", "segment_base_offset", "size")

    def __init__(self, file: PooledFile | None, position: int, size: int, segment_base_offset: int) -> None:
        self._file = file
        self.position = position
        self.size = size
        """Bytes; 0 for an empty slice."""
        self.segment_base_offset = segment_base_offset

    def __len__(self) -> int:
        return self.size

    def buffers(self) -> list[bytes]:
        """Return the bytes, read by pread, as pieces to be written one after the other."""
        if self._file is None or self.size == 0:
            return []
        data = self._file.read_at(self.size, self.position)
        if len(data) == self.size:
            return [data]
        pieces, read = [data], len(data)
        while read < self.size:  # the kernel may return less than asked for
            data = self._file.read_at(self.size - read, self.position + read)
            if not data:
                raise self._ended(read)
            pieces.append(data)
            read += len(data)
        return pieces

    @property
    def is_sendable(self) -> bool:
        """Return whether `send_to` has a descriptor; the memory file system has none."""
        return self._file is not None and self._file.fileno() is not None

    def send_to(self, socket_fd: int) -> int:
        assert self._file is not None
        fd = self._file.fileno()  # asked for at each use: the pool may have closed it meanwhile
        assert fd is not None
        sent = os.sendfile(socket_fd, fd, self.position, self.size)
        if sent == 0:
            raise self._ended(0)
        return sent

    def first(self, size: int) -> Self:
        return type(self)(self._file, self.position, min(size, self.size), self.segment_base_offset)

    def without_first(self, size: int) -> Self:
        return type(self)(self._file, self.position + size, self.size - size, self.segment_base_offset)

    def _ended(self, read: int) -> OSError:
        path = "" if self._file is None else self._file.path
        return OSError(f"{path} ends at {self.position + read}, wanted {self.size - read} bytes more")
