"""The topic and the transactional id prefix of an exactly-once sink, kept beside the query's checkpoint.

With another of them, the markers of the batch in flight are not found, and its rows would be written a second time. So
the first start keeps both in a small file, and a start that differs is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from ottla.errors import ConfigError
from ottla.foreign_json import read_json
from ottla.spark.checkpoints.files import files_of
from ottla.spark.options import SinkOptions

FILE_NAME: Final = "ottla-sink.json"


def check_identity(options: SinkOptions) -> None:
    """Keep topic and prefix, or compare them with those that were kept. Raises ConfigError when one differs.

    Does nothing for an at-least-once sink, or without a checkpoint location.
    """
    if options.checkpoint is None or not options.is_exactly_once:
        return
    path = f"{options.checkpoint}/{FILE_NAME}"
    files = files_of(path)
    wanted = {"topic": options.topic, "transactionalIdPrefix": options.transactional_id_prefix}
    content = files.read(path)
    if content is None:
        files.write(path, json.dumps(wanted).encode())
        return
    try:
        kept = read_json(content)
    except ValueError as error:
        raise ConfigError(f"{path}: found no JSON ({error}), wanted topic and transactionalIdPrefix") from None
    for name, value in wanted.items():
        found = kept.get(name) if isinstance(kept, Mapping) else None
        if found != value:
            raise ConfigError(
                f"{name}: found {value!r}, wanted {found!r}, with which this checkpoint was written ({path}): a batch"
                " that was half committed would be written twice. Use that one, or a new checkpoint"
            )
