"""Record bytes that are not in memory: an encoder counts them, and the transport sends them from where they are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Self


class Region:
    """What may stand in a list of record buffers without being a buffer. `len()` is its size in bytes.

    The encoders never look inside: only `encode_response_parts` and `encode_response_frame` can carry it.
    """

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def send_to(self, socket_fd: int) -> int:
        """Have the kernel send from the start; returns how many bytes it took. BlockingIOError when it takes none."""

    @abstractmethod
    def buffers(self) -> Sequence[bytes]:
        """Return all of its bytes, for when the kernel cannot send them from the file."""

    @abstractmethod
    def first(self, size: int) -> Self:
        """Return at most the first `size` bytes."""

    @abstractmethod
    def without_first(self, size: int) -> Self:
        """Return the region without its first `size` bytes."""


Part = bytes | bytearray | memoryview | Region
"""A piece of a response, to be sent in order."""
