"""What a pipeline declares: sources, views, sinks, and where each keeps its checkpoint. Names are checked at once.

Declaring starts no Spark and needs no Java. What runs a declaration is `definition.py`.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.errors import ConfigError
from ottla.spark.pipeline.parts import (
    BatchDeadLetters,
    DeltaSink,
    EachBatchSink,
    FrameSource,
    IcebergSink,
    ParquetSink,
    Position,
    Sink,
    Source,
    TableSource,
    TopicSink,
    TopicSource,
    View,
    Watermark,
    start_options,
)
from ottla.spark.reading.engine import Engine
from ottla.spark.values.decoding import Decodable
from ottla.telemetry import Hooks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


F = TypeVar("F", bound=Callable[..., Any])
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VERSION = re.compile(r"[A-Za-z0-9._-]+")
_TAKEN = (".", "..", "dead_letters", "live.json")
"""What the folder of a pipeline has beside its versions."""


def checked_version(version: object) -> str:
    """Return `version`. Raises `ConfigError` unless it can be a folder, a part of a topic's name and of a group's."""
    if isinstance(version, str) and _VERSION.fullmatch(version) and version not in _TAKEN:
        return version
    hint = ". A variable that is not set gives this" if isinstance(version, str) and not version.strip() else ""
    raise ConfigError(
        f"version: found {version!r:.100}, wanted letters, digits, '.', '_' and '-', and none of"
        f" {', '.join(_TAKEN)}{hint}"
    )


def checked_place(name: str, text: object) -> str:
    """Return `text`. Raises `ConfigError` where it is empty: what was meant is not known, and a default is not it."""
    if isinstance(text, str) and text.strip():
        return text
    raise ConfigError(f"{name}: found {text!r:.100}, wanted {_PLACES[name]}. A variable that is not set gives this")


_PLACES = {
    "name": "the name of a pipeline",
    "checkpoint": "a folder",
    "bootstrap_servers": "the addresses of brokers (host:port, ...)",
}


class Declaration:
    """The declared half of a `Pipeline`. Every declaration raises `ConfigError` for what cannot work."""

    def __init__(
        self,
        name: str,
        *,
        checkpoint: str,
        bootstrap_servers: str | None = None,
        version: str = "v1",
        dead_letters: str | None = None,
        publish_groups: bool = True,
        options: Mapping[str, Any] | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        """Declare a pipeline. `checkpoint` is a folder; queries keep theirs in `<checkpoint>/<name>/<version>/<sink>`.

        `dead_letters` names the topic for rows that do not decode. `publish_groups` commits the offsets of each sink to
        the consumer group `<name>.<version>.<sink>`, for lag tools. `options` (security, limits) go to all sources and
        topic sinks; `hooks` are called for every micro-batch.
        """
        self.name = checked_place("name", name)
        if {".", ".."} & set(name.split("/")) or name.startswith("/"):
            raise ConfigError(f"name: found {name!r}, wanted one that is a folder below the checkpoint's")
        self.checkpoint = checked_place("checkpoint", checkpoint).rstrip("/")
        self.version = checked_version(version)
        self.dead_letters = dead_letters
        self.publish_groups = publish_groups
        self.options = dict(options or {})
        self.hooks = hooks or Hooks()
        self._bootstrap_servers = bootstrap_servers
        self.parts: dict[str, Source | View] = {}
        """The declared sources and views by name."""
        self.sinks: dict[str, Sink] = {}
        """The declared sinks by name."""

    # Sources

    def read_topic(
        self,
        name: str,
        topic: str | Sequence[str] | None = None,
        *,
        value: Decodable = None,
        key: Decodable = None,
        select: Sequence[str] = (),
        watermark: Watermark | None = None,
        unique: Sequence[str] = (),
        start: Position = "earliest",
        engine: Engine = "python",
        **options: Any,
    ) -> None:
        """Declare a stream of one or more topics (by default the topic called `name`).

        Rows that do not decode go to the pipeline's dead letter topic. `select` are expressions over the source's
        columns (`value.*`); then comes the watermark, then repeats by the columns of `unique` are dropped within it.
        `options` are those of `format("ottla")`.
        """
        if unique and watermark is None:
            raise ConfigError(
                f"{name}: unique={list(unique)} needs a watermark: it bounds how long an id is remembered"
            )
        by_option = {"subscribePattern", "assign"} & options.keys()
        topics = topic if topic is not None or by_option else name
        start_options(start)
        self._add(
            TopicSource(
                name=name,
                topics=topics,
                value=value,
                key=key,
                select=tuple(select),
                watermark=watermark,
                unique=tuple(unique),
                start=start,
                engine=engine,
                options={**self.options, **options},
            )
        )
        decodes = value is not None or key is not None
        if self.dead_letters is not None and decodes:
            own = {each: value for each, value in self.options.items() if each.startswith("kafka.")}
            sink = BatchDeadLetters(name=f"{name}_dead_letters", view=name, topic=self.dead_letters, options=own)
            self.sinks[sink.name] = sink

    def read_table(
        self,
        name: str,
        topic: str | None = None,
        *,
        value: Decodable = None,
        key: Decodable = None,
        select: Sequence[str] = (),
        latest_per_key: bool = True,
        **options: Any,
    ) -> None:
        """Declare a topic as a table to join with: the newest record of each key, read again with each micro-batch."""
        self._add(
            TableSource(
                name=name,
                topic=topic or name,
                value=value,
                key=key,
                select=tuple(select),
                is_latest_per_key=latest_per_key,
                options={**self.options, **options},
            )
        )

    def read_frame(self, name: str, make: Callable[[SparkSession], DataFrame]) -> None:
        """Declare any other frame: `lambda spark: spark.read.parquet("/lake/airports")`."""
        self._add(FrameSource(name=name, make=make))

    # Views

    def view(self, function: F) -> F:
        """Declare a view by a function: its name is the view's, its parameters are the frames it is made of."""
        inputs = tuple(inspect.signature(function).parameters)
        self._check_inputs(function.__name__, [name for name in inputs if name != "spark"])
        self._add(View(name=function.__name__, inputs=inputs, function=function))
        return function

    def sql(self, name: str, text: str) -> None:
        """Declare a view by SQL over the names declared so far.

        Raises `ConfigError` when the text uses no declared name.
        """
        words = set(_NAME.findall(text))
        inputs = tuple(known for known in self.parts if known in words)
        if not inputs:
            raise ConfigError(
                f"view {name}: the SQL names none of {', '.join(self.parts) or 'the views (there are none)'}"
            )
        self._add(View(name=name, inputs=inputs, sql=text))

    # Sinks

    def write_parquet(
        self,
        view: str,
        path: str,
        *,
        name: str | None = None,
        partition_by: Sequence[str] = (),
        files_per_batch: int | None = None,
    ) -> None:
        """Declare Parquet files, exactly once: Spark's file sink. `files_per_batch` bounds how many a batch writes."""
        sink = ParquetSink(
            name=name or view,
            view=view,
            path=path,
            partition_by=tuple(partition_by),
            files_per_batch=files_per_batch,
        )
        self._add_sink(sink)

    def write_delta(
        self,
        view: str,
        path: str,
        *,
        name: str | None = None,
        partition_by: Sequence[str] = (),
        key: Sequence[str] = (),
        order_by: str = "offset",
        delete: str | None = None,
    ) -> None:
        """Declare a Delta table, exactly once: one commit for each micro-batch (extra `ottla[delta]`, no jar).

        The table is made if there is none; columns that it lacks are added. `partition_by` are columns of text, whole
        numbers, dates or booleans.

        Rows are appended. With `key`, the newest row of each key by `order_by` updates or inserts the row of that key;
        one for which the SQL expression `delete` is true deletes it. The driver holds these rows of a micro-batch.
        """
        sink = DeltaSink(
            name=name or view,
            view=view,
            path=path,
            partition_by=tuple(partition_by),
            key=tuple(key),
            order_by=order_by,
            delete=delete,
        )
        self._add_sink(sink)

    def write_iceberg(
        self,
        view: str,
        table: str,
        *,
        catalog: str | Mapping[str, Any] = "default",
        name: str | None = None,
        partition_by: Sequence[str] = (),
        key: Sequence[str] = (),
        order_by: str = "offset",
        delete: str | None = None,
    ) -> None:
        """Declare an Iceberg table, `namespace.table`, exactly once, as `write_delta` does (extra `ottla[iceberg]`).

        `catalog` is the name of one in PyIceberg's configuration, or the properties of one as `load_catalog` takes
        them: `{"type": "rest", "uri": ...}`.
        """
        self._add_sink(
            IcebergSink(
                name=name or view,
                view=view,
                table=table,
                catalog=catalog if isinstance(catalog, str) else dict(catalog),
                partition_by=tuple(partition_by),
                key=tuple(key),
                order_by=order_by,
                delete=delete,
            )
        )

    def write_topic(
        self,
        view: str,
        topic: str,
        *,
        name: str | None = None,
        key: str | None = None,
        value: str = "to_json(struct(*))",
        output_mode: str = "append",
        **options: Any,
    ) -> None:
        """Declare records of a topic. `key` and `value` are SQL expressions over the view's columns.

        Raises `ConfigError` for the output mode `update`, which Spark does not have for sinks in Python.
        """
        if output_mode == "update":
            raise ConfigError(
                f"sink {name or view}: output_mode: found 'update', wanted 'append': Spark has no such mode for a"
                " sink in Python. Use write_each and write each micro-batch to the topic"
            )
        sink = TopicSink(
            name=name or view,
            view=view,
            topic=topic,
            key=key,
            value=value,
            output_mode=output_mode,
            options={**self.options, **options},
        )
        self._add_sink(sink)

    def write_each(
        self,
        view: str,
        function: Callable[[DataFrame, int], None],
        *,
        name: str | None = None,
        output_mode: str = "append",
    ) -> None:
        """Declare a function of each micro-batch, called with its rows and its number; again after a failure.

        In a bounded batch the number is -1.
        """
        self._add_sink(EachBatchSink(name=name or view, view=view, function=function, output_mode=output_mode))

    # What was declared

    @property
    def home(self) -> str:
        """The folder of everything this pipeline remembers."""
        return f"{self.checkpoint}/{self.name}"

    @property
    def bootstrap_servers(self) -> str:
        """As given here, else by the environment (`OTTLA_BOOTSTRAP_SERVERS`)."""
        found = self._bootstrap_servers or os.environ.get("OTTLA_BOOTSTRAP_SERVERS")
        if not found:
            raise ConfigError(
                f"pipeline {self.name}: bootstrap_servers is missing; set OTTLA_BOOTSTRAP_SERVERS or give it"
            )
        return found

    def checkpoint_of(self, sink: str) -> str:
        """Return the checkpoint of this sink's query. Dead letters have one for all versions: a record that could not
        be decoded is a dead letter once, however often it is replayed.
        """
        return f"{self.home}/{self._part_of(sink)}"

    def group_of(self, sink: str) -> str:
        """Return the consumer group that shows how far this sink is."""
        return f"{self.name}.{self._part_of(sink).replace('/', '.')}"

    def in_version(self, text: str) -> str:
        """Return a path or topic with the version put in."""
        return text.replace("{version}", self.version)

    def sources_of(self, sink: Sink) -> list[TopicSource]:
        """Return the streams that a sink is made of, in the order of their declaration."""
        needed: set[str] = set()
        waiting = [sink.view]
        while waiting:
            part = self.parts[name] if (name := waiting.pop()) in self.parts else None
            if part is None or name in needed:
                continue
            needed.add(name)
            waiting += part.inputs if isinstance(part, View) else ()
        return [p for p in self.parts.values() if isinstance(p, TopicSource) and p.name in needed]

    def streams(self) -> list[TopicSource]:
        """Return all sources that are streams. Raises `ConfigError` when none is declared."""
        found = [part for part in self.parts.values() if isinstance(part, TopicSource)]
        if not found:
            raise ConfigError(f"pipeline {self.name}: no stream is declared; begin with read_topic")
        return found

    def _part_of(self, sink: str) -> str:
        found = self.sinks[sink]
        return f"dead_letters/{found.view}" if isinstance(found, BatchDeadLetters) else f"{self.version}/{sink}"

    def _add(self, part: Source | View) -> None:
        if not _NAME.fullmatch(part.name) or part.name == "spark":
            raise ConfigError(
                f"{part.name!r}: wanted a name of letters, digits and underscores, so that SQL can use it"
            )
        if part.name in self.parts:
            raise ConfigError(f"pipeline {self.name}: there is a {part.name} already")
        self.parts[part.name] = part

    def _add_sink(self, sink: Sink) -> None:
        self._check_inputs(f"sink {sink.name}", [sink.view])
        if sink.name in self.sinks:
            raise ConfigError(f"pipeline {self.name}: there is a sink {sink.name} already; give this one another name=")
        if not self.sources_of(sink):
            raise ConfigError(f"sink {sink.name}: {sink.view} reads no stream (read_topic), so it would never run")
        self.sinks[sink.name] = sink

    def _check_inputs(self, who: str, names: Sequence[str]) -> None:
        unknown = [name for name in names if name not in self.parts]
        if unknown:
            known = ", ".join(self.parts) or "nothing yet"
            raise ConfigError(f"{who}: {', '.join(unknown)} is not declared; declared are {known}")
