"""The options of `format("ottla")`: names and meaning of Spark's own `kafka` format, and Ottla's beside them.

Spark hands options over as text, with names in lower case. A name that is not known is refused (Spark's connector
ignores it, so that a misspelt `maxOffsetPerTrigger` has no effect); options of Spark itself are let through.
"""

from __future__ import annotations

import difflib
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.amounts import DURATIONS, SIZES, TIMES, parse_duration_ms, parse_size, parse_time_ms
from ottla.columnar.arrays.schema import ALL_COLUMNS, FIELDS, SPARK_COLUMNS
from ottla.config.java_names import from_java
from ottla.errors import ConfigError, InputError
from ottla.patterns import Pattern
from ottla.records import TopicPartition
from ottla.spark.checkpoints.offsets import (
    Offsets,
    parse_assign_option,
    parse_offsets_option,
    parse_timestamps_option,
)
from ottla.spark.data_loss import DEFAULT_LOSS_POLICY, LossPolicy, parse_loss_policy
from ottla.spark.planner import ROWS_PER_TASK, Fairness, TaskSizing
from ottla.wire_client import EARLIEST, LATEST, OnDataLoss, WireSettings, wire_settings
from ottla.wire_client.producing.open_transactions import DEFAULT_TIMEOUT_MS

DECODE_OPTION = "ottla.decode"
"""Pickled serdes, put there by `ottla.spark.read` and `read_stream`; see `inside.py`."""
WHERE_OPTION = "ottla.where"
"""Conditions of a batch read, put there by `ottla.spark.read`; see `filters.py`."""

