"""Starting offsets, decided once.

Spark asks a source for its first offsets again after a restart, until the first batch is committed. With
`startingOffsets=latest` the second answer is later than the first, and the records between the two are never read. So
the first answer is kept in a small file beside the checkpoint, and is the answer from then on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ottla.errors import ConfigError
from ottla.foreign_json import read_json
from ottla.spark.checkpoints.offsets import Offsets, from_json_dict, to_json_dict

FILE_NAME = "ottla-starting-offsets.json"


def persisted_start(location: str | None, resolve: Callable[[], Offsets], *, keep: bool = True) -> Offsets:
    """Return the offsets kept at `location`, or those of `resolve`, which are kept there first. None: nothing is
    kept."""
    if location is None:
        return resolve()
    path = local_path(location)
    try:
        return read_start(path.read_text(), str(path))
    except FileNotFoundError:
        pass
    offsets = resolve()
    if not keep:
        return offsets
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(to_json_dict(offsets)))
    scratch.replace(path)
    return offsets


def read_start(text: str, location: str) -> Offsets:
    """Return the offsets that were kept at `location`, or a ConfigError that names it."""
    try:
        return from_json_dict(read_json(text))[0]
    except ValueError as error:
        raise ConfigError(
            f"{location}: not starting offsets ({error}); remove the file to choose starting offsets again"
        ) from None


def is_local(location: str) -> bool:
    """Return whether this is a path, or a `file:` address."""
    scheme = urlsplit(location).scheme
    return len(scheme) <= 1 or scheme == "file"


def local_path(location: str) -> Path:
    """Return a path, or a `file:` address, as a path."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme and len(parts.scheme) > 1:
        raise ConfigError(f"found {location!r}, wanted a path on a file system that the driver can write")
    return Path(location)
