"""The sink's exactly-once protocol, step by step: a crash at each of them, then the batch again, and every row is there
once. Tasks and driver are plain calls here; Spark itself kills and restarts them in `test_spark_crashes.py`."""

from __future__ import annotations

import pickle
import random
import time
import uuid
import zlib
from base64 import b85encode
from dataclasses import replace

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import ottla.columnar
from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.time import VirtualClock
from ottla.admin import Admin
from ottla.columnar import Cluster, Outcome, add_marker, begin_transaction, end_transaction, wire_settings
from ottla.errors import ConfigError, FencedError, InputError, RetriableError
from ottla.records import TopicPartition
from ottla.spark.options import SinkOptions, sink_options
from ottla.spark.writing import exactly_once
from ottla.spark.writing.commit_decision import Decider
from ottla.spark.writing.exactly_once import abort_batch, commit_batch
from ottla.spark.writing.prepare import ReplayDiffers, Work, prepare_task
from ottla.spark.writing.sink import batch_writer, stream_writer
from ottla.wire_client.producing.open_transactions import list_open_transactions

TASKS = 3


class Batch:
    """The tasks and the driver of one query on one topic."""

    def __init__(self, cluster, options):
        self.cluster, self.options, self.query = cluster, options, uuid.uuid4().hex

    def rows(self, number, task):
        return [pa.record_batch({"value": [f"{number}-{task}-{i}" for i in range(4)]})]

    def prepare(self, number, *, tasks=TASKS, rows=None, attempts=(0, 0, 0)):
        return [
            prepare_task(
                self.options,
                self.cluster,
                Work(query=self.query, batch=number, task=task, attempt=attempt),
                iter(self.rows(number, task) if rows is None else rows),
            )
            for task, attempt in zip(range(tasks), attempts, strict=False)
        ]

    def left_open(self):
        return list_open_transactions(self.cluster, begins_with=self.options.transactional_id_prefix)

    def run(self, number):
        commit_batch(self.options, self.cluster, self.prepare(number), number)

    def crash_while_committing(self, number, *, markers, ends):
        """The driver dies after so many markers and so many commits."""
        messages = self.prepare(number)
        for message in messages[:markers]:
            _mark(self, message, number, messages)
        for message in messages[:ends]:
            end_transaction(self.cluster, message.transaction, Outcome.COMMIT)


def _mark(batch, message, number, messages):
    add_marker(
        batch.cluster,
        message.transaction,
        group=message.transaction.transactional_id,
        place=TopicPartition(batch.options.topic, 0),
        number=number + 1,
        metadata=f"{TASKS} {message.rows} {message.content_bytes} {sum(each.rows for each in messages)}",
    )


def _bomb():
    """A list of attempts that is small only while it is compressed."""
    return b85encode(zlib.compress(b"0 " * 800_000, 9)).decode()


@pytest.fixture
def batch(kafka, make_topic):
    topic = make_topic(partitions=2)
    settings = wire_settings({"retry.backoff.ms": 10}, bootstrap_servers=kafka.bootstrap_servers)
    with Cluster(settings) as cluster:
        options = SinkOptions(wire=settings, topic=topic, is_exactly_once=True, transactional_id_prefix=topic)
        yield Batch(cluster, options)


@pytest.fixture
def own_kafka():
    """A broker whose faults no other test sees."""
    with EmbeddedCluster() as kafka:
        yield kafka


@pytest.fixture
def own_batch(own_kafka):
    own_kafka.create_topic("out")
    settings = wire_settings({"retry.backoff.ms": 10}, bootstrap_servers=own_kafka.bootstrap_servers)
    with Cluster(settings) as cluster:
        options = SinkOptions(wire=settings, topic="out", is_exactly_once=True, transactional_id_prefix="out")
        yield Batch(cluster, options)


def committed(kafka, batch):
    table = ottla.columnar.read(batch.options.topic, bootstrap_servers=kafka.bootstrap_servers).read_all()
    return sorted(v.decode() for v in table.column("value").to_pylist())


def expected(*numbers):
    return sorted(f"{n}-{task}-{i}" for n in numbers for task in range(TASKS) for i in range(4))


def test_rows_are_visible_when_the_driver_has_committed_and_not_before(kafka, batch):
    messages = batch.prepare(0)
    assert committed(kafka, batch) == []
    commit_batch(batch.options, batch.cluster, messages, 0)
    batch.run(1)
    assert committed(kafka, batch) == expected(0, 1)


