"""Kappa: read history again with a new version of the definition, beside the live one, then switch over.

Which version is live stands in one small file, `<checkpoint>/<name>/live.json`, replaced as a whole. Readers of outputs
ask `live_version()`; dead letters are written by the live version only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.errors import ConfigError
from ottla.foreign_json import read_json
from ottla.records import TopicPartition
from ottla.spark.checkpoints.checkpoint import is_checkpoint, read_checkpoint
from ottla.spark.checkpoints.files import files_of
from ottla.spark.checkpoints.offsets import Offsets
from ottla.spark.pipeline.declaration import checked_version
from ottla.spark.pipeline.parts import BatchDeadLetters, Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.spark.pipeline.definition import Pipeline

FILE_NAME = "live.json"


def replay(
    pipeline: Pipeline, spark: SparkSession | None, *, version: str, since: Position, only: Sequence[str]
) -> Pipeline:
    """Run `version` over everything from `since` up to now. Called again, it reads what has come since."""
    from ottla.spark.pipeline.launch import start

    again = pipeline.at(version=checked_version(version))
    live = live_version(pipeline)
    if version == live:
        raise ConfigError(f"pipeline {pipeline.name}: {version} is live; replay into another version")
    _make_live(pipeline, live)  # from now on it must be known, whatever version the caller's definition names
    start(again, spark, available_now=True, only=only, since=since).await_end()
    return again


def switch_over(pipeline: Pipeline, version: str, *, force: bool) -> None:
    """Make `version` live, once it is as far as the one before it."""
    checked_version(version)
    live = live_version(pipeline)
    if version != live and not force:
        behind = _behind(pipeline.at(version=live), pipeline.at(version=version))
        if behind:
            raise ConfigError(
                f"pipeline {pipeline.name}: {version} is not as far as {live}: {'; '.join(behind)}."
                f" Replay once more, with {live} stopped, or force it"
            )
    _make_live(pipeline, version)


def live_version(pipeline: Pipeline) -> str:
    """Return the live version, or the definition's own where nothing was ever switched."""
    path = f"{pipeline.home}/{FILE_NAME}"
    content = files_of(path).read(path)
    if content is None:
        return pipeline.version
    try:
        found = read_json(content)
        return checked_version(found["version"] if isinstance(found, dict) else found)
    except (ValueError, KeyError, ConfigError) as error:
        raise ConfigError(
            f'{path}: found no live version ({error}), wanted {{"version": "..."}}: write the live one, or remove the'
            " file if none was ever switched to"
        ) from None


def _make_live(pipeline: Pipeline, version: str) -> None:
    path = f"{pipeline.home}/{FILE_NAME}"
    files_of(path).write(path, json.dumps({"version": version}).encode())


def _behind(live: Pipeline, other: Pipeline) -> list[str]:
    """Return, sink by sink, what `live` has read and `other` has not."""
    found = []
    for sink in live.sinks.values():
        if isinstance(sink, BatchDeadLetters):
            continue
        there, here = _position(live, sink.name), _position(other, sink.name)
        missing: dict[TopicPartition, int] = {p: o - here.get(p, 0) for p, o in there.items() if o > here.get(p, 0)}
        if missing:
            found.append(f"{sink.name} lacks {sum(missing.values()):,} records of {', '.join(map(str, missing))}")
    return found


def _position(pipeline: Pipeline, sink: str) -> Offsets:
    location = pipeline.checkpoint_of(sink)
    return read_checkpoint(location).position if is_checkpoint(location) else {}
