"""Reads files that users name, and refuses those that are larger than a bound."""

from __future__ import annotations

import os
from pathlib import Path

from ottla.errors import InputError, OttlaError


def read_bounded(
    path: str | Path, most_bytes: int, *, wanted: str, error: type[OttlaError] = InputError
) -> tuple[bytes, os.stat_result]:
    """Return the bytes of a file, and its status. Raises `error` where it cannot be read or is larger than such files
    are; `wanted` says what they are."""
    try:
        with Path(path).open("rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(most_bytes + 1)
    except OSError as problem:
        raise error(f"{path}: {problem.strerror or problem}") from None
    if len(data) > most_bytes:
        raise error(f"{path}: found more than {most_bytes:,} bytes, wanted {wanted}")
    return data, status
