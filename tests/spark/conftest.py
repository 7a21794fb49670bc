"""One Spark session for the whole run: a JVM starts in seconds, a session in a running one in milliseconds."""

from __future__ import annotations

import gc
import json
import os
import threading
import time
import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from s3a_jars import Unavailable, s3a_jars
from spark_cluster import SparkCluster
from spark_copied import Copied
from spark_processes import Service, Submitted

from ottla.spark import JavaMissing, find_java, session

PROCESSES = "test_spark_processes.py"
BESIDE = (
    "test_spark_exactly_once_brokers.py",
    "test_spark_exactly_once.py",
    "test_spark_planner.py",
    "test_spark_dead_letter_tools.py",
    "test_spark_portable.py",
    "test_spark_object_store.py",
    "test_spark_object_store_faults.py",
    "test_spark_cluster_speculation.py",
    "test_spark_cluster.py",
    "test_spark_cluster_page.py",
)
"""Without Spark, and without a change to anything in this process that a session looks at while it starts."""


def pytest_collection_modifyitems(items):
    """The first query of a JVM takes seconds on an idle machine, and a minute on one that is busy with other things."""
    # By text: thousands of paths, most of other folders, would be taken apart one by one.
    folder = f"{Path(__file__).parent}{os.sep}"
    beside = [str(item.path).startswith(folder) for item in items]
    for item, is_here in zip(items, beside, strict=True):
        may_start_a_jvm = is_here or item.get_closest_marker("spark")
        if may_start_a_jvm and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(300))
    # First what can be done while the session starts. What is done with processes of their own comes last: they start
    # while the other tests run.
    if any(beside):
        at = beside.index(True)
        here = [item for item, is_here in zip(items, beside, strict=True) if is_here]
        others = [item for item, is_here in zip(items, beside, strict=True) if not is_here]
        here.sort(key=lambda item: (item.path.name == PROCESSES, item.path.name not in BESIDE))
        items[:] = [*others[:at], *here, *others[at:]]


@pytest.fixture(scope="session")
def processes(kafka, tmp_path_factory):
    """Two pipelines in processes of their own: one under spark-submit, one by `ottla pipeline run`."""
    _find_java()
    started = []
    try:
        for name, kind in (("submitted", Submitted), ("service", Service)):
            started.append(kind(kafka, tmp_path_factory.mktemp(name)))
        yield started
    finally:
        for each in started:
            each.end()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """A standalone cluster of processes: one for the run."""
    _find_java()
    started = SparkCluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def driver(cluster):
    """The one driver that has the cluster, with both executors."""
    return cluster.only_driver()


@pytest.fixture
def copied(kafka, tmp_path):
    return Copied(kafka, tmp_path)


@pytest.fixture(scope="session")
def s3a(tmp_path_factory):
    """The jars of Hadoop's S3A."""
    _find_java()
    try:
        return s3a_jars(tmp_path_factory.mktemp("s3a"))
    except Unavailable as reason:
        pytest.skip(str(reason))


