"""Transactions that one client writes and another ends; markers; fencing. Seen by librdkafka as read_committed."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ottla.columnar
from ottla.columnar import (
    Cluster,
    Outcome,
    TopicWriter,
    add_marker,
    begin_transaction,
    end_transaction,
    read_marker,
    wire_settings,
)
from ottla.errors import FencedError, RecordTooLarge
from ottla.records import TopicPartition


@pytest.fixture
def cluster(kafka):
    with Cluster(wire_settings(bootstrap_servers=kafka.bootstrap_servers)) as opened:
        yield opened


@pytest.fixture
def other(kafka):
    with Cluster(wire_settings(bootstrap_servers=kafka.bootstrap_servers)) as opened:
        yield opened


def write_open(cluster, topic, transactional_id):
    transaction = begin_transaction(cluster, transactional_id)
    writer = TopicWriter(cluster, topic=topic, transaction=transaction)
    writer.write(pa.record_batch({"value": ["a", "b", "c"]}))
    assert writer.flush().rows == 3
    return transaction


def visible(kafka, topic):
    table = ottla.columnar.read(topic, bootstrap_servers=kafka.bootstrap_servers).read_all()
    return sorted(table.column("value").to_pylist())


def test_what_one_client_wrote_another_commits(cluster, other, kafka, make_topic):
    topic = make_topic(partitions=3)
    transaction = write_open(cluster, topic, topic)
    assert visible(kafka, topic) == []
    end_transaction(other, transaction, Outcome.COMMIT)
    end_transaction(other, transaction, Outcome.COMMIT)  # the answer to the first one may have been lost
    assert sorted(r.raw_value for r in kafka.consume_all(topic, at_least=3)) == [b"a", b"b", b"c"]
    assert visible(kafka, topic) == [b"a", b"b", b"c"]


def test_what_is_aborted_was_never_there(cluster, other, kafka, make_topic):
    topic = make_topic()
    end_transaction(other, write_open(cluster, topic, topic), Outcome.ABORT)
    second = write_open(cluster, topic, topic)
    end_transaction(other, second, Outcome.COMMIT)
    assert [r.raw_value for r in kafka.consume_all(topic, at_least=3)] == [b"a", b"b", b"c"]


def test_beginning_again_aborts_what_was_left_open_and_fences_its_holder(cluster, other, kafka, make_topic):
    topic = make_topic()
    left_open = write_open(cluster, topic, topic)
    second = write_open(other, topic, topic)
    assert (second.producer_id, second.producer_epoch) > (left_open.producer_id, left_open.producer_epoch)
    with pytest.raises(FencedError, match="a newer attempt took over"):
        end_transaction(cluster, left_open, Outcome.COMMIT)
    end_transaction(other, second, Outcome.COMMIT)
    assert len(kafka.consume_all(topic, at_least=3)) == 3


def test_a_marker_is_there_exactly_when_its_transaction_was_committed(cluster, other, kafka, make_topic):
    topic = make_topic()
    group, place = f"{topic}-markers", TopicPartition(topic, 0)
    assert read_marker(other, group=group, place=place) is None

    aborted = write_open(cluster, topic, topic)
    add_marker(other, aborted, group=group, place=place, number=7, metadata="3 rows")
    end_transaction(other, aborted, Outcome.ABORT)
    assert read_marker(other, group=group, place=place) is None

    committed = write_open(cluster, topic, topic)
    add_marker(other, committed, group=group, place=place, number=8, metadata="3 rows")
    end_transaction(other, committed, Outcome.COMMIT)
    assert read_marker(other, group=group, place=place) == (8, "3 rows")


def test_a_marker_that_is_not_decided_yet_is_waited_for(cluster, other, kafka, make_topic):
    """Whoever begins anew must not read the marker of a commit that is still on its way."""
    topic = make_topic()
    group, place = f"{topic}-markers", TopicPartition(topic, 0)
    transaction = write_open(cluster, topic, topic)
    add_marker(cluster, transaction, group=group, place=place, number=1)
    pauses = []

    def sleep(_seconds):
        pauses.append(1)
        if len(pauses) == 3:
            end_transaction(other, transaction, Outcome.COMMIT)

    settings = wire_settings(bootstrap_servers=kafka.bootstrap_servers)
    with Cluster(settings, sleep=sleep) as waiting:
        assert read_marker(waiting, group=group, place=place) == (1, "")
    assert len(pauses) >= 3


def test_a_table_is_written_whole_or_not_at_all(kafka, make_topic):
    topic = make_topic(partitions=2, config={"max.message.bytes": 10_000})
    servers = {"bootstrap_servers": kafka.bootstrap_servers, "transactional_id": topic}
    half_good = pa.table({"value": pa.chunked_array([["a"], ["x" * 20_000]])})
    with pytest.raises(RecordTooLarge):
        ottla.columnar.write(topic, half_good, **servers)
    assert visible(kafka, topic) == []
    ottla.columnar.write(topic, pa.table({"value": ["a", "b"]}), **servers)
    ottla.columnar.write(topic, pa.table({"value": pa.array([], pa.string())}), **servers)
    assert sorted(r.raw_value for r in kafka.consume_all(topic, at_least=2)) == [b"a", b"b"]
