"""`read` and `read_stream`: topics as DataFrames in one call, decoded inside the source.

What they add to plain `spark.read.format("ottla")`: decoding without a second trip between the JVM and Python, starting
offsets kept beside the checkpoint, and Spark's own connector instead of this one where you ask for it (`engine`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.errors import ConfigError
from ottla.spark.checkpoints.files import is_local
from ottla.spark.checkpoints.offsets import Offsets, to_json_dict
from ottla.spark.checkpoints.start_offsets import FILE_NAME, persisted_start
from ottla.spark.jvm.parallelism import session_parallelism
from ottla.spark.jvm.python_probe import explained
from ottla.spark.jvm.registration import register
from ottla.spark.options import DECODE_OPTION, WHERE_OPTION, source_options
from ottla.spark.reading.engine import Engine, jvm_options, takes_jvm
from ottla.spark.reading.filters import parse_where, row_filter, to_option
from ottla.spark.reading.subscription import resolve_start, subscribed_partitions
from ottla.spark.values.decoding import Decodable, decode
from ottla.spark.values.source_decoding import pack_recipes
from ottla.wire_client import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(
    spark: SparkSession,
    topic: str | Sequence[str] | None = None,
    *,
    bootstrap_servers: str,
    value: Decodable = None,
    key: Decodable = None,
    engine: Engine = "python",
    where: str | None = None,
    **options: Any,
) -> DataFrame:
    """Return a batch DataFrame of the topics' records. `options` are those of `format("ottla")`.

    `where` decides what is fetched at all: conditions on `topic`, `partition`, `offset` and `timestamp` as in SQL,
    joined by AND. A time is in quotes, as `startingTimestamp` takes it (`timestamp >= '-2h'`). Raises `ConfigError` for
    a condition that cannot be read, or on a column that the options leave out.
    """
    given = _options(topic, bootstrap_servers, options)
    conditions = () if where is None else parse_where(where)
    if conditions and not takes_jvm(engine, spark, given):
        given[WHERE_OPTION] = to_option(conditions)
    rows = _load(spark.read, spark, given, value=value, key=key, engine=engine)
    missing = sorted({each.column for each in conditions} - set(rows.columns))
    if missing:
        raise ConfigError(f"where: found {missing[0]}, which is not among the columns {', '.join(rows.columns)}")
    return rows.where(row_filter(conditions)) if conditions else rows


def read_stream(
    spark: SparkSession,
    topic: str | Sequence[str] | None = None,
    *,
    bootstrap_servers: str,
    checkpoint: str | None = None,
    value: Decodable = None,
    key: Decodable = None,
    engine: Engine = "python",
    **options: Any,
) -> DataFrame:
    """Return a streaming DataFrame. `checkpoint` is the query's checkpoint location: the starting offsets are kept
    there too, so that a restart before the first batch is committed starts where the first attempt did.

    On local disk the source keeps them when it starts. Elsewhere (`s3a://`, HDFS) this call does, by the session's file
    systems, and raises `ConfigError` when it cannot.
    """
    given = _options(topic, bootstrap_servers, options)
    if checkpoint is not None:
        location = given.setdefault("startingOffsetsFile", f"{checkpoint.rstrip('/')}/{FILE_NAME}")
        if not is_local(location) and not takes_jvm(engine, spark, given):
            given = _with_kept_start(given, location)
    return _load(spark.readStream, spark, given, value=value, key=key, engine=engine)


def _options(topic: str | Sequence[str] | None, bootstrap_servers: str, options: dict[str, Any]) -> dict[str, str]:
    given = {name: str(v).lower() if isinstance(v, bool) else str(v) for name, v in options.items()}
    given["kafka.bootstrap.servers"] = bootstrap_servers
    if topic is not None:
        given["subscribe"] = topic if isinstance(topic, str) else ",".join(topic)
    return given


def _with_kept_start(options: dict[str, str], location: str) -> dict[str, str]:
    """Return the options with the starting offsets that are kept at `location`, or are now."""
    asked = source_options(options, is_streaming=True)

    def resolve() -> Offsets:
        with Cluster(asked.wire) as cluster:
            return resolve_start(cluster, asked, subscribed_partitions(cluster, asked))

    offsets = persisted_start(location, resolve)
    rest = {name: value for name, value in options.items() if not name.lower().startswith("starting")}
    return rest | {"startingOffsets": json.dumps(to_json_dict(offsets))}


def _load(
    reader: Any, spark: SparkSession, options: dict[str, str], *, value: Decodable, key: Decodable, engine: Engine
) -> DataFrame:
    if takes_jvm(engine, spark, options):
        frame: DataFrame = reader.format("kafka").options(**jvm_options(options)).load()
        wants_decoding = value is not None or key is not None
        return decode(frame, value=value, key=key) if wants_decoding else frame
    parallelism = session_parallelism(spark)
    if parallelism is not None and "tasks" not in {name.lower() for name in options}:
        options = options | {"tasks": str(parallelism)}
    packed = pack_recipes(value=value, key=key)
    if packed is not None:
        options = options | {DECODE_OPTION: packed}
    register(spark)
    try:
        loaded: DataFrame = reader.format("ottla").options(**options).load()
    except Exception as error:
        told = explained(error, spark)
        if told is not None:
            raise told from error
        raise
    return loaded