@pytest.mark.parametrize(("markers", "ends"), [(0, 0), (1, 0), (3, 0), (3, 1), (3, 2), (3, 3)])
def test_a_driver_that_dies_at_any_step_of_its_commit_leaves_no_row_out_and_none_twice(kafka, batch, markers, ends):
    batch.run(0)
    batch.crash_while_committing(1, markers=markers, ends=ends)
    batch.run(1)
    batch.run(2)
    assert committed(kafka, batch) == expected(0, 1, 2)


def test_a_task_that_dies_while_it_writes_leaves_nothing_behind(kafka, batch):
    def dies():
        yield from batch.rows(0, 0)
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        prepare_task(batch.options, batch.cluster, Work(query=batch.query, batch=0, task=0), dies())
    batch.run(0)
    assert committed(kafka, batch) == expected(0)


def test_a_truncated_input_is_written_and_never_committed(kafka, batch):
    """What a killed task sees: its input ends early, without an error. No message of it reaches the driver."""
    truncated = iter([batch.rows(0, 0)[0].slice(0, 2)])
    prepare_task(batch.options, batch.cluster, Work(query=batch.query, batch=0, task=0), truncated)
    batch.run(0)
    assert committed(kafka, batch) == expected(0)


def test_a_zombie_attempt_is_fenced_and_its_batch_is_not_committed(kafka, batch):
    zombies = batch.prepare(0)
    batch.prepare(0)  # a second attempt of the same tasks
    with pytest.raises(FencedError, match="a newer attempt took over"):
        commit_batch(batch.options, batch.cluster, zombies, 0)
    batch.run(0)
    assert committed(kafka, batch) == expected(0)


@pytest.mark.parametrize("winners", [(0, 0, 0), (1, 1, 1), (0, 1, 0)])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_copies_of_tasks_fence_none_that_has_won_and_leave_nothing_open(kafka, batch, winners, order):
    batch.run(0)
    written = {attempt: batch.prepare(1, attempts=(attempt,) * TASKS) for attempt in order}
    commit_batch(batch.options, batch.cluster, [written[each][task] for task, each in enumerate(winners)], 1)
    assert batch.left_open() == []
    batch.run(2)
    assert committed(kafka, batch) == expected(0, 1, 2)


def test_a_copy_that_begins_when_its_batch_is_committed_writes_nothing(kafka, batch):
    batch.run(0)
    for late in batch.prepare(0, attempts=(1, 1, 1)):
        assert (late.rows, late.bytes_sent, late.transaction) == (4, 0, None)
    assert batch.left_open() == []
    assert committed(kafka, batch) == expected(0)


COPIES = (1, 0, 1)
"""The attempts that won, where copies did."""


@pytest.mark.parametrize("attempts", [(0, 0, 0), (1, 0, 1), (2, 2, 2)])
def test_a_driver_that_comes_back_commits_nothing_of_a_batch_that_another_has_committed(kafka, batch, attempts):
    """Nothing of the second run has fenced the copies of the first: it had none."""
    soon, late = batch.prepare(0, attempts=COPIES), batch.prepare(0, attempts=(3, 3, 3))
    commit_batch(batch.options, batch.cluster, batch.prepare(0, attempts=attempts), 0)
    commit_batch(batch.options, batch.cluster, soon, 0)  # it passes over what it finds committed
    batch.run(1)
    with pytest.raises(ReplayDiffers, match="an older checkpoint was restored"):
        commit_batch(batch.options, batch.cluster, late, 0)
    assert committed(kafka, batch) == expected(0, 1)


@pytest.mark.parametrize("step", ["take_over", "decide", "marked", "committed one"])
def test_a_driver_that_is_overtaken_at_any_step_of_its_commit_commits_no_row_twice(kafka, batch, monkeypatch, step):
    """It stands still there while another run of the query commits the batch, and goes on then."""
    stale = batch.prepare(0, attempts=COPIES)
    fuse = [lambda: commit_batch(batch.options, batch.cluster, batch.prepare(0), 0)]

    def burn_behind(owner, name):
        does = getattr(owner, name)

        def done(*arguments, **named):
            answer = does(*arguments, **named)
            if fuse:
                fuse.pop()()
            return answer

        monkeypatch.setattr(owner, name, done)

    if step in ("take_over", "decide"):
        burn_behind(Decider, step)
    else:
        burn_behind(exactly_once, {"marked": "_side_by_side", "committed one": "end_transaction"}[step])
    with pytest.raises(FencedError):
        commit_batch(batch.options, batch.cluster, stale, 0)
    assert not fuse
    batch.run(1)
    assert committed(kafka, batch) == expected(0, 1)


