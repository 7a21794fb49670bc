"""The sink's exactly-once protocol while brokers die: at each of its steps, the leader of the records or the
coordinator of the transactions. The client finds who took over, or Spark runs the batch again; every row is there once.
"""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

import ottla.columnar
from ottla.columnar import Cluster, wire_settings
from ottla.errors import OttlaError
from ottla.records import TopicPartition
from ottla.spark.options import SinkOptions, source_options
from ottla.spark.reading.subscription import subscribed_partitions
from ottla.spark.writing import commit_decision, exactly_once, prepare
from ottla.spark.writing.exactly_once import commit_batch
from ottla.spark.writing.prepare import Work, prepare_task
from ottla_wire.protocol import ApiKey

TASKS, ROWS = 2, 4
REPLICATED = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
}


class Sink:
    """Two tasks and their driver; at a step of its choice a broker dies."""

    def __init__(self, kafka, cluster, options):
        self.kafka, self.cluster, self.options = kafka, cluster, options

    def rows(self, number, task):
        for i in range(ROWS):
            yield pa.record_batch({"value": [f"{number}-{task}-{i}"]})

    def run(self, number, between=lambda batches: batches):
        messages = [
            prepare_task(
                self.options,
                self.cluster,
                Work(query="q", batch=number, task=task),
                between(self.rows(number, task)),
            )
            for task in range(TASKS)
        ]
        commit_batch(self.options, self.cluster, messages, number)

    def committed(self, count):
        """What a reader of committed records sees, as soon as there are so many. The coordinator answers when a
        transaction is decided; that its partitions know comes a moment later, in the order of the transactions."""
        deadline = time.monotonic() + 60
        while True:
            table = ottla.columnar.read("out", bootstrap_servers=self.kafka.bootstrap_servers).read_all()
            if table.num_rows >= count or time.monotonic() > deadline:
                return sorted(v.decode() for v in table.column("value").to_pylist())
            time.sleep(0.02)

    def kill(self, victim):
        """The leader of the records, or the coordinator of the first task's transactions."""
        if victim == "leader":
            self.kafka.kill(self.kafka.leader(self.options.topic))
            return
        key = Work(query="q", batch=None, task=0).transactional_id(self.options.transactional_id_prefix)
        with Cluster(self.options.wire) as other:
            found = other.any_broker().call(ApiKey.FIND_COORDINATOR, {"key": key, "key_type": 1})
        self.kafka.kill(found.node_id)


@pytest.fixture
def sink(make_cluster):
    kafka = make_cluster(brokers=3, config=REPLICATED)
    kafka.create_topic("out", partitions=1, replication_factor=3)
    settings = wire_settings({"retry.backoff.ms": 20}, bootstrap_servers=kafka.bootstrap_servers)
    with Cluster(settings) as cluster:
        yield Sink(kafka, cluster, SinkOptions(wire=settings, topic="out", is_exactly_once=True))


@pytest.mark.representative("writing-leader")
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("step", "victim"),
    [
        ("begun", "coordinator"),
        ("writing", "leader"),
        ("first task prepared", "coordinator"),
        ("decided", "coordinator"),
        ("first marker", "leader"),
        ("first commit", "coordinator"),
        ("first commit", "leader"),
    ],
)
def test_a_broker_that_dies_at_any_step_costs_no_row_and_repeats_none(sink, monkeypatch, step, victim):
    fuse = [lambda: sink.kill(victim)]

    def burn():
        if fuse:
            fuse.pop()()

    def kills_behind(owner, name):
        does = getattr(owner, name)

        def done(*arguments, **named):
            answer = does(*arguments, **named)
            burn()
            return answer

        monkeypatch.setattr(owner, name, done)

    def between(batches):
        for count, batch in enumerate(batches):
            yield batch
            if step == "writing" and count == 1:
                burn()

    sink.run(0)
    calls = {
        "begun": (prepare, "begin_transaction"),
        "decided": (commit_decision, "end_transaction"),
        "first marker": (exactly_once, "add_marker"),
        "first commit": (exactly_once, "end_transaction"),
    }
    if step in calls:
        kills_behind(*calls[step])
    if step == "first task prepared":
        first = prepare_task(sink.options, sink.cluster, Work(query="q", batch=1, task=0), sink.rows(1, 0))
        burn()
        rest = prepare_task(sink.options, sink.cluster, Work(query="q", batch=1, task=1), sink.rows(1, 1))
        commit_batch(sink.options, sink.cluster, [first, rest], 1)
    else:
        try:
            sink.run(1, between)
        except OttlaError:  # the query fails, and starts again with the batch that is not in its checkpoint
            sink.run(1)
    assert not fuse
    sink.run(2)
    expected = sorted(f"{n}-{task}-{i}" for n in range(3) for task in range(TASKS) for i in range(ROWS))
    assert sink.committed(len(expected)) == expected


@pytest.mark.complete
@pytest.mark.parametrize("subscription", ["subscribe", "subscribePattern", "assign"])
def test_a_planner_asks_another_broker_when_the_one_that_it_asks_dies(make_cluster, subscription):
    kafka = make_cluster(brokers=3, config=REPLICATED)
    kafka.create_topic("in", partitions=2, replication_factor=3)
    value = '{"in": [0, 1]}' if subscription == "assign" else "in"
    options = source_options(
        {"kafka.bootstrap.servers": kafka.bootstrap_servers, subscription: value}, is_streaming=True
    )
    with Cluster(options.wire) as cluster:
        before = subscribed_partitions(cluster, options)
        asked = cluster.any_broker()
        kafka.kill(next(node for node, address in cluster.addresses.items() if address == (asked.host, asked.port)))
        assert subscribed_partitions(cluster, options) == before == [TopicPartition("in", 0), TopicPartition("in", 1)]
