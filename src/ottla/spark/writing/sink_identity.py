"""The topic and the transactional id prefix of an exactly-once sink, which stay the same for the life of a checkpoint.

With another of them, the markers of the batch in flight are not found, and its rows would be written a second time.

- The first start keeps both in a small file beside the checkpoint, and a start that differs is refused. A query that is
  no pipeline's can do so on local disk only: Spark makes its writer in a process without a session.
- Before the driver commits a batch that does not follow one of its own, it looks for a decision on this batch under
  another name or topic, wherever the checkpoint is. It needs Describe on the groups of the former prefix, and brokers
  that list all of their groups: a batch is not committed unchecked because one of them is still loading.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Final

from ottla.errors import ConfigError, OttlaError
from ottla.foreign_json import read_json
from ottla.spark.checkpoints.files import files_of
from ottla.spark.options import SinkOptions
from ottla.spark.writing.commit_decision import Decider
from ottla.wire_client import Cluster
from ottla.wire_client.errors import ApiNotServed, Forbidden
from ottla.wire_client.group.group_offsets import committed_offsets, list_group_names

log = logging.getLogger(__name__)

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
            raise _differs(name, value, found, path)


def check_decisions(options: SinkOptions, cluster: Cluster, decider: Decider, batch: int) -> None:
    """Raise ConfigError if this batch, or a later one, was decided with another prefix or topic.

    A batch that follows one of its own decisions needs no look. Raises a RetriableError if brokers do not answer in
    time: the batch must not be committed unchecked. Without the ACL for a look, logs a warning.
    """
    if 0 < batch <= decider.number:
        return
    query = decider.query.removeprefix(options.transactional_id_prefix)
    groups = {decider.query}
    try:
        groups.update(list_group_names(cluster, ends_with=query))
    except (Forbidden, ApiNotServed) as error:
        _warn(batch, "the groups of the cluster", error)
    for group in sorted(groups):
        prefix = group.removesuffix(query)
        try:
            places = committed_offsets(cluster, group, None, require_stable=False)
        except Forbidden as error:
            _warn(batch, f"group {group}", error)
            continue
        for place, (number, _) in places.items():
            if number <= batch or (group, place) == (decider.query, decider.place):
                continue
            if prefix != options.transactional_id_prefix:
                raise _differs("transactionalIdPrefix", options.transactional_id_prefix, prefix, f"group {group}")
            raise _differs("topic", options.topic, place.topic, f"group {group}")


def _warn(batch: int, what: str, error: OttlaError) -> None:
    log.warning(
        "batch %d is committed without a look at %s: %s. If transactionalIdPrefix or the topic is another than in"
        " earlier runs on this checkpoint, its rows may be written twice",
        batch,
        what,
        error,
    )


def _differs(name: str, found: object, wanted: object, where: str) -> ConfigError:
    return ConfigError(
        f"{name}: found {found!r}, wanted {wanted!r}, with which this checkpoint was written ({where}): a batch"
        " that was half committed would be written twice. Use that one, or a new checkpoint"
    )