class Starting:
    """The session on its way, in a thread: a JVM starts and runs its first stream while tests without it go on."""

    def __init__(self, kafka, folder):
        self._kafka, self._folder = kafka, folder
        self._session, self._error = None, None
        self._thread = threading.Thread(target=self._start, name="starts-spark")
        self._thread.start()

    def wait(self):
        """The session, for the thread that asks."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        active = SparkSession._get_j_spark_session_class(self._session._jvm)
        active.setActiveSession(self._session._jsparkSession)  # Spark has one per thread
        return self._session

    def _start(self):
        try:
            self._session = _session()
            _first_stream(self._session, self._kafka, self._folder)
        except BaseException as error:
            self._error = error


def _session():
    return session(
        "ottla-tests",
        master="local[2]",
        config={
            "spark.sql.shuffle.partitions": 1,
            # A handful of rows: compiling code for a plan takes longer than interpreting it.
            "spark.sql.codegen.wholeStage": False,
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.streaming.pollingDelay": "10ms",
            "spark.driver.memory": "1g",
            # Short queries: the JVM's second compiler and parallel collectors cost more than they give, and so
            # does a heap that grows bit by bit.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms800m -Xmn500m",
            "spark.sql.warehouse.dir": "/tmp/ottla-spark-tests-warehouse",
        },
        log_level="OFF",
    )


def _first_stream(spark, kafka, folder):
    topic = kafka.create_topic(kafka.fresh_name("first"))
    kafka.produce(topic, ["a", "b"])
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "startingOffsets": "earliest", "subscribe": topic}
    rows = spark.readStream.format("ottla").options(**options).load()
    writer = rows.writeStream.foreachBatch(lambda batch, _: batch.groupBy("key").count().collect())
    query = writer.option("checkpointLocation", str(folder / "first")).trigger(availableNow=True).start()
    query.awaitTermination(200)


@pytest.fixture(scope="session", autouse=True)
def starting(request):
    """The session on its way, if any test of this run wants it."""
    here = (item for item in request.session.items if Path(__file__).parent in item.path.parents)
    if not any("spark" in getattr(item, "fixturenames", ()) for item in here) or not _has_java():
        yield None
        return
    started = Starting(request.getfixturevalue("kafka"), request.getfixturevalue("tmp_path_factory").mktemp("first"))
    yield started
    started.wait().stop()
    gc.collect()


@pytest.fixture(autouse=True)
def _not_while_it_starts(request, starting):
    if starting is not None and request.path.name not in BESIDE:
        starting.wait()


@pytest.fixture(scope="session")
def spark(request, starting):
    _find_java()
    running = starting.wait()
    if any(item.path.name == PROCESSES for item in request.session.items):
        request.getfixturevalue("processes")
    return running


@pytest.fixture
def lake(spark, tmp_path):
    """The address of a folder that only Spark can read and write: as `viewfs`, a file system of Hadoop's own."""
    name = f"lake-{uuid.uuid4().hex}"
    (tmp_path / "lake").mkdir()
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set(f"fs.viewfs.mounttable.{name}.link./data", (tmp_path / "lake").as_uri())
    return f"viewfs://{name}/data"


@pytest.fixture
def make_topic(make_topic):
    """Topics that keep their records: many here are of another year, and the broker's retention would come for them."""

    def make(name="", **options):
        config = {"retention.ms": -1} | options.pop("config", {})
        return make_topic(name, config=config, **options)

    return make


def _find_java():
    try:
        find_java()
    except JavaMissing as error:
        pytest.skip(f"needs Java: {error}")


def _has_java():
    try:
        find_java()
    except JavaMissing:
        return False
    return True


class Topics:
    """What the Spark tests do with a topic, by the format's options."""

    def __init__(self, spark, bootstrap_servers, tmp_path):
        self.spark = spark
        self.bootstrap_servers = bootstrap_servers
        self.tmp_path = tmp_path

    def _with(self, builder, options):
        builder = builder.format("ottla").option("kafka.bootstrap.servers", self.bootstrap_servers)
        for name, value in options.items():
            builder = builder.option(name, value)
        return builder

    def read(self, topic, **options):
        return self._with(self.spark.read, {"subscribe": topic} | options).load()

    def stream(self, topic, **options):
        return self._with(self.spark.readStream, {"subscribe": topic, "startingOffsets": "earliest"} | options).load()

    def write(self, frame, **options):
        self._with(frame.write, options).mode("append").save()

    def start(self, writer):
        """Start a query. Spark gives a source's Python process ten seconds to start: on a busy machine, once more."""
        for _ in range(5):
            query = writer.start()
            while query.isActive and str(query.status["message"]).startswith("Initializing"):
                time.sleep(0.02)
            error = None if query.isActive else query.exception()
            if error is None or "Python worker failed to connect back" not in str(error):
                break
        return query

    def wait(self, query, reached):
        """Until a running query has got there."""
        deadline = time.monotonic() + 120
        while not reached():
            if not query.isActive:
                raise AssertionError(f"the query ended: {query.exception()}")
            assert time.monotonic() < deadline, query.status
            time.sleep(0.02)

    def run(self, frame, *, checkpoint="checkpoint", **options):
        """Run a stream into a topic until it has read all there is; answer the query."""
        options = {"checkpointLocation": str(self.tmp_path / checkpoint)} | options
        query = self.start(self._with(frame.writeStream, options).trigger(availableNow=True))
        query.awaitTermination(200)
        return query

    def collect(self, frame, *, checkpoint="checkpoint", each=None):
        """Run a stream into memory: a list of the rows of each micro-batch."""
        batches = []

        def keep(batch, number):
            rows = batch.collect()
            batches.append(rows)
            if each is not None:
                each(number, rows)

        query = self.start(
            frame.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self.tmp_path / checkpoint))
            .trigger(availableNow=True)
        )
        query.awaitTermination(200)
        return batches, [json.loads(p.json) for p in query.recentProgress]


@pytest.fixture
def topics(spark, kafka, tmp_path):
    return Topics(spark, kafka.bootstrap_servers, tmp_path)
