"""Declaring a pipeline: mistakes are errors at once, by name; looking at one needs no Java."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from command_output import document
from metric_values import collected_metrics

from ottla.cli import main
from ottla.columnar import LATEST, Cluster, wire_settings
from ottla.errors import ConfigError
from ottla.records import TopicPartition
from ottla.serdes import Json
from ottla.spark import NotCaughtUp, Pipeline, Running
from ottla.spark.options import source_options
from ottla.spark.pipeline import progress as progress_of_queries
from ottla.spark.pipeline.launch import _run, sinks_to_run
from ottla.spark.pipeline.parts import end_options, start_options
from ottla.spark.pipeline.progress import metrics_of, report_progress
from ottla.spark.pipeline.starts import Starts
from ottla.spark.reading.subscription import resolve_start
from ottla.telemetry import Counters
from ottla.wire_client import commit_group_offsets

P0 = TopicPartition("orders", 0)


@pytest.fixture
def pipeline(kafka, tmp_path):
    return Pipeline("p", bootstrap_servers=kafka.bootstrap_servers, checkpoint=str(tmp_path))


def test_names_are_checked_as_they_are_declared(pipeline):
    pipeline.read_topic("events")
    with pytest.raises(ConfigError, match="there is a events already"):
        pipeline.read_topic("events")
    with pytest.raises(ConfigError, match="sink events: output_mode: found 'update', wanted 'append'"):
        pipeline.write_topic("events", "out", output_mode="update")
    with pytest.raises(ConfigError, match="'late-events': wanted a name of letters"):
        pipeline.read_topic("late-events")
    with pytest.raises(ConfigError, match="late: evnts is not declared; declared are events"):

        @pipeline.view
        def late(evnts):
            return evnts

    with pytest.raises(ConfigError, match="the SQL names none of events"):
        pipeline.sql("none", "SELECT 1")
    with pytest.raises(ConfigError, match="sink totals: totals is not declared"):
        pipeline.write_parquet("totals", "/tmp/x")
    pipeline.write_parquet("events", "/tmp/x")
    with pytest.raises(ConfigError, match="there is a sink events already; give this one another name"):
        pipeline.write_topic("events", "copy")


def test_a_sink_without_a_stream_and_a_dedup_without_a_watermark_are_refused(pipeline):
    pipeline.read_table("shops")
    with pytest.raises(ConfigError, match="reads no stream"):
        pipeline.write_parquet("shops", "/tmp/x")
    with pytest.raises(ConfigError, match="needs a watermark"):
        pipeline.read_topic("sales", unique=["id"])
    with pytest.raises(ConfigError, match="no stream is declared"):
        pipeline.lag()


def test_the_version_is_part_of_every_place(pipeline):
    pipeline.dead_letters = "dead"
    pipeline.read_topic("events", value=Json(dict[str, int]))
    pipeline.write_parquet("events", "/lake/{version}/events")
    again = pipeline.at(version="v2")
    assert again.checkpoint_of("events").endswith("/p/v2/events")
    assert again.in_version("/lake/{version}/events") == "/lake/v2/events"
    assert again.group_of("events") == "p.v2.events"
    # A dead letter is written once, whatever version runs.
    assert again.checkpoint_of("events_dead_letters") == pipeline.checkpoint_of("events_dead_letters")
    assert pipeline.version == "v1"


def test_a_missing_address_says_where_to_give_it(tmp_path, monkeypatch):
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS", raising=False)
    pipeline = Pipeline("p", checkpoint=str(tmp_path))
    with pytest.raises(ConfigError, match="set OTTLA_BOOTSTRAP_SERVERS"):
        _ = pipeline.bootstrap_servers
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "there:9092")
    assert pipeline.bootstrap_servers == "there:9092"


def test_the_dry_run_shows_ranges_and_tasks_by_the_budget(pipeline, kafka, make_topic):
    topic = make_topic(partitions=2)
    kafka.produce(topic, ["x"] * 70, partition=0)
    kafka.produce(topic, ["x"] * 10, partition=1)
    pipeline.read_topic("events", topic, maxOffsetsPerTrigger=40, tasks=2, rowsPerTask=20)
    pipeline.write_parquet("events", "/tmp/x")
    (read,) = pipeline.plan().reads
    assert (read.rows, read.waiting) == (40, 80)
    assert [[(r.partition, r.start, r.end) for r in task] for task in read.tasks] == [
        [(0, 0, 20)],
        [(0, 20, 30), (1, 0, 10)],
    ]
    assert f"task 0: 20 records: {topic}-0 [0, 20)" in str(pipeline.plan())
    assert [(row.partition.partition, row.records) for row in pipeline.lag()] == [(0, 70), (1, 10)]


def test_the_dry_run_shows_a_batch_in_flight_as_it_was_planned(pipeline, kafka, make_topic):
    """It is repeated by its own end and tasks, whatever the budget and the parallelism are now."""
    topic = make_topic(partitions=1)
    kafka.produce(topic, ["x"] * 80, partition=0)
    pipeline.read_topic("events", topic, maxOffsetsPerTrigger=40, tasks=2, rowsPerTask=1)
    pipeline.write_parquet("events", "/tmp/x")
    log = Path(pipeline.checkpoint_of("events"))
    for folder, number, line in (
        ("offsets", 0, {topic: {"0": 10}, "@tasks": 2}),
        ("offsets", 1, {topic: {"0": 40}, "@tasks": 3}),
        ("commits", 0, {}),
    ):
        (log / folder).mkdir(parents=True, exist_ok=True)
        (log / folder / str(number)).write_text(f"v1\n{{}}\n{json.dumps(line)}")

    def planned():
        (read,) = pipeline.plan().reads
        return [[(r.start, r.end) for r in task] for task in read.tasks]

    assert planned() == [[(10, 20)], [(20, 30)], [(30, 40)]]
    (log / "commits" / "1").write_text("v1\n{}")
    assert planned() == [[(40, 60)], [(60, 80)]]


def test_a_start_and_an_end_are_words_times_groups_or_offsets():
    offsets = {TopicPartition("orders", 0): 7, TopicPartition("orders", 1): -2}
    as_json = '{"orders": {"0": 7, "1": -2}}'
    assert start_options(offsets) == {"startingOffsets": as_json}
    assert start_options("group:billing") == {"startingGroup": "billing"}
    assert start_options("1970-01-01T00:00:01Z")["startingTimestamp"] == "1000"
    assert end_options(offsets) == {"endingOffsets": as_json}
    assert (end_options("now"), end_options("1970-01-01T00:00:01Z")) == ({}, {"endingTimestamp": "1000"})
    with pytest.raises(ConfigError, match="until: found 'earliest', wanted now, a time or offsets"):
        end_options("earliest")


def write_checkpoint(location, offsets):
    for name, lines in {"offsets": ["v1", "{}", json.dumps(offsets)], "commits": ["v1", "{}"]}.items():
        (Path(location) / name).mkdir(parents=True)
        (Path(location) / name / "0").write_text("\n".join(lines))


def test_a_version_that_has_read_less_than_the_live_one_is_not_switched_to(pipeline):
    pipeline.dead_letters = "dead"
    pipeline.read_topic("events", value=Json(dict[str, int]))
    pipeline.write_parquet("events", "/lake/{version}")
    again = pipeline.at(version="v2")
    pipeline.switch_over("v1")  # as a replay does first: which version is live is known from then on
    write_checkpoint(pipeline.checkpoint_of("events"), {"events": {"0": 10, "1": 5}})
    write_checkpoint(again.checkpoint_of("events"), {"events": {"0": 10, "1": 3}})
    with pytest.raises(ConfigError, match=r"v2 is not as far as v1: events lacks 2 records of events-1\."):
        pipeline.switch_over("v2")
    assert pipeline.live_version() == "v1"
    # A dead letter is the live version's: it is there once, whatever version meets it first.
    assert [sink.name for sink in sinks_to_run(pipeline, ())] == ["events_dead_letters", "events"]
    assert [sink.name for sink in sinks_to_run(again, ())] == ["events"]
    pipeline.switch_over("v2", force=True)
    assert pipeline.live_version() == "v2"
    assert [sink.name for sink in sinks_to_run(again, ())] == ["events_dead_letters", "events"]
    with pytest.raises(ConfigError, match="v2 is live; replay into another version"):
        pipeline.replay(version="v2")


@pytest.mark.parametrize("version", ["", " ", "a/b", "../up", "..", "v2\n", "dead_letters", "live.json", None, 2])
def test_a_version_that_is_no_name_is_refused_wherever_one_is_given(pipeline, version):
    pipeline.read_topic("events")
    pipeline.write_parquet("events", "/lake/{version}")
    wanted = "version: found .*, wanted letters, digits, '.', '_' and '-'"
    given = [lambda: pipeline.replay(version=version), lambda: pipeline.switch_over(version, force=True)]
    given.append(lambda: Pipeline("p", checkpoint=pipeline.checkpoint, version=version))
    if version is not None:
        given.append(lambda: pipeline.at(version=version))
    for give in given:
        with pytest.raises(ConfigError, match=wanted):
            give()
    assert not (Path(pipeline.home) / "live.json").exists()


def test_places_that_are_empty_are_refused_and_not_replaced_by_the_pipelines_own(pipeline):
    for place in ("checkpoint", "bootstrap_servers"):
        with pytest.raises(ConfigError, match=f"{place}: found '', wanted .* A variable that is not set gives this"):
            pipeline.at(**{place: ""})
    for name in ("", " ", "..", "a/../../b", "/etc"):
        with pytest.raises(ConfigError, match="name: found"):
            Pipeline(name, checkpoint="/data")
    with pytest.raises(ConfigError, match="checkpoint: found ''"):
        Pipeline("p", checkpoint="")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": ""}', '{"version": 3}', "[" * 5000])
def test_a_file_of_the_live_version_that_names_none_is_an_error_with_its_place(pipeline, text):
    pipeline.switch_over("v1")
    (Path(pipeline.home) / "live.json").write_text(text)
    with pytest.raises(ConfigError, match=r"/p/live\.json: found no live version .*, wanted .*remove the file"):
        pipeline.live_version()


def test_offsets_that_are_none_are_refused_where_a_pipeline_names_them(pipeline):
    for offsets in ({P0: -3}, {P0: 1.5}, {P0: True}, {P0: 2**63}, {P0: float("nan")}, {("orders", 0): 1}):
        with pytest.raises(ConfigError, match="startingOffsets: found"):
            pipeline.read_topic("orders", start=offsets)


def test_a_group_without_committed_offsets_is_no_place_to_start_at(pipeline, kafka, make_topic):
    topic = make_topic(partitions=2)
    kafka.produce(topic, ["x", "y", "z"])
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, "startingGroup": f"{topic}-group"}
    options = source_options(given, is_streaming=True)
    with Cluster(options.wire) as cluster:
        with pytest.raises(
            ConfigError, match=f"startingGroup: group '{topic}-group' has no committed offset of {topic}"
        ):
            resolve_start(cluster, options, partitions)
        commit_group_offsets(cluster, f"{topic}-group", {partitions[0]: 1})
        assert resolve_start(cluster, options, partitions) == {partitions[0]: 1, partitions[1]: 0}
        at_end = source_options(given | {"startingOffsets": "latest"}, is_streaming=True)
        ends = resolve_start(cluster, at_end, partitions)
        assert (ends[partitions[0]], ends[partitions[1]]) == (1, kafka_end(cluster, partitions[1]))


def kafka_end(cluster, partition):
    return cluster.list_offsets({partition: LATEST})[partition][0]


@pytest.mark.parametrize("engine", ["python", "auto", "jvm"])
def test_a_stream_of_either_engine_starts_where_it_was_told_and_ours_can_be_paused_and_seen(
    pipeline, kafka, make_topic, tmp_path, engine
):
    topic = make_topic()
    kafka.produce(topic, ["x"])
    pipeline.read_topic("events", topic, engine=engine, start="latest")
    pipeline.write_parquet("events", str(tmp_path / "lake"))
    with Cluster(wire_settings(bootstrap_servers=kafka.bootstrap_servers)) as cluster:
        without_the_connector = object()
        (sink,) = pipeline.sinks.values()
        run = _run(pipeline, without_the_connector, sink, Starts(pipeline, cluster), tmp_path / "pause")
    options = dict(run.source_options["events"])
    assert json.loads(options.pop("startingOffsets")) == {topic: {"0": 1}}
    ours = {"pauseFile": str(tmp_path / "pause"), "publishGroup": "p.v1.events"}
    assert options == ({} if engine == "jvm" else ours)


def test_waiting_to_catch_up_ends_with_how_far_it_is_behind(pipeline, kafka, make_topic, tmp_path):
    topic = make_topic()
    kafka.produce(topic, ["x", "y"])
    pipeline.read_topic("events", topic)
    pipeline.write_each("events", print)
    stands_still = SimpleNamespace(isActive=True, recentProgress=[])
    running = Running(pipeline, {"events": stands_still}, tmp_path / "pause", ExitStack())
    with pytest.raises(NotCaughtUp, match=r"after 0\.1 s, records not yet read: \{'events': 2\}"):
        running.await_caught_up(timeout_s=0.1)
    assert [row.records for row in running.lag()] == [2]


@pytest.fixture
def module(kafka, make_topic, tmp_path, monkeypatch):
    topic = make_topic()
    kafka.produce(topic, ["x", "y", "z"])
    name = f"declared_{topic.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        "from ottla.spark import Pipeline\n"
        f"pipeline = Pipeline('shown', checkpoint={str(tmp_path / 'ck')!r})\n"
        f"pipeline.read_topic('events', {topic!r})\n"
        "pipeline.sql('short', 'SELECT value FROM events')\n"
        "pipeline.write_parquet('short', '/lake/{version}')\n"
    )
    monkeypatch.chdir(tmp_path)
    return name


def test_the_command_line_describes_a_pipeline_and_its_lag(module, kafka):
    def run(*arguments):
        environment = {"OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
        return CliRunner().invoke(main, ["pipeline", *arguments], env=environment)

    shown = run("describe", f"{module}:pipeline", "--plan")
    assert shown.exit_code == 0, shown.output
    assert "short <- events (SQL)" in shown.output
    assert "Parquet /lake/v1, exactly once" in shown.output
    assert "3 of 3 waiting records in 1 task" in shown.output
    behind = run("lag", f"{module}:pipeline")
    assert "short: 3 records behind" in behind.stderr
    found = document(run("lag", f"{module}:pipeline", "--format", "json"), "ottla.pipeline.lag/1")
    assert [(row["sink"], row["position"], row["end"], row["lag"]) for row in found["items"]] == [("short", 0, 3, 3)]
    assert (found["pipeline"], found["version"]) == ("shown", "v1")
    for command in ("replay", "batch", "run", "describe", "lag"):
        refused = run(command, f"{module}:pipeline", "--version", "")
        assert refused.exit_code == 2, refused.output
        assert "version: found ''" in refused.output
    assert "version: found '../up'" in run("switch", f"{module}:pipeline", "../up").output
    assert "bootstrap_servers: found ''" in run("lag", f"{module}:pipeline", "--bootstrap-servers", "").output
    wrong = run("lag", f"{module}:pipelin")
    assert wrong.exit_code == 2
    assert "'pipelin' is a NoneType, wanted an ottla.spark.Pipeline; the module has pipeline" in wrong.output
    assert "expected MODULE:PIPELINE" in run("lag", "nothing").output
    assert "there is no module 'no_such_thing'" in run("lag", "no_such_thing:p").output
    assert json.dumps("v1") not in shown.output


def test_progress_without_a_sum_as_spark_connect_gives_it_is_counted_by_source():
    progress = {"batchId": 3, "sources": [{"numInputRows": 2}, {"numInputRows": 5}], "durationMs": {}}
    query = SimpleNamespace(isActive=True, recentProgress=[SimpleNamespace(batchId=3, json=json.dumps(progress))])
    found = metrics_of("lake", query)
    assert (found.rows, found.last_batch, found.lag) == (7, 3, 0)


def test_each_micro_batch_is_logged_with_its_lag_and_rate_and_told_to_the_hooks(pipeline, monkeypatch):
    """The lag is that of all partitions: the end of the topic stands beside the end of the batch, without its ids."""
    source = {
        "numInputRows": 7,
        "endOffset": {"t": {"0": 5, "1": 2}, "@topic-ids": {"t": "AAAA"}},
        "latestOffset": {"t": {"0": 9, "1": 3}},
    }
    progress = {
        "batchId": 3,
        "numInputRows": 7,
        "sources": [source],
        "durationMs": {"triggerExecution": 500},
        "observedMetrics": {"events": {"records": 7, "malformed": 2}},
    }
    query = SimpleNamespace(isActive=True, recentProgress=[SimpleNamespace(batchId=3, json=json.dumps(progress))])
    pipeline.hooks = Counters()
    logged = []
    monkeypatch.setattr(progress_of_queries, "log_event", lambda *event: logged.append(event))
    assert report_progress(pipeline, "lake", query, after=2) == 3
    ((name, level, event),) = logged
    assert (name, level, event["pipeline"], event["sink"]) == ("pipeline_batch", "info", "p", "lake")
    assert (event["rows"], event["malformed"], event["lag"], event["rows_per_second"]) == (7, 2, 5, 14)
    assert (pipeline.hooks["handled"], pipeline.hooks["malformed"]) == (5, 2)
    metrics = metrics_of("lake", query)
    assert (metrics.rows, metrics.malformed, metrics.lag, metrics.rows_per_second) == (7, 2, 5, 14.0)


def test_a_micro_batch_has_the_names_of_services_in_the_meters(pipeline):
    source = {
        "numInputRows": 7,
        "endOffset": {"t": {"0": 5, "1": 2}, "@topic-ids": {"t": "AAAA"}},
        "latestOffset": {"t": {"0": 9, "1": 3}},
    }
    progress = {
        "batchId": 3,
        "numInputRows": 7,
        "sources": [source],
        "durationMs": {"triggerExecution": 500},
        "observedMetrics": {"events": {"records": 7, "malformed": 2}},
    }
    query = SimpleNamespace(isActive=True, recentProgress=[SimpleNamespace(batchId=3, json=json.dumps(progress))])
    with collected_metrics() as metrics:
        report_progress(pipeline, "lake", query, after=2)
        labels = {"messaging__consumer__group__name": "p", "ottla__handler": "lake"}
        assert metrics.value("ottla.handler.records", ottla__outcome="handled", **labels) == 5
        assert metrics.value("ottla.handler.records", ottla__outcome="malformed", **labels) == 2
        assert metrics.value("messaging.process.duration", **labels) == 1
        lag = {
            own["messaging.destination.partition.id"]: point.value
            for own, point in metrics.points("ottla.consumer.lag.records", messaging__consumer__group__name="p")
        }
        assert lag == {"0": 4, "1": 1}


class Remembered:
    """A micro-batch's progress as the JVM has it: what is asked of it is counted, because each question takes time."""

    def __init__(self, number):
        self.number, self.times_fetched = number, 0

    def batchId(self):
        return self.number

    def json(self):
        self.times_fetched += 1
        return json.dumps({"batchId": self.number, "numInputRows": 0, "sources": [], "durationMs": {}})


def test_a_look_at_a_running_query_fetches_only_the_batches_that_ended_since_the_last_one():
    remembered = [Remembered(n) for n in range(100)]
    query = SimpleNamespace(_jsq=SimpleNamespace(recentProgress=lambda: remembered))
    pipeline = SimpleNamespace(name="reports", version="v1", hooks=None)
    assert report_progress(pipeline, "lake", query, after=97) == 99
    assert report_progress(pipeline, "lake", query, after=99) == 99
    assert [r.number for r in remembered if r.times_fetched] == [98, 99]
    assert [r.times_fetched for r in remembered[98:]] == [1, 1]
