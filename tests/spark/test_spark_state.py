"""State of queries: RocksDB for new checkpoints, and for old ones what they began with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ON_THE_HEAP = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def providers(checkpoint: Path) -> list[str]:
    """Return the last part of the provider's name of each batch, oldest first."""
    log = sorted(
        (file for file in (checkpoint / "offsets").iterdir() if file.name.isdigit()), key=lambda f: int(f.name)
    )
    found = [json.loads(file.read_text().splitlines()[1])["conf"][PROVIDER] for file in log]
    return [name.rpartition(".")[2] for name in found]


def test_a_new_query_has_its_state_in_rocksdb_and_an_old_one_where_it_began(spark, topics, kafka, make_topic, tmp_path):
    topic = make_topic()
    kafka.produce(topic, ["a", "b", "a"])
    unique = topics.stream(topic).select("value").dropDuplicates(["value"])
    assert spark.conf.get(PROVIDER).endswith("RocksDBStateStoreProvider")
    assert [len(rows) for rows in topics.collect(unique, checkpoint="new")[0]] == [2]
    assert set(providers(tmp_path / "new")) == {"RocksDBStateStoreProvider"}

    default = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, ON_THE_HEAP)
    try:
        topics.collect(unique, checkpoint="old")
    finally:
        spark.conf.set(PROVIDER, default)
    kafka.produce(topic, ["a", "c"])
    assert [row.value for rows in topics.collect(unique, checkpoint="old")[0] for row in rows] == [b"c"]
    assert set(providers(tmp_path / "old")) == {"HDFSBackedStateStoreProvider"}
