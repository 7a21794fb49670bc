"""Spark's own Kafka connector (`format("kafka")`), where its jar is on the class path: same call, same rows.

It runs inside the JVM and needs a jar of Spark's exact version; this package's source needs neither. `engine="auto"`
takes it where it is there and can do what is asked. Its client is Kafka's Java client, which calls passwords and
certificates by other names: they are translated (`_java_settings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from ottla.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Engine: TypeAlias = Literal["python", "jvm", "auto"]

_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_OURS = ("publishgroup", "startinggroup", "fairness", "columns")
_OURS_WITHOUT_EFFECT = ("tasks", "rowspertask", "startingoffsetsfile", "pausefile")

_LOGIN = "org.apache.kafka.common.security.{}LoginModule"
_RENAMED = {"sasl.mechanisms": "sasl.mechanism", "fetch.wait.max.ms": "fetch.max.wait.ms"}


def takes_jvm(engine: Engine, spark: SparkSession, options: Mapping[str, str]) -> bool:
    """Whether a read with these options is Spark's own connector's."""
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
        elif lower not in _OURS_WITHOUT_EFFECT:
            translated[name] = value
    # Ours shows committed records only, by default; theirs shows all.
    settings.setdefault("isolation.level", "read_committed")
    return translated | {f"kafka.{name}": value for name, value in _java_settings(settings).items()}


def _java_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings by the names that the Java client knows (KIP-651 for certificates in PEM)."""
    java = {_RENAMED.get(name, name): value for name, value in settings.items()}
    username, password = java.pop("sasl.username", None), java.pop("sasl.password", None)
    if username is not None and password is not None:
        mechanism = java.setdefault("sasl.mechanism", "PLAIN").upper()
        module = _LOGIN.format("plain.Plain" if mechanism == "PLAIN" else "scram.Scram")
        java["sasl.jaas.config"] = f"{module} required username={_quoted(username)} password={_quoted(password)};"
    if (authority := java.pop("ssl.ca.location", None)) is not None:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    if (authority := java.pop("ssl.ca.pem", None)) is not None:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    certificate, key = java.pop("ssl.certificate.location", None), java.pop("ssl.key.location", None)
    if certificate is not None:
        if key not in (None, certificate):
            raise ConfigError(
                "kafka.ssl.key.location: Spark's own connector wants certificate and key in one file; name the same"
                " file twice, or use engine='python'"
            )
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": certificate}
    if java.get("ssl.endpoint.identification.algorithm", "").lower() == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    if java.pop("enable.ssl.certificate.verification", "true").lower() == "false":
        raise ConfigError(
            "kafka.enable.ssl.certificate.verification: Spark's own connector cannot do without; use engine='python'"
        )
    return java


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
