"""Tasks by default: as many as the session's executors run at once."""

from __future__ import annotations

import pytest

from ottla.spark import read
from ottla.spark.jvm.parallelism import requested_tasks, session_parallelism


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


@pytest.mark.spark
def test_a_batch_is_read_by_as_many_tasks_as_the_session_has_cores(spark, kafka, make_topic):
    topic = make_topic()
    kafka.produce(topic, ["x"] * 8)
    assert session_parallelism(spark) == 2
    for options, tasks in (({}, 2), ({"Tasks": 3}, 3)):
        rows = read(spark, topic, bootstrap_servers=kafka.bootstrap_servers, rowsPerTask=1, **options)
        assert rows.rdd.getNumPartitions() == tasks