def decided_and_died(batch, number, attempts, *, ends):
    """The driver dies behind its decision and all markers, and commits of the tasks `ends`."""
    messages = batch.prepare(number, attempts=attempts)
    query, place = f"{batch.options.transactional_id_prefix}-{batch.query}", TopicPartition(batch.options.topic, 0)
    decider = Decider.take_over(batch.cluster, query=query, place=place, timeout_ms=60_000)
    exactly_once._look_again(batch.options, batch.cluster, decider, messages, number)
    decider.decide(batch.cluster, number, {task: message.attempt for task, message in enumerate(messages)}, tasks=TASKS)
    still_open = [message for message in messages if message.transaction is not None]
    for message in still_open:
        _mark(batch, message, number, messages)
    for task in ends:
        end_transaction(batch.cluster, messages[task].transaction, Outcome.COMMIT)


@pytest.mark.parametrize("then", [(0, 0, 0), (1, 0, 1), (0, 1, 0), (2, 2, 2)])
@pytest.mark.parametrize("first", [(0, 0, 0), COPIES])
def test_drivers_that_die_behind_their_decisions_are_followed_by_one_with_other_winners(kafka, batch, first, then):
    decided_and_died(batch, 0, first, ends=[0])
    decided_and_died(batch, 0, then, ends=[])
    decided_and_died(batch, 0, first, ends=[1])
    commit_batch(batch.options, batch.cluster, batch.prepare(0, attempts=then), 0)
    assert batch.left_open() == []
    batch.run(1)
    assert committed(kafka, batch) == expected(0, 1)


def test_later_attempts_wait_for_no_driver_that_died_while_it_committed(kafka, batch):
    """They have not fenced the first attempts, whose markers are not decided."""
    batch.run(0)
    batch.crash_while_committing(1, markers=3, ends=1)
    commit_batch(batch.options, batch.cluster, batch.prepare(1, attempts=(1, 1, 1)), 1)
    batch.run(2)
    assert committed(kafka, batch) == expected(0, 1, 2)


def test_a_decision_on_ten_thousand_tasks_fits_into_the_metadata_of_an_offset(kafka, batch):
    chance = random.Random(35)
    attempts = {task: chance.choice((0, 0, 1)) for task in range(10_000) if task % 7}

    def take_over():
        place = TopicPartition(batch.options.topic, 0)
        return Decider.take_over(batch.cluster, query="many", place=place, timeout_ms=60_000)

    take_over().decide(batch.cluster, 4, attempts, tasks=10_001)
    found = take_over()
    assert (found.number, found.attempts, found.tasks) == (5, attempts, 10_001)


def groups_of(kafka, batch):
    prefix = f"{batch.options.transactional_id_prefix}-{batch.query}"
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        names = [group.group_id for group in admin.list_groups()]
    return {name.removeprefix(prefix) for name in names if name.startswith(prefix)}


def test_groups_of_tasks_and_attempts_that_are_no_more_are_deleted(kafka, batch):
    commit_batch(batch.options, batch.cluster, batch.prepare(0, attempts=(0, 2, 1)), 0)
    assert groups_of(kafka, batch) == {"", "-0", "-1-2", "-2-1"}
    commit_batch(batch.options, batch.cluster, batch.prepare(1, attempts=(1, 0, 0)), 1)
    assert groups_of(kafka, batch) == {"", "-0", "-0-1", "-1", "-2"}
    commit_batch(batch.options, batch.cluster, all_rows_of(batch, 2, 2), 2)
    assert groups_of(kafka, batch) == {"", "-0", "-1"}
    batch.run(3)
    assert groups_of(kafka, batch) == {"", "-0", "-1", "-2"}
    assert committed(kafka, batch) == expected(0, 1, 2, 3)


@pytest.mark.parametrize("metadata", ["no base 85", "0{}", b85encode(zlib.compress(b"0 x")).decode(), _bomb()])
def test_an_offset_of_another_program_is_no_decision(kafka, batch, metadata):
    place = TopicPartition(batch.options.topic, 0)
    query = f"{batch.options.transactional_id_prefix}-{batch.query}"
    other = begin_transaction(batch.cluster, f"{query}-other")
    add_marker(batch.cluster, other, group=query, place=place, number=1, metadata=metadata)
    end_transaction(batch.cluster, other, Outcome.COMMIT)
    with pytest.raises(InputError, match="metadata is no list of attempts"):
        batch.run(0)


