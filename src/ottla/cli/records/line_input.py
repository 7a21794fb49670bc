"""Lines out of chunks of bytes, with their numbers, and no more memory than the longest line may have. Sans IO."""

from __future__ import annotations

from typing import Final

from ottla.errors import InputError

LONGEST: Final = 128 * 1024 * 1024
"""A record has a megabyte where nobody changed Kafka's limits; as base64 in JSON it takes a third more."""


class Lines:
    """`feed` chunks, take whole lines; `end` is the last one, which may lack its line feed."""

    def __init__(self, *, longest: int = LONGEST) -> None:
        self._longest = longest
        self._pieces: list[bytes] = []
        self._size = 0
        self._number = 0

    def feed(self, chunk: bytes) -> list[tuple[int, bytes]]:
        """The lines that end in this chunk, each with its number from 1 on. InputError for one that is too long."""
        first, *more = chunk.split(b"\n")
        if not more:
            self._keep(first)
            return []
        self._keep(first)
        lines = [self._whole(), *more[:-1]]
        numbered = list(enumerate(lines, self._number + 1))
        self._number += len(lines)
        self._keep(more[-1])
        return numbered

    def end(self) -> list[tuple[int, bytes]]:
        """What is left when the input ends."""
        rest = self._whole()
        if not rest:
            return []
        self._number += 1
        return [(self._number, rest)]

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._longest:
            raise InputError(f"line {self._number + 1}: found more than {self._longest:,} bytes, wanted a shorter line")
        if piece:
            self._pieces.append(piece)

    def _whole(self) -> bytes:
        line = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return line
