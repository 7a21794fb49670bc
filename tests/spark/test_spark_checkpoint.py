"""Checkpoints by hand: what they say, other offsets, none at all. Files as Spark writes them; one query for real."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from command_output import document, rows

from ottla.cli import main
from ottla.errors import ConfigError
from ottla.records import TopicPartition
from ottla.spark.checkpoints.checkpoint import query_lock, read_checkpoint
from ottla.spark.checkpoints.checkpoint_edit import reset, set_offsets

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


def write_batch(folder, number, offsets, *, is_committed, more=()):
    for name, lines in {
        "offsets": ["v1", json.dumps({"batchWatermarkMs": 1_700_000_000_000, "conf": {}}), json.dumps(offsets), *more],
        "commits": ["v1", "{}"],
    }.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        if name == "offsets" or is_committed:
            (folder / name / str(number)).write_text("\n".join(lines))
            (folder / name / f".{number}.crc").write_bytes(b"crc")


@pytest.fixture
def folder(tmp_path):
    """Batches 0 and 1 are committed, batch 2 is planned; another source beside ours; topic ids kept."""
    path = tmp_path / "query"
    path.mkdir()
    (path / "metadata").write_text('{"id":"5c1"}')
    ids = {"@topic-ids": {"orders": "AAAA"}}
    write_batch(path, 0, {"orders": {"0": 5, "1": 1}} | ids, is_committed=True, more=["17"])
    write_batch(path, 1, {"orders": {"0": 10, "1": 2}} | ids, is_committed=True, more=["18"])
    write_batch(path, 2, {"orders": {"0": 20, "1": 3}} | ids, is_committed=False, more=["-"])
    return path


def run(*arguments, answer=None):
    return CliRunner().invoke(main, ["pipeline", "checkpoint", *map(str, arguments)], input=answer)


def test_a_checkpoint_says_what_is_committed_and_what_will_run_again(folder):
    found = read_checkpoint(str(folder))
    assert found.position == {ONE: 10, TWO: 2}
    assert (found.committed.number, found.unfinished.number, found.has_state) == (1, 2, False)
    shown = document(run("show", folder, "--format", "json"), "ottla.pipeline.checkpoint.show/1")
    assert (shown["query"], shown["committed_batch"], shown["unfinished_batch"]) == ("5c1", 1, 2)
    assert (shown["watermark"], shown["has_state"]) == ("2023-11-14 22:13:20.000+00:00", False)
    first = {"topic": "orders", "partition": 0, "position": 10, "planned": 20}
    assert shown["partitions"] == [first, {**first, "partition": 1, "position": 2, "planned": 3}]
    table = run("show", folder, "--format", "table")
    assert "committed batch   1" in table.stdout
    assert "orders          0        10       20" in table.stdout
    assert "batch 2 is planned and not committed" in table.stderr
    assert rows(run("show", folder)) == [["orders", "0", "10", "20"], ["orders", "1", "2", "3"]]


def test_new_offsets_keep_other_sources_and_partitions_and_forget_the_planned_batch(folder):
    backup = set_offsets(str(folder), {ONE: 7})
    assert read_checkpoint(str(folder)).position == {ONE: 7, TWO: 2}
    assert (folder / "offsets" / "1").read_text().splitlines()[2:] == [
        '{"orders": {"0": 7, "1": 2}, "@topic-ids": {"orders": "AAAA"}}',
        "18",
    ]
    left = {f.name for f in (folder / "offsets").iterdir()}
    assert left == {"0", ".0.crc", "1"}  # no stale checksum, no planned batch
    assert read_checkpoint(str(backup)).position == {ONE: 10, TWO: 2}
    assert read_checkpoint(str(backup)).unfinished.number == 2


def test_what_cannot_be_meant_is_refused(folder):
    with pytest.raises(ConfigError, match="payments-0 is not read by this query; it reads orders-0, orders-1"):
        set_offsets(str(folder), {TopicPartition("payments", 0): 1})
    with pytest.raises(ConfigError, match="wanted offsets from 0 on"):
        set_offsets(str(folder), {ONE: -1})
    (folder / "state" / "0").mkdir(parents=True)
    with pytest.raises(ConfigError, match="the query keeps state"):
        set_offsets(str(folder), {ONE: 1})
    set_offsets(str(folder), {ONE: 1}, keep_state=True)
    with pytest.raises(ConfigError, match="no checkpoint of a Spark query"):
        read_checkpoint(str(folder.parent / "elsewhere"))


def test_a_start_that_was_fixed_and_never_committed_can_be_moved(tmp_path):
    (tmp_path / "ottla-starting-offsets-orders.json").write_text('{"orders": {"0": 4, "1": 4}}')
    write_batch(tmp_path, 0, {"orders": {"0": 9, "1": 9}}, is_committed=False)
    set_offsets(str(tmp_path), {TWO: 2})
    found = read_checkpoint(str(tmp_path))
    assert (found.position, found.planned) == ({ONE: 4, TWO: 2}, None)


def test_the_command_line_shows_the_change_and_asks(folder):
    asked = run("set-offsets", folder, "--to", "3", "--topic", "orders", "--partition", "1", answer="n\n")
    assert asked.exit_code == 1
    assert "orders-1: 2 -> 3" in asked.output
    assert read_checkpoint(str(folder)).position[TWO] == 2
    done = run("set-offsets", folder, "--to", "3", "--topic", "orders", "--partition", "1", "--yes")
    assert "what was there is in" in done.output
    assert read_checkpoint(str(folder)).position == {ONE: 10, TWO: 3}
    assert "give --bootstrap-servers" in run("set-offsets", folder, "--to", "latest", "--yes").output


def test_a_position_is_looked_up_in_the_cluster(folder, kafka, make_topic):
    topic = make_topic()
    kafka.produce(topic, ["x"] * 12)
    for number in (0, 1, 2):
        write_batch(folder, number, {topic: {"0": number}}, is_committed=number < 2)
    run("set-offsets", folder, "--to", "latest", "--bootstrap-servers", kafka.bootstrap_servers, "--yes")
    assert read_checkpoint(str(folder)).position == {TopicPartition(topic, 0): 12}


def test_reset_moves_the_checkpoint_away_and_asks_too(folder):
    assert run("reset", folder, answer="n\n").exit_code == 1
    assert (folder / "offsets").is_dir()
    assert "reset; what was there is in" in run("reset", folder, "--yes").output
    assert not folder.exists()


def test_nothing_is_changed_under_a_running_query(folder):
    with query_lock(str(folder)):
        for change in (lambda: set_offsets(str(folder), {ONE: 1}), lambda: reset(str(folder))):
            with pytest.raises(ConfigError, match="a query is running"):
                change()
    assert read_checkpoint(str(folder)).position[ONE] == 10


@pytest.mark.spark
def test_a_query_goes_on_at_the_offsets_that_were_set(topics, kafka, make_topic, tmp_path):
    topic = make_topic(partitions=2)
    for p in range(2):
        kafka.produce(topic, [f"{p}-{i}" for i in range(4)], partition=p)
    frame = topics.stream(topic).selectExpr("CAST(value AS STRING) AS text")
    assert len(topics.collect(frame)[0][0]) == 8
    set_offsets(str(tmp_path / "checkpoint"), {TopicPartition(topic, 1): 2})
    batches, _ = topics.collect(frame)
    assert [[r.text for r in rows] for rows in batches] == [["1-2", "1-3"]]
