"""Starting offsets, decided once.

Spark asks a source for its first offsets again after a restart, until the first batch is committed. With
`startingOffsets=latest` the second answer is later than the first, and the records between the two are never read. So
the first answer is kept in a small file beside the checkpoint, and is the answer from then on.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from ottla.errors import ConfigError
from ottla.foreign_json import read_json
from ottla.spark.checkpoints.files import files_of
from ottla.spark.checkpoints.offsets import Offsets, from_json_dict, to_json_dict

FILE_NAME = "ottla-starting-offsets.json"


def persisted_start(location: str | None, resolve: Callable[[], Offsets], *, keep: bool = True) -> Offsets:
    """Return the offsets kept at `location`, or those of `resolve`, which are kept there first. None: nothing is
    kept."""
    if location is None:
        return resolve()
    files = files_of(location)
    kept = files.read(location)
    if kept is not None:
        return read_start(kept, location)
    offsets = resolve()
    if keep:
        files.write(location, json.dumps(to_json_dict(offsets)).encode())
    return offsets


def read_start(text: str | bytes, location: str) -> Offsets:
    """Return the offsets that were kept at `location`, or a ConfigError that names it."""
    try:
        return from_json_dict(read_json(text))[0]
    except ValueError as error:
        raise ConfigError(
            f"{location}: not starting offsets ({error}); remove the file to choose starting offsets again"
        ) from None