KNOWN = {
    name.lower(): name
    for name in [
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "startingOffsetsByTimestamp",
        "startingTimestamp",
        "startingOffsetsByTimestampStrategy",
        "endingOffsets",
        "endingOffsetsByTimestamp",
        "endingTimestamp",
        "failOnDataLoss",
        "maxOffsetsPerTrigger",
        "maxBytesPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "minPartitions",
        "maxRecordsPerPartition",
        "includeHeaders",
        "topic",
        "onDataLoss",
        "on_data_loss",
        "fairness",
        "columns",
        "tasks",
        "rowsPerTask",
        "publishGroup",
        "startingGroup",
        "startingOffsetsFile",
        "pauseFile",
        "delivery",
        "transactionalIdPrefix",
        "transactionTimeout",
        DECODE_OPTION,
        WHERE_OPTION,
    ]
}
# Options of Spark's connector that tune parts this one does not have, and what Spark itself passes to every source.
UNUSED = frozenset(
    name.lower()
    for name in [
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "groupIdPrefix",
        "checkpointLocation",
        "path",
        "paths",
        "queryName",
        "outputMode",
        "header",
        "inferSchema",
        "mode",
    ]
)
FORBIDDEN = {
    "auto.offset.reset": "use startingOffsets",
    "key.deserializer": "keys and values are bytes; use ottla.spark.decode",
    "value.deserializer": "keys and values are bytes; use ottla.spark.decode",
    "key.serializer": "keys and values are bytes or text; encode them first",
    "value.serializer": "keys and values are bytes or text; encode them first",
    "enable.auto.commit": "Spark's checkpoint has the offsets; publishGroup shows them to lag tools",
    "interceptor.classes": "there is no client to intercept",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where reading starts or ends: a time for all, times or offsets by partition, a word, or a group's offsets."""

    timestamp_ms: int | None = None
    timestamps_ms: Offsets | None = None
    offsets: Offsets | None = None
    special: int = EARLIEST
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a read was asked to do."""

    wire: WireSettings
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    start: Start
    end: Start
    is_latest_if_too_late: bool = False  # startingOffsetsByTimestampStrategy=latest
    on_data_loss: LossPolicy = DEFAULT_LOSS_POLICY
    max_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    fairness: Fairness = Fairness.MAXMIN
    columns: tuple[str, ...] = SPARK_COLUMNS
    tasks: TaskSizing = field(default_factory=TaskSizing)
    publish_group: str | None = None
    starting_offsets_file: str | None = None
    pause_file: str | None = None
    decode: str | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What a write was asked to do."""

    wire: WireSettings
    topic: str | None
    is_exactly_once: bool = False
    transactional_id_prefix: str = "ottla"
    transaction_timeout_ms: int = DEFAULT_TIMEOUT_MS
    checkpoint: str | None = None


def source_options(options: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
    """Read and check the options of `spark.read` (batch) or `spark.readStream` (streaming)."""
    given = _checked(options)
    topics, pattern, assigned = _subscription(given)
    columns = _columns(given)
    return SourceOptions(
        wire=_wire(options),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        start=_start(given, default=LATEST if is_streaming else EARLIEST, is_streaming=is_streaming),
        end=_end(given, is_streaming=is_streaming),
        is_latest_if_too_late=_word(given, "startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
        == "latest",
        on_data_loss=_on_data_loss(given),
        max_per_trigger=_count(given, "maxOffsetsPerTrigger"),
        max_bytes_per_trigger=_bytes(given, "maxBytesPerTrigger"),
        min_per_trigger=_count(given, "minOffsetsPerTrigger"),
        max_trigger_delay_ms=_duration_ms(given, "maxTriggerDelay", 15 * 60_000),
        fairness=Fairness(_word(given, "fairness", tuple(f.value for f in Fairness), Fairness.MAXMIN.value)),
        columns=columns,
        tasks=TaskSizing(
            parallelism=_count(given, "tasks") or _cores(),
            rows_per_task=_count(given, "rowsPerTask") or ROWS_PER_TASK,
            min_tasks=_count(given, "minPartitions") or 1,
            max_rows_per_task=_count(given, "maxRecordsPerPartition"),
        ),
        publish_group=given.get("publishgroup"),
        starting_offsets_file=given.get("startingoffsetsfile"),
        pause_file=given.get("pausefile"),
        decode=given.get(DECODE_OPTION),
        where=given.get(WHERE_OPTION),
    )


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Read and check the options of `df.write` and `df.writeStream`."""
    given = _checked(options)
    delivery = _word(given, "delivery", ("at-least-once", "exactly-once"), "at-least-once")
    return SinkOptions(
        wire=_wire(options),
        topic=given.get("topic"),
        is_exactly_once=delivery == "exactly-once",
        transactional_id_prefix=given.get("transactionalidprefix", "ottla"),
        transaction_timeout_ms=_duration_ms(given, "transactionTimeout", DEFAULT_TIMEOUT_MS),
        checkpoint=given.get("checkpointlocation"),
    )


def source_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns a read will have; all that `schema()` needs to know."""
    return _columns(_checked(options))


def _checked(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by lower-case name, unknown ones refused."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name in KNOWN or name in UNUSED or name.startswith(("kafka.", "spark.")):
            continue
        near = difflib.get_close_matches(name, [*KNOWN, "kafka.bootstrap.servers"], n=1)
        hint = f"; did you mean {KNOWN.get(near[0], near[0])}?" if near else ""
        if name == "where":
            hint = "; it is an argument of ottla.spark.read"
        raise ConfigError(f"{name}: the format ottla has no such option{hint}")
    return given


def _wire(options: Mapping[str, str]) -> WireSettings:
    settings = {name[len("kafka.") :].lower(): v for name, v in options.items() if name.lower().startswith("kafka.")}
    for name, remedy in FORBIDDEN.items():
        if name in settings:
            raise ConfigError(f"kafka.{name} cannot be set here: {remedy}")
    if not settings.get("bootstrap.servers"):
        raise ConfigError("kafka.bootstrap.servers is missing: give host:port of at least one broker")
    settings.setdefault("client.id", "ottla-spark")
    return wire_settings(from_java(settings, prefix="kafka."))


def _subscription(given: Mapping[str, str]) -> tuple[tuple[str, ...], str | None, tuple[TopicPartition, ...]]:
    chosen = [KNOWN[name] for name in ("subscribe", "subscribepattern", "assign") if name in given]
    if len(chosen) != 1:
        found = " and ".join(chosen) if chosen else "none of them"
        raise ConfigError(f"give exactly one of subscribe, subscribePattern and assign; found {found}")
    if chosen == ["subscribe"]:
        topics = tuple(dict.fromkeys(t for part in given["subscribe"].split(",") if (t := part.strip())))
        if not topics:
            raise ConfigError(f"subscribe: found {given['subscribe']!r}, wanted topic names separated by commas")
        return topics, None, ()
    if chosen == ["subscribePattern"]:
        if not given["subscribepattern"].strip():
            raise ConfigError("subscribePattern: found nothing, wanted a regular expression of topic names")
        try:
            Pattern(given["subscribepattern"], name="subscribePattern")
        except InputError as error:
            raise ConfigError(str(error)) from None
        return (), given["subscribepattern"], ()
    return (), None, tuple(parse_assign_option(given["assign"]))


def timestamp_option(name: str, text: str) -> int:
    """Return the milliseconds of `startingTimestamp` and `endingTimestamp`: a number as in Spark's connector, or a
    time.

    A time before 1970 is 0; a negative number is refused, for Kafka gives -1 and -2 another meaning.
    """
    stripped = text.strip()
    if _WHOLE.fullmatch(stripped):
        return int(stripped)
    found = parse_time_ms(stripped, now_ms=time.time_ns() // 1_000_000)
    if found is None:
        raise ConfigError(f"{name}: found {text!r}, wanted milliseconds since 1970, {TIMES}")
    return max(0, found)


def _start(given: Mapping[str, str], *, default: int, is_streaming: bool) -> Start:
    """Return where to start, by Kafka's precedence: startingTimestamp, then startingOffsetsByTimestamp, then
    startingOffsets (SPARK-28367)."""
    if "startinggroup" in given:
        if not given["startinggroup"].strip():
            raise ConfigError(f"startingGroup: found {given['startinggroup']!r}, wanted the name of a group")
        rest = LATEST if given.get("startingoffsets", "").strip().lower() == "latest" else EARLIEST
        return Start(group=given["startinggroup"], special=rest)
    if "startingtimestamp" in given:
        return Start(timestamp_ms=timestamp_option("startingTimestamp", given["startingtimestamp"]), special=default)
    if "startingoffsetsbytimestamp" in given:
        stamps = parse_timestamps_option("startingOffsetsByTimestamp", given["startingoffsetsbytimestamp"])
        return Start(timestamps_ms=stamps, special=default)
    text = given.get("startingoffsets")
    if text is None:
        return Start(special=default)
    if text.strip().lower() == "latest" and not is_streaming:
        raise ConfigError("startingOffsets: latest leaves a batch nothing to read; use earliest, offsets or a time")
    return _special_or_offsets("startingOffsets", text, missing=EARLIEST)


def _end(given: Mapping[str, str], *, is_streaming: bool) -> Start:
    named = [n for n in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets") if n.lower() in given]
    if is_streaming and named:
        raise ConfigError(f"{named[0]}: a stream has no end; use it with spark.read, or trigger(availableNow=True)")
    if "endingtimestamp" in given:
        return Start(timestamp_ms=timestamp_option("endingTimestamp", given["endingtimestamp"]), special=LATEST)
    if "endingoffsetsbytimestamp" in given:
        stamps = parse_timestamps_option("endingOffsetsByTimestamp", given["endingoffsetsbytimestamp"])
        return Start(timestamps_ms=stamps, special=LATEST)
    text = given.get("endingoffsets")
    if text is None:
        return Start(special=LATEST)
    end = _special_or_offsets("endingOffsets", text, missing=LATEST)
    if (end.offsets is not None and EARLIEST in end.offsets.values()) or text.strip().lower() == "earliest":
        raise ConfigError("endingOffsets: -2 (earliest) is no end; use latest or offsets")
    return end


def _special_or_offsets(name: str, text: str, *, missing: int) -> Start:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Start(special=EARLIEST if word == "earliest" else LATEST)
    return Start(offsets=parse_offsets_option(name, text), special=missing)


def _on_data_loss(given: Mapping[str, str]) -> LossPolicy:
    default = OnDataLoss.FAIL if _flag(given, "failOnDataLoss", True) else OnDataLoss.EARLIEST
    text = given.get("ondataloss", given.get("on_data_loss"))
    return LossPolicy(default=default) if text is None else parse_loss_policy(text, default=default)


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    text = given.get("columns")
    if text is None:
        return ALL_COLUMNS if _flag(given, "includeHeaders", False) else SPARK_COLUMNS
    by_lower = {name.lower(): name for name in FIELDS}
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in wanted if name.lower() not in by_lower]
    if unknown or not wanted:
        raise ConfigError(f"columns: found {text!r}, wanted some of {', '.join(FIELDS)}")
    return tuple(dict.fromkeys(by_lower[name.lower()] for name in wanted))


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    raise ConfigError(f"{name}: found {text!r}, wanted true or false")


_WHOLE = re.compile("[0-9]{1,18}")


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if _WHOLE.fullmatch(text.strip()) and int(text) > 0:
        return int(text)
    raise ConfigError(f"{name}: found {text!r}, wanted a whole number above zero")


def _bytes(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower(), "").strip()
    if not text and name.lower() not in given:
        return None
    found = int(text) if _WHOLE.fullmatch(text) else parse_size(text)
    if not found:
        raise ConfigError(f"{name}: found {text!r}, wanted a size above zero: bytes, or {SIZES}")
    return found


def _word(given: Mapping[str, str], name: str, words: tuple[str, ...], default: str) -> str:
    text = given.get(name.lower(), default).strip().lower()
    if text not in words:
        raise ConfigError(f"{name}: found {text!r}, wanted {' or '.join(words)}")
    return text


def _duration_ms(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    found = parse_duration_ms(f"{text} ms" if _WHOLE.fullmatch(text.strip()) else text)
    if found is None:
        raise ConfigError(f"{name}: found {text!r}, wanted a time as {DURATIONS}; a number alone is milliseconds")
    return found


def _cores() -> int:
    """Return how many tasks run at once, as far as a planner process knows: its machine's cores, or the session's
    number.

    `ottla.spark.session` tells it; on a cluster with a session of your own, set the option `tasks`.
    """
    configured = os.environ.get("OTTLA_SPARK_TASKS", "")
    if configured.isdigit() and int(configured) > 0:
        return int(configured)
    affinity: Any = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
