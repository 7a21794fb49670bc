"""On a standalone cluster of processes: what works, and what is exactly once while its parts are killed."""

from __future__ import annotations

import json

import polars
import pytest
from spark_cluster import until
from spark_copied import ROWS, Copied, values_of

pytest.importorskip("pyspark")

from ottla.spark.checkpoints.offsets import tasks_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.representative
def test_executors_start_pyspark_python_and_copy_exactly_once(cluster, driver, copied):
    """The driver's own Python fails in the folders of executors."""
    assert driver.run("count", servers=copied.servers, topic=copied.source)[0] == 2 * ROWS
    assert driver.run("plain_count", servers=copied.servers, topic=copied.source) == 2 * ROWS
    assert driver.run("copy", **copied.arguments()) == 3
    assert copied.is_exact
    work = str(cluster.folder / "work")
    started = [line.split(" ", 1) for line in cluster.pythons.read_text().splitlines()]
    assert {name for name, folder in started if folder.startswith(work)} == {"executor-python"}
    folders = driver.run("udf_pythons")
    assert all(folder.startswith(work) for folder in folders)


def test_a_declared_pipeline_its_dead_letters_its_replay_and_its_switch(kafka, driver, tmp_path):
    source = kafka.create_topic(kafka.fresh_name("orders"), partitions=2)
    for name in ("dead", "out-v1", "out-v2"):
        kafka.create_topic(f"{source}.{name}", partitions=2)
    kafka.produce(source, [json.dumps({"n": i}) for i in range(ROWS)] + ["{"], partition=0)
    found = driver.run("pipeline", servers=kafka.bootstrap_servers, source=source, folder=str(tmp_path))
    assert found == {"live": ["v1", "v2"], "lag": 0, "lake": [ROWS, ROWS]}
    for version in ("v1", "v2"):
        assert sorted(polars.read_delta(str(tmp_path / f"delta-{version}"))["n"].to_list()) == list(range(ROWS))
        topic = f"{source}.out-{version}"
        until(lambda topic=topic: len(values_of(kafka.bootstrap_servers, topic)) >= ROWS, "rows are missing")
        assert sorted(values_of(kafka.bootstrap_servers, topic), key=int) == [str(i) for i in range(ROWS)]
    assert values_of(kafka.bootstrap_servers, f"{source}.dead") == ["{"]


def test_executors_that_are_killed_in_the_middle_of_a_task(cluster, driver, copied):
    driver.begin("copy", **copied.gated("begun-1-"))
    copied.begun("1-0-0")
    cluster.kill_executors()
    copied.go()
    driver.end()
    assert [name for name in copied.attempts if not name.endswith("-0")]
    assert copied.is_exact


def test_a_stage_that_is_repeated_for_lost_shuffle_files_is_exact_at_the_latest_when_started_again(
    cluster, driver, copied
):
    """Attempts of the repeated stage count from 0 again. One that fences the winner of its task stops the query."""
    waits = copied.gated("begun-1-") | {"shuffled": 4}
    driver.begin("copy", **waits)
    until(lambda: len(list(copied.gate.glob("begun-1-*"))) == 2, "a task on each executor")
    cluster.kill_one_with_shuffle_files()
    copied.go()
    stopped_by = driver.end_or_error()
    begun = {name: (copied.gate / name).read_text().split() for name in copied.attempts}
    assert [name for name, tasks in begun.items() if len(set(tasks)) > 1], begun  # the stage was repeated
    if stopped_by is not None:
        assert "FencedError" in stopped_by
        driver.run("copy", **waits)
    assert copied.is_exact


def test_workers_that_are_killed_with_their_executors_and_replaced(cluster, driver, copied):
    driver.begin("copy", **copied.gated("begun-1-"))
    copied.begun("1-0-0")
    cluster.replace_workers()
    copied.go()
    driver.end()
    assert [name for name in copied.attempts if not name.endswith("-0")]
    assert copied.is_exact


REPLICATED = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
}


def test_leaders_of_kafka_that_are_killed_in_the_middle_of_a_batch(driver, make_cluster, tmp_path):
    brokers = make_cluster(brokers=3, config=REPLICATED)
    copied = Copied(brokers, tmp_path, replication_factor=3)
    driver.begin("copy", **copied.gated("begun-1-"))
    copied.begun("1-0-0")
    brokers.kill(brokers.leader(copied.sink))
    copied.go()
    driver.end()
    assert copied.is_exact


def test_a_driver_that_is_killed_in_the_middle_of_a_batch(cluster, driver, copied):
    driver.begin("copy", **copied.gated("begun-1-"))
    copied.begun("1-0-0")
    driver.kill()
    copied.go()
    assert cluster.only_driver().run("copy", **copied.gated("begun-1-")) >= 3
    assert copied.is_exact


def test_a_driver_that_is_killed_between_two_commits_and_replaced_by_one_with_more_tasks(cluster, copied, kafka):
    """The first plans two tasks a batch. The three of the second would not match the transactions of the batch."""
    first = cluster.only_driver()

    def is_of_second_task(request):
        return request.transactional_id.endswith("-1")

    with kafka.cluster.faults.add(api="END_TXN", hold=True, when=is_of_second_task, skip=1) as held:
        first.begin("copy", **copied.arguments(tasks=None))
        until(lambda: held.held, first.log.read_text)
        first.kill()
        held.remove()  # what it asked for is not done: its connection is closed
    second = cluster.only_driver(**{"spark.default.parallelism": "3"})
    assert second.run("copy", **copied.arguments(tasks=None)) == 3
    assert copied.is_exact
    ends = [(copied.folder / f"checkpoint/offsets/{n}").read_text().splitlines()[2] for n in range(3)]
    assert [tasks_of(json.loads(end)) for end in ends] == [2, 2, 3]


@pytest.mark.parametrize("killed", ["executors", "workers", "driver"])
def test_tables_are_exact_though_executors_workers_or_the_driver_are_killed(cluster, driver, copied, killed):
    waits = copied.gated("begun-1-")
    driver.begin("tables", **waits)
    copied.begun("1-0-0")
    if killed == "driver":
        driver.kill()
        copied.go()
        cluster.only_driver().run("tables", **waits)
    else:
        cluster.kill_executors() if killed == "executors" else cluster.replace_workers()
        copied.go()
        driver.end()
        assert [name for name in copied.attempts if not name.endswith("-0")]
    assert copied.tables_are_exact


def test_tables_are_exact_though_leaders_of_kafka_are_killed(driver, make_cluster, tmp_path):
    brokers = make_cluster(brokers=3, config=REPLICATED)
    copied = Copied(brokers, tmp_path, replication_factor=3)
    driver.begin("tables", **copied.gated("begun-1-"))
    copied.begun("1-0-0")
    brokers.kill(brokers.leader(copied.source))
    copied.go()
    driver.end()
    assert copied.tables_are_exact


@pytest.mark.parametrize("job", ["copy", "tables"])
def test_without_a_master_a_query_goes_on_with_the_executors_that_it_has(cluster, copied, job):
    """The last test of the file. A new master does not know the driver: it is ended, and the workers are replaced."""
    driver = cluster.driver or cluster.only_driver()
    driver.begin(job, **copied.gated("begun-1-"))
    copied.begun("1-0-0")
    cluster.master.kill()
    copied.go()
    driver.end()
    assert copied.is_exact if job == "copy" else copied.tables_are_exact
    cluster.close_driver()
    cluster.master = cluster.start_master()
    cluster.replace_workers()
