"""The topic and the transactional id prefix of an exactly-once sink, kept beside the query's checkpoint.

With another of them, the markers of the batch in flight are not found, and its rows would be written a second time. So
the first start keeps both in a small file, and a start that differs is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Final

from ottla.errors import ConfigError
from ottla.foreign_json import read_json
from ottla.spark.checkpoints.files import is_local, local_path
from ottla.spark.options import SinkOptions

FILE_NAME: Final = "ottla-sink.json"


def check_identity(options: SinkOptions) -> None:
    """Keep topic and prefix, or compare them with those that were kept. Raises ConfigError when one differs.

    Does nothing without a checkpoint location on a local file system.
    """
    location = options.checkpoint
    if location is None or not is_local(location):
        return
    path = local_path(location) / FILE_NAME
    wanted = {"topic": options.topic, "transactionalIdPrefix": options.transactional_id_prefix}
    try:
        kept = read_json(path.read_text())
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        scratch.write_text(json.dumps(wanted))
        scratch.replace(path)
        return
    except ValueError as error:
        raise ConfigError(f"{path}: found no JSON ({error}), wanted topic and transactionalIdPrefix") from None
    for name, value in wanted.items():
        found = kept.get(name) if isinstance(kept, Mapping) else None
        if found != value:
            raise ConfigError(
                f"{name}: found {value!r}, wanted {found!r}, with which this checkpoint was written ({path}): a batch"
                " that was half committed would be written twice. Use that one, or a new checkpoint"
            )