def test_an_aborted_batch_can_come_again_and_what_was_committed_of_it_stays(kafka, batch):
    messages = batch.prepare(0)
    abort_batch(batch.cluster, [None, *messages])
    batch.crash_while_committing(0, markers=3, ends=1)
    batch.run(0)
    assert committed(kafka, batch) == expected(0)


def test_a_replay_by_other_tasks_or_with_other_rows_is_refused_before_anything_is_committed(kafka, batch):
    batch.crash_while_committing(0, markers=3, ends=1)
    with pytest.raises(
        ReplayDiffers,
        match=r"was partly committed by 3 tasks and is now written by 2\. Restart with 3 tasks:"
        r" repartition\(3, \.\.\.\) or coalesce\(3\), as it was; .* the cores that the query had;"
        r" .* without @tasks, the option tasks=3",
    ):
        commit_batch(batch.options, batch.cluster, batch.prepare(0, tasks=2), 0)
    others = batch.prepare(0, rows=[pa.record_batch({"value": ["x"]})])
    with pytest.raises(ReplayDiffers, match="with 4 rows of 20 bytes, and comes again with 1 rows of 1 bytes"):
        commit_batch(batch.options, batch.cluster, others, 0)
    batch.run(0)
    with pytest.raises(ReplayDiffers, match="an older checkpoint was restored"):
        batch.run(1), batch.run(0)
    assert committed(kafka, batch) == expected(0, 1)


def all_rows_of(batch, number, tasks, *, rows_of=None):
    """The same rows of a batch, divided among another number of tasks; or those of another batch."""
    source = number if rows_of is None else rows_of
    values = [value for task in range(TASKS) for value in batch.rows(source, task)[0].column(0).to_pylist()]
    return [
        prepare_task(
            batch.options,
            batch.cluster,
            Work(query=batch.query, batch=number, task=task),
            iter([pa.record_batch({"value": values[task::tasks]})]),
        )
        for task in range(tasks)
    ]


@pytest.mark.parametrize("tasks", [1, 2, 5, 12])
def test_a_batch_that_was_committed_whole_is_passed_over_by_any_number_of_tasks(kafka, batch, tasks):
    """The driver was killed between the last commit in Kafka and the one in the checkpoint."""
    batch.run(0)
    commit_batch(batch.options, batch.cluster, all_rows_of(batch, 0, tasks), 0)
    batch.run(1)
    assert committed(kafka, batch) == expected(0, 1)


@pytest.mark.parametrize("ends", [1, 2])
@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_a_batch_that_was_committed_in_part_is_not_passed_over(kafka, batch, tasks, ends):
    batch.crash_while_committing(0, markers=3, ends=ends)
    messages = all_rows_of(batch, 0, tasks)
    with pytest.raises(ReplayDiffers, match="Restart with 3"):
        commit_batch(batch.options, batch.cluster, messages, 0)
    abort_batch(batch.cluster, messages)  # as Spark does
    batch.run(0)
    assert committed(kafka, batch) == expected(0)


def test_another_batch_of_rows_is_not_taken_for_the_one_that_was_committed(kafka, batch):
    batch.run(0)
    with pytest.raises(ReplayDiffers, match="Restart with 3"):
        commit_batch(batch.options, batch.cluster, all_rows_of(batch, 0, 2, rows_of=10), 0)


def test_a_query_keeps_its_topic_and_its_prefix(tmp_path):
    given = {
        "kafka.bootstrap.servers": "a:1",
        "topic": "t",
        "delivery": "exactly-once",
        "checkpointLocation": str(tmp_path / "new"),
    }
    schema = StructType([StructField("value", StringType())])
    for _ in range(2):
        stream_writer(given, schema)
    for name, value in (("topic", "u"), ("transactionalIdPrefix", "other")):
        with pytest.raises(ConfigError, match=rf"{name}: found '{value}', wanted '(t|ottla)', with which"):
            stream_writer(given | {name: value}, schema)
    stream_writer(given | {"topic": "u", "delivery": "at-least-once"}, schema)
    stream_writer(given | {"topic": "u", "checkpointLocation": "s3a://bucket/checkpoint"}, schema)
    (tmp_path / "new" / "ottla-sink.json").write_text("[")
    with pytest.raises(ConfigError, match=r"ottla-sink\.json: found no JSON"):
        stream_writer(given, schema)


