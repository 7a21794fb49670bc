"""The Python in the pages about Spark and Arrow runs, page by page, from top to bottom."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from ottla.errors import ConfigError

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def run_page(page, bootstrap_servers):
    lines, is_code = [], False
    for line in (HOW_TO / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            is_code = line == "```python"
            lines.append("")
        else:
            lines.append(line if is_code else "")
    program = "\n".join(lines).replace('"localhost:9092"', repr(bootstrap_servers))
    assert bootstrap_servers in program
    # As a script: what it defines is in no module that workers could import.
    module = types.ModuleType("__main__")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "__main__", module)
        exec(compile(program, str(HOW_TO / page), "exec", dont_inherit=True), vars(module))


def test_the_columnar_page_is_true(kafka):
    run_page("columnar.md", kafka.bootstrap_servers)


def test_every_setting_of_the_columnar_clients_is_in_their_page():
    from ottla.wire_client.client_settings import _NAMES

    page = (HOW_TO / "columnar.md").read_text(encoding="utf-8")
    librdkafkas_words = {"sasl.mechanisms", "fetch.wait.max.ms", "message.max.bytes"}
    assert {name for name in _NAMES if f"`{name}`" not in page} == librdkafkas_words


@pytest.mark.spark
@pytest.mark.parametrize("page", ["spark.md", "spark-on-a-cluster.md", "pipeline.md", "spark-for-kafka-streams.md"])
def test_the_pages_about_spark_are_true(page, make_cluster, spark):
    # A Kafka of its own: the pages count what is in their topics, whose names other tests use too. Spark gives the
    # Python process of a stream ten seconds to start, and nothing changes that: on a busy machine, once more.
    from pyspark.errors import StreamingQueryException

    for attempt in range(3):
        try:
            run_page(page, make_cluster().bootstrap_servers)
        except StreamingQueryException as error:
            if attempt == 2 or "Python worker failed to connect back" not in str(error):
                raise
        else:
            return


# Spark's documentation of its `kafka` format: each option, with a value that a read or a write may have.
OFFSETS, TIMES = '{"orders": {"0": 3}}', '{"orders": {"0": 1700000000000}}'
SPARKS_SOURCE = {
    "subscribe": "orders",
    "subscribePattern": "orders.*",
    "assign": '{"orders": [0]}',
    "startingOffsets": OFFSETS,
    "startingOffsetsByTimestamp": TIMES,
    "startingTimestamp": "1700000000000",
    "startingOffsetsByTimestampStrategy": "latest",
    "endingOffsets": OFFSETS,
    "endingOffsetsByTimestamp": TIMES,
    "endingTimestamp": "1700000000000",
    "failOnDataLoss": "false",
    "kafkaConsumer.pollTimeoutMs": "120000",
    "fetchOffset.numRetries": "3",
    "fetchOffset.retryIntervalMs": "10",
    "maxOffsetsPerTrigger": "1000",
    "minOffsetsPerTrigger": "10",
    "maxTriggerDelay": "15m",
    "minPartitions": "8",
    "maxRecordsPerPartition": "100",
    "groupIdPrefix": "spark-kafka-source",
    "kafka.group.id": "reports",
    "includeHeaders": "true",
}
SPARKS_SINK = {"topic": "orders", "includeHeaders": "true"}
REFUSED_BY_BOTH = ["auto.offset.reset", "enable.auto.commit", "interceptor.classes"]
REFUSED_BY_BOTH += [f"{part}.{kind}" for part in ("key", "value") for kind in ("serializer", "deserializer")]


def test_every_option_of_sparks_connector_is_taken_or_refused_as_there_and_in_the_page():
    from ottla.spark.options import FORBIDDEN, sink_options, source_options

    page = (HOW_TO / "spark.md").read_text(encoding="utf-8")
    broker = {"kafka.bootstrap.servers": "localhost:9092"}
    for name, value in SPARKS_SOURCE.items():
        chooses_topics = name in ("subscribe", "subscribePattern", "assign")
        source_options(broker | ({} if chooses_topics else {"subscribe": "orders"}) | {name: value}, is_streaming=False)
        assert f"`{name}`" in page, name
    for name, value in SPARKS_SINK.items():
        sink_options(broker | {name: value})
        assert f"`{name}`" in page, name
    assert sorted(FORBIDDEN) == sorted(REFUSED_BY_BOTH)
    for name in REFUSED_BY_BOTH:
        with pytest.raises(ConfigError, match=f"kafka.{name} cannot be set here"):
            source_options(broker | {"subscribe": "orders", f"kafka.{name}": "x"}, is_streaming=True)
        assert f"`kafka.{name}`" in page, name


def test_every_option_is_in_the_table_of_the_page():
    from ottla.spark.options import DECODE_OPTION, KNOWN, WHERE_OPTION

    page = (HOW_TO / "spark.md").read_text(encoding="utf-8")
    undocumented = [name for name in KNOWN.values() if f"`{name}`" not in page]
    assert undocumented == ["on_data_loss", DECODE_OPTION, WHERE_OPTION]  # an alias, and two not written by hand
