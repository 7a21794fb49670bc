"""What a pipeline is made of: sources, views and sinks, as facts. How they become frames is in `frames.py`."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.errors import ConfigError
from ottla.records import TopicPartition
from ottla.spark.checkpoints.offsets import parse_offsets_option, to_json_dict
from ottla.spark.reading.engine import Engine
from ottla.spark.values.decoding import Decodable
from ottla.wire_client import EARLIEST, LATEST
from ottla.wire_client.fetching.position_lookup import parse_position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Position: TypeAlias = "str | dt.datetime | Mapping[TopicPartition, int]"
"""'earliest', 'latest', a time ('-1h', ISO 8601, a datetime), 'group:NAME', or offsets by partition."""

Watermark: TypeAlias = tuple[str, str]
"""(column with the event's time, how late an event may come): `("at", "10 minutes")`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """Topics as a stream, or as a bounded table when the pipeline runs as a batch."""

    name: str
    topics: str | Sequence[str] | None
    value: Decodable = None
    key: Decodable = None
    select: tuple[str, ...] = ()
    watermark: Watermark | None = None
    unique: tuple[str, ...] = ()
    start: Position = "earliest"
    engine: Engine = "python"
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_decoded(self) -> bool:
        return self.value is not None or self.key is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """A topic as a table for joins, read as a whole with every micro-batch."""

    name: str
    topic: str
    value: Decodable = None
    key: Decodable = None
    select: tuple[str, ...] = ()
    is_latest_per_key: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSource:
    """Any other DataFrame: files, a database, a list in memory."""

    name: str
    make: Callable[[SparkSession], DataFrame]


Source: TypeAlias = "TopicSource | TableSource | FrameSource"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A named frame made of others: a function whose parameters are their names, or SQL that names them."""

    name: str
    inputs: tuple[str, ...]
    function: Callable[..., DataFrame] | None = None
    sql: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where rows of a view end. Each sink is a streaming query of its own, with a checkpoint of its own."""

    name: str
    view: str
    output_mode: str = "append"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSink(Sink):
    path: str
    partition_by: tuple[str, ...] = ()
    files_per_batch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSink(Sink):
    """A table that Ottla commits to: rows appended, or merged by key."""

    partition_by: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    order_by: str = "offset"
    delete: str | None = None

    def __post_init__(self) -> None:
        if self.delete is not None and not self.key:
            raise ConfigError(f"sink {self.name}: delete needs key=: the columns of the key that a row deletes")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSink(LakeSink):
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergSink(LakeSink):
    table: str
    catalog: str | Mapping[str, Any] = field(repr=False)  # it may hold a password


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink(Sink):
    topic: str
    key: str | None = None
    value: str = "to_json(struct(*))"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EachBatchSink(Sink):
    function: Callable[[DataFrame, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDeadLetters(Sink):
    """Rows of a source that do not decode, as dead letters. `view` is the source."""

    topic: str
    options: Mapping[str, Any] = field(default_factory=dict)


def start_options(position: Position) -> dict[str, str]:
    """Return the source's options for a starting position."""
    if isinstance(position, Mapping):
        return {"startingOffsets": _offsets_text("startingOffsets", position)}
    if isinstance(position, str) and position.startswith("group:"):
        return {"startingGroup": position.removeprefix("group:")}
    special = parse_position(position, default=EARLIEST)
    if special in (EARLIEST, LATEST):
        return {"startingOffsets": "earliest" if special == EARLIEST else "latest"}
    return {"startingTimestamp": str(special), "startingOffsetsByTimestampStrategy": "latest"}


def end_options(position: Position) -> dict[str, str]:
    """Return the source's options for where a bounded read ends."""
    if isinstance(position, Mapping):
        return {"endingOffsets": _offsets_text("endingOffsets", position)}
    if position in ("now", "latest"):
        return {}
    end = parse_position(position, default=LATEST)
    if end == EARLIEST:
        raise ConfigError("until: found 'earliest', wanted now, a time or offsets")
    return {"endingTimestamp": str(end)}


def _offsets_text(name: str, position: Mapping[TopicPartition, int]) -> str:
    try:
        text = json.dumps(to_json_dict(dict(position)))
    except (TypeError, AttributeError, ValueError):
        raise ConfigError(f"{name}: found {position!r:.200}, wanted offsets by TopicPartition") from None
    parse_offsets_option(name, text)
    return text