@pytest.mark.parametrize("changed", ["prefix", "topic"])
def test_a_batch_that_was_decided_with_another_prefix_or_topic_is_refused(kafka, make_topic, batch, changed):
    """Of a query whose checkpoint is on an object store: nothing is kept beside it."""
    batch.run(0)
    decided_and_died(batch, 1, (0, 0, 0), ends=[0])
    change = {"topic": make_topic("other")} if changed == "topic" else {"transactional_id_prefix": "other"}
    other = Batch(batch.cluster, replace(batch.options, **change))
    other.query = batch.query
    messages = other.prepare(1)
    wanted = "transactionalIdPrefix: found 'other'" if changed == "prefix" else "topic: found '.*other.*'"
    with pytest.raises(ConfigError, match=f"{wanted}, wanted '{batch.options.topic}', with which this checkpoint"):
        commit_batch(other.options, other.cluster, messages, 1)
    abort_batch(other.cluster, messages)  # as Spark does
    batch.run(1)
    other.run(2)  # after a batch that was committed whole
    other.run(3)
    written = committed(kafka, batch) + (committed(kafka, other) if changed == "topic" else [])
    assert sorted(written) == expected(0, 1, 2, 3)


def decided_by_another_prefix(batch):
    """Another query on the same checkpoint and topic, at a batch that the first had committed in part."""
    batch.run(0)
    decided_and_died(batch, 1, (0, 0, 0), ends=[0])
    other = Batch(batch.cluster, replace(batch.options, transactional_id_prefix="other"))
    other.query = batch.query
    return other


