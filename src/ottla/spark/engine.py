"""Spark's own Kafka connector (`format("kafka")`), where its jar is on the class path: same call, same rows.

It runs inside the JVM and needs a jar of Spark's exact version; this package's source needs neither. `engine="auto"`
takes whichever is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_OURS = ("publishgroup", "startinggroup", "fairness", "columns")
_OURS_WITHOUT_EFFECT = ("tasks", "rowspertask", "startingoffsetsfile", "pausefile")


def jvm_source_is_there(spark: SparkSession) -> bool:
    """Whether the connector's class can be loaded. Through Spark Connect that cannot be asked: no."""
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
    """The same options for Spark's connector. What it cannot do is refused; what only tunes ours is left out."""
    translated: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower in _OURS:
            raise ConfigError(f"{name}: Spark's own connector has no such option; use engine='python'")
        if lower in ("ondataloss", "on_data_loss"):
            if value not in ("fail", "earliest"):
                raise ConfigError(f"{name}: Spark's own connector knows fail and earliest; use engine='python'")
            translated["failOnDataLoss"] = "true" if value == "fail" else "false"
        elif lower not in _OURS_WITHOUT_EFFECT:
            translated[name] = value
    # Ours shows committed records only, by default; theirs shows all.
    if not any(name.lower() == "kafka.isolation.level" for name in translated):
        translated["kafka.isolation.level"] = "read_committed"
    return translated
