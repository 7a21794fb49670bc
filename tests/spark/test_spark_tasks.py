"""Tasks by default: as many as the session's executors run at once, and for exactly-once sinks those of the start."""

from __future__ import annotations

import pytest

from ottla.errors import ConfigError
from ottla.spark import Pipeline, read
from ottla.spark.jvm.parallelism import requested_tasks, session_parallelism
from ottla.spark.pipeline import kept_tasks
from ottla.spark.pipeline.kept_tasks import tasks_option


@pytest.mark.parametrize(
    ("conf", "tasks"),
    [
        ({}, 0),
        ({"spark.executor.instances": "5", "spark.executor.cores": "2"}, 10),
        ({"spark.executor.instances": "5", "spark.executor.cores": "4", "spark.task.cpus": "2"}, 10),
        ({"spark.cores.max": "12"}, 12),
        ({"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "8"}, 8),
        ({"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "2147483647"}, 0),
        ({"spark.executor.instances": "many"}, 0),
    ],
)
def test_the_tasks_that_a_session_has_asked_for(conf, tasks):
    assert requested_tasks(conf) == tasks


@pytest.fixture
def pipeline(tmp_path):
    found = Pipeline("shop", bootstrap_servers="localhost:1", checkpoint=str(tmp_path))
    found.read_topic("orders")
    found.read_topic("fixed", tasks=3)
    found.write_topic("orders", "out", name="once", delivery="exactly-once")
    found.write_topic("fixed", "out", name="given", delivery="exactly-once")
    found.write_topic("orders", "out", name="more")
    return found


def test_an_exactly_once_sink_keeps_the_tasks_of_its_first_start(pipeline, monkeypatch, tmp_path):
    orders, fixed = pipeline.streams()

    def tasks(sink, source, parallelism):
        monkeypatch.setattr(kept_tasks, "session_parallelism", lambda spark: parallelism)
        return tasks_option(pipeline, object(), pipeline.sinks[sink], source).get("tasks")

    assert [tasks("once", orders, cores) for cores in (8, 2, None)] == ["8", "8", "8"]
    assert tasks("more", orders, 8) is None  # as many as the session has now
    assert tasks("given", fixed, 8) == "3"
    (tmp_path / "shop" / "v1" / "once" / "ottla-tasks-orders.json").write_text("[")
    with pytest.raises(ConfigError, match=r"ottla-tasks-orders.json: found b'\[', wanted the number of tasks"):
        tasks("once", orders, 8)


@pytest.mark.spark
def test_a_batch_is_read_by_as_many_tasks_as_the_session_has_cores(spark, kafka, make_topic):
    topic = make_topic()
    kafka.produce(topic, ["x"] * 8)
    assert session_parallelism(spark) == 2
    for options, tasks in (({}, 2), ({"Tasks": 3}, 3)):
        rows = read(spark, topic, bootstrap_servers=kafka.bootstrap_servers, rowsPerTask=1, **options)
        assert rows.rdd.getNumPartitions() == tasks