@pytest.mark.parametrize("answer", ["COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "REQUEST_TIMED_OUT"])
def test_groups_of_a_coordinator_that_loads_are_waited_for(own_kafka, own_batch, answer):
    """It lists the groups of those partitions that it has loaded, and leaves the decision out."""
    other = decided_by_another_prefix(own_batch)
    messages = other.prepare(1)
    with (
        own_kafka.faults.add(api="LIST_GROUPS", error=answer, count=2) as answered,
        pytest.raises(ConfigError, match="transactionalIdPrefix: found 'other'"),
    ):
        commit_batch(other.options, other.cluster, messages, 1)
    assert answered.hits == 2
    abort_batch(other.cluster, messages)  # as Spark does
    own_batch.run(1)
    assert committed(own_kafka, own_batch) == expected(0, 1)


def test_a_batch_is_not_committed_unchecked_if_a_broker_lists_no_groups(own_kafka, own_batch):
    other = decided_by_another_prefix(own_batch)
    messages = other.prepare(1)
    impatient = wire_settings(
        {"retry.backoff.ms": 10, "default.api.timeout.ms": 300, "request.timeout.ms": 300},
        bootstrap_servers=own_kafka.bootstrap_servers,
    )
    with (
        own_kafka.faults.add(api="LIST_GROUPS", error="COORDINATOR_LOAD_IN_PROGRESS"),
        Cluster(impatient) as cluster,
        pytest.raises(RetriableError, match=r"gave up after 0\.3 s .*COORDINATOR_LOAD_IN_PROGRESS"),
    ):
        commit_batch(other.options, cluster, messages, 1)
    abort_batch(other.cluster, messages)
    own_batch.run(1)
    assert committed(own_kafka, own_batch) == expected(0, 1)


@pytest.mark.parametrize("api", ["LIST_GROUPS", "OFFSET_FETCH"])
def test_a_batch_that_the_acls_let_nobody_check_is_committed_with_a_warning(own_kafka, own_batch, caplog, api):
    """LIST_GROUPS names groups that the client may not describe where it may describe the cluster."""
    other = decided_by_another_prefix(own_batch)
    group = f"{own_batch.options.transactional_id_prefix}-{own_batch.query}"
    of_group = {"group": group} if api == "OFFSET_FETCH" else {}
    with own_kafka.faults.add(api=api, error="GROUP_AUTHORIZATION_FAILED", **of_group) as answered:
        other.run(1)
    assert answered.hits
    (warning,) = [each.getMessage() for each in caplog.records if each.name == "ottla.spark.writing.sink_identity"]
    looked_at = "the groups of the cluster" if api == "LIST_GROUPS" else f"group {group}"
    assert f"batch 1 is committed without a look at {looked_at}: " in warning
    assert "its rows may be written twice" in warning


def test_a_batch_without_rows_needs_no_transaction(kafka, batch):
    commit_batch(batch.options, batch.cluster, batch.prepare(0, rows=[]), 0)
    batch.run(1)
    assert committed(kafka, batch) == expected(1)


def test_a_replay_by_fewer_tasks_is_noticed_though_only_the_last_task_had_rows(kafka, batch):
    last = Work(query=batch.query, batch=0, task=2)
    messages = batch.prepare(0, tasks=2, rows=[])
    messages.append(prepare_task(batch.options, batch.cluster, last, iter(batch.rows(0, 2))))
    commit_batch(batch.options, batch.cluster, messages, 0)
    with pytest.raises(ReplayDiffers, match="was partly committed by 3 tasks and is now written by 2"):
        commit_batch(batch.options, batch.cluster, batch.prepare(0, tasks=2, rows=[]), 0)


def test_a_batch_that_takes_longer_than_its_transactions_may_is_not_committed_and_can_come_again():
    """The broker aborts them. The driver learns that it came too late, and Spark runs the batch again."""
    with EmbeddedCluster(clock=VirtualClock()) as kafka:
        kafka.create_topic("out")
        settings = wire_settings({"retry.backoff.ms": 10}, bootstrap_servers=kafka.bootstrap_servers)
        with Cluster(settings) as cluster:
            batch = Batch(cluster, SinkOptions(wire=settings, topic="out", is_exactly_once=True))
            messages = batch.prepare(0)
            kafka.clock.advance(minutes=11)
            with pytest.raises(FencedError, match=r"it has timed out \(transaction\.timeout\.ms\)"):
                commit_batch(batch.options, cluster, messages, 0)
            abort_batch(cluster, messages)
            assert committed(kafka, batch) == []
            batch.run(0)
            deadline = time.monotonic() + 60
            while committed(kafka, batch) != expected(0):  # the partition hears of the decision a moment later
                assert time.monotonic() < deadline


def test_a_batch_write_is_visible_when_the_job_is_done_and_not_at_all_when_it_fails(kafka, make_topic):
    topic = make_topic(partitions=2)
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic, "delivery": "exactly-once"}
    schema = StructType([StructField("value", StringType())])

    def visible():
        table = ottla.columnar.read(topic, bootstrap_servers=kafka.bootstrap_servers, columns=["value"]).read_all()
        return table.column("value").to_pylist()

    for finish in ("abort", "commit"):
        writer = pickle.loads(pickle.dumps(batch_writer(given, schema, overwrite=False)))
        message = writer.write(iter([pa.record_batch({"value": [finish]})]))
        assert visible() == []
        getattr(writer, finish)([None, message] if finish == "abort" else [message])
    deadline = time.monotonic() + 60
    while visible() != [b"commit"]:  # the partitions hear of the decision a moment later
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ("key STRING", {"topic": "t"}, "needs a column value; found key"),
        ("value INT", {"topic": "t"}, "column value: found int, wanted binary or string"),
        ("value STRING", {}, "needs the option topic, or a column topic"),
        ("value STRING, topic STRING", {"delivery": "exactly-once"}, "exactly-once needs the option topic"),
        ("value STRING, colour INT", {"topic": "t"}, "no column colour"),
    ],
)
def test_rows_that_are_no_records_are_refused_by_the_columns_that_the_query_has(columns, options, reason):
    schema = StructType([StructField(*_field(column)) for column in columns.split(", ")])
    with pytest.raises(ConfigError, match=reason):
        batch_writer({"kafka.bootstrap.servers": "a:1"} | options, schema, overwrite=False)
    with pytest.raises(ConfigError, match=reason):
        stream_writer({"kafka.bootstrap.servers": "a:1"} | options, schema)


def _field(text):
    name, kind = text.split()
    return name, {"STRING": StringType(), "INT": IntegerType()}[kind]


def test_the_options_of_the_sink_are_checked(kafka):
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "t"}
    assert not sink_options(given).is_exactly_once
    chosen = sink_options(given | {"delivery": "exactly-once", "transactionTimeout": "2m"})
    assert (chosen.is_exactly_once, chosen.transaction_timeout_ms) == (True, 120_000)
    with pytest.raises(ConfigError, match="delivery: found 'once', wanted at-least-once or exactly-once"):
        sink_options(given | {"delivery": "once"})
