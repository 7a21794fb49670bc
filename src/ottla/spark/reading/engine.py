"""Spark's own Kafka connector (`format("kafka")`), where its jar is on the class path: same call, same rows.

It runs inside the JVM and needs a jar of Spark's exact version; this package's source needs neither. `engine="auto"`
takes it where it is there and can do what is asked. Its client is Kafka's Java client, which calls passwords and
certificates by other names (`java_names.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from ottla.config.java_names import to_java
from ottla.errors import ConfigError
from ottla.spark.checkpoints.offsets import parse_assign_option, parse_offsets_option, parse_timestamps_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Engine: TypeAlias = Literal["python", "jvm", "auto"]

_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_OURS = ("publishgroup", "startinggroup", "fairness", "columns", "maxbytespertrigger")
_TIMESTAMPS = {"startingtimestamp": "startingTimestamp", "endingtimestamp": "endingTimestamp"}
_OURS_WITHOUT_EFFECT = ("tasks", "rowspertask", "startingoffsetsfile", "pausefile")


def takes_jvm(engine: Engine, spark: SparkSession, options: Mapping[str, str]) -> bool:
    """Return whether Spark's own connector takes a read with these options."""
    if engine not in ("python", "jvm", "auto"):
        raise ConfigError(f"engine: found {engine!r}, wanted python, jvm or auto")
    if engine != "auto":
        return engine == "jvm"
    try:
        jvm_options(options)
    except ConfigError:
        return False
    return jvm_source_is_there(spark)


def jvm_source_is_there(spark: SparkSession) -> bool:
    """Return whether the connector's class can be loaded. Spark Connect cannot tell: then False."""
    try:
        jvm = spark.sparkContext._jvm
    except Exception:
        return False
    if jvm is None:
        return False
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_PROVIDER)
    except Exception:
        return False
    return True


def jvm_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the same options for Spark's connector. What it cannot do is refused; what only tunes ours is left out."""
    from ottla.spark.options import timestamp_option  # with pyarrow

    translated: dict[str, str] = {}
    settings: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower in _OURS:
            raise ConfigError(f"{name}: Spark's own connector has no such option; use engine='python'")
        if lower in ("ondataloss", "on_data_loss"):
            if value not in ("fail", "earliest"):
                raise ConfigError(f"{name}: Spark's own connector knows fail and earliest; use engine='python'")
            translated["failOnDataLoss"] = "true" if value == "fail" else "false"
        elif lower.startswith("kafka."):
            settings[lower.removeprefix("kafka.")] = value
        elif lower in _TIMESTAMPS:
            translated[name] = str(timestamp_option(_TIMESTAMPS[lower], value))
        elif lower not in _OURS_WITHOUT_EFFECT:
            _check(lower, value)
            translated[name] = value
    # Ours shows committed records only, by default; theirs shows all.
    settings.setdefault("isolation.level", "read_committed")
    return translated | {f"kafka.{name}": value for name, value in to_java(settings).items()}


def _check(name: str, text: str) -> None:
    """Raise `ConfigError` for positions that the connector would read as others: 1.5 as 1, a partition twice."""
    if name in ("startingoffsets", "endingoffsets"):
        if text.strip().lower() not in ("earliest", "latest"):
            parse_offsets_option(name, text)
    elif name in ("startingoffsetsbytimestamp", "endingoffsetsbytimestamp"):
        parse_timestamps_option(name, text)
    elif name == "assign":
        parse_assign_option(text)
