"""The number of tasks that an exactly-once sink is read with, kept beside its checkpoint.

A micro-batch that was committed in part must be repeated by the same number of tasks. By default that is the number of
the session's cores, which may be another one after a restart. So the first start keeps it, and later ones use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ConfigError
from ottla.foreign_json import read_json
from ottla.spark.checkpoints.files import files_of
from ottla.spark.jvm.parallelism import session_parallelism
from ottla.spark.pipeline.parts import Sink, TopicSink, TopicSource

if TYPE_CHECKING:
    from ottla.spark.pipeline.definition import Pipeline

FILE_PREFIX: Final = "ottla-tasks"


def tasks_option(pipeline: Pipeline, spark: Any, sink: Sink, source: TopicSource) -> dict[str, str]:
    """Return the option `tasks` of an exactly-once sink, kept if new; nothing for other sinks.

    A `tasks` of the definition is used, and kept in place of the old one. Raises `ConfigError` where the
    file has none.
    """
    is_exactly_once = isinstance(sink, TopicSink) and sink.options.get("delivery") == "exactly-once"
    if not is_exactly_once:
        return {}
    given = next((str(value) for name, value in source.options.items() if name.lower() == "tasks"), None)
    path = f"{pipeline.checkpoint_of(sink.name)}/{FILE_PREFIX}-{source.name}.json"
    files = files_of(path)
    content = files.read(path)
    kept = None if content is None else _parse(content, path)
    chosen = given or kept or _text(session_parallelism(spark))
    if chosen is None:
        return {}
    if chosen != kept:
        files.write(path, chosen.encode())
    return {"tasks": chosen}


def _parse(content: bytes, path: str) -> str:
    try:
        found = read_json(content)
    except ValueError:
        found = None
    if isinstance(found, int) and found > 0:
        return str(found)
    raise ConfigError(f"{path}: found {content[:100]!r}, wanted the number of tasks; remove it to choose it again")


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
