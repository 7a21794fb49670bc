"""Where the sources of each sink start: decided once, for all sinks together, and kept beside each checkpoint.

With one decision, two sinks of one stream see the same records even with `start="latest"`, and a restart before the
first commit cannot skip any. On storage that is no local file system the decision is not kept: Spark asks again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ottla.columnar import Cluster
from ottla.spark.offsets import Offsets, to_json_dict
from ottla.spark.options import SourceOptions, source_options
from ottla.spark.pipeline.parts import Position, Sink, TopicSource, start_options
from ottla.spark.starting import is_local, persisted_start
from ottla.spark.subscription import resolve_start, subscribed_partitions

if TYPE_CHECKING:
    from ottla.spark.pipeline.definition import Pipeline


def options_of(pipeline: Pipeline, source: TopicSource, start: dict[str, str]) -> SourceOptions:
    """The source's options as the source itself will read them."""
    given = {name: str(v).lower() if isinstance(v, bool) else str(v) for name, v in source.options.items()}
    if source.topics is not None:
        given["subscribe"] = source.topics if isinstance(source.topics, str) else ",".join(source.topics)
    return source_options(given | start | {"kafka.bootstrap.servers": pipeline.bootstrap_servers}, is_streaming=True)


class Starts:
    """Resolves and keeps starting offsets. One per start of a pipeline."""

    def __init__(self, pipeline: Pipeline, cluster: Cluster, *, since: Position | None = None) -> None:
        self._pipeline = pipeline
        self._cluster = cluster
        self._since = since
        self._resolved: dict[str, Offsets] = {}

    def of(self, sink: Sink, source: TopicSource, *, keep: bool) -> Offsets:
        """The first offsets of this source in this sink's query. `keep`: write them beside the checkpoint if new."""
        folder = self._pipeline.checkpoint_of(sink.name)
        if not is_local(folder):
            return self._resolve(source)
        location = f"{folder}/ottla-starting-offsets-{source.name}.json"
        return persisted_start(location, lambda: self._resolve(source), keep=keep)

    def option(self, sink: Sink, source: TopicSource) -> dict[str, str]:
        """The same, as the source's option, kept."""
        return {"startingOffsets": json.dumps(to_json_dict(self.of(sink, source, keep=True)))}

    def _resolve(self, source: TopicSource) -> Offsets:
        if source.name not in self._resolved:
            position = source.start if self._since is None else self._since
            options = options_of(self._pipeline, source, start_options(position))
            partitions = subscribed_partitions(self._cluster, options)
            self._resolved[source.name] = resolve_start(self._cluster, options, partitions)
        return self._resolved[source.name]
