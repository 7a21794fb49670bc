"""What was planned of one topic is never read from another one that has its name since (KIP-516)."""

from __future__ import annotations

import logging

import pytest
from created_anew import create_anew

import ottla.columnar as columnar
from ottla.columnar import Cluster, DataLoss, OffsetRange, OnDataLoss, TopicRecreated, read_ranges, wire_settings
from ottla_wire.protocol import ApiKey

TIMEOUT_MS = 20_000


@pytest.fixture
def client(kafka):
    with Cluster(wire_settings({"default.api.timeout.ms": TIMEOUT_MS}, bootstrap_servers=kafka.bootstrap_servers)) as c:
        yield c


@pytest.fixture
def orders(kafka, make_topic):
    """A topic that can be deleted and created anew."""
    return Orders(kafka, make_topic("orders", partitions=2))


class Orders:
    def __init__(self, kafka, name):
        self._kafka, self.name = kafka, name

    def fill(self, texts):
        for partition in range(2):
            self._kafka.produce(self.name, texts, partition=partition)

    def create_anew(self, texts):
        create_anew(self._kafka, self.name, partitions=2)
        self.fill(texts)

    def ranges(self, client, end=3):
        topic_id = client.topic(self.name).topic_id
        assert topic_id is not None
        return [OffsetRange(topic=self.name, partition=p, start=0, end=end, topic_id=topic_id) for p in range(2)]


def values(batches):
    return sorted(value.as_py().decode() for batch in batches for value in batch.column("value"))


def test_a_topic_that_was_created_anew_before_the_first_fetch_is_said(orders, client):
    orders.fill(["old"] * 3)
    planned = orders.ranges(client)
    orders.create_anew(["new"] * 3)
    with pytest.raises(TopicRecreated, match=f"{orders.name} was deleted and created anew; offsets 0 to 2 of"):
        list(read_ranges(client, planned))


def test_a_topic_that_is_created_anew_between_two_fetches_is_said(kafka, orders):
    small = {"max.partition.fetch.bytes": 1, "fetch.max.bytes": 1, "default.api.timeout.ms": TIMEOUT_MS}
    for number in range(6):  # batches of their own: a fetch brings one of them
        orders.fill([f"old {number}"])
    with Cluster(wire_settings(small, bootstrap_servers=kafka.bootstrap_servers)) as client:
        reading = read_ranges(client, orders.ranges(client, end=6))
        read = [next(reading)]
        orders.create_anew([f"new {number}" for number in range(9)])
        with pytest.raises(TopicRecreated, match=r"of the old topic were not read"):
            read.extend(reading)
    assert all(value.startswith("old") for value in values(read))


@pytest.mark.parametrize("policy", [OnDataLoss.EARLIEST, OnDataLoss.LATEST, OnDataLoss.SKIP])
def test_where_losses_are_allowed_the_new_topic_is_still_not_read_for_the_old_one(orders, client, policy, caplog):
    orders.fill(["old"] * 3)
    planned = orders.ranges(client)
    orders.create_anew(["new"] * 3)
    losses = []
    with caplog.at_level(logging.WARNING):
        assert values(read_ranges(client, planned, on_data_loss=policy, report_loss=losses.append)) == []
    assert sorted(losses, key=lambda loss: loss.partition) == [
        DataLoss(topic=orders.name, partition=p, first_missing=0, resumed_at=3) for p in range(2)
    ]
    assert "created anew" in caplog.text


def test_a_reader_that_was_made_before_does_not_read_the_new_topic(kafka, orders):
    orders.fill(["old"] * 3)
    reader = columnar.read(orders.name, bootstrap_servers=kafka.bootstrap_servers)
    orders.create_anew(["new"] * 3)
    with pytest.raises(TopicRecreated, match="created anew"):
        reader.read_all()


def test_a_range_of_no_topic_in_particular_is_of_the_one_that_has_the_name(orders, client):
    orders.fill(["old"] * 3)
    client.topic(orders.name)  # remembered, and no longer right
    orders.create_anew(["new"] * 3)
    wanted = [OffsetRange(topic=orders.name, partition=p, start=0, end=3) for p in range(2)]
    assert values(read_ranges(client, wanted)) == ["new"] * 6


@pytest.mark.parametrize("newest", [12, 13])
def test_brokers_that_know_no_ids_are_asked_by_name(orders, client, newest, monkeypatch):
    orders.fill(["a", "b", "c"])
    node = client.leader(orders.ranges(client)[0].topic_partition)
    connection = client.broker(node, borrower=object())  # idle: whoever reads is given the same
    monkeypatch.setitem(connection._pipeline._versions, ApiKey.FETCH, (4, newest))
    asked = []
    send = connection.send

    def watched(api_key, body, **options):
        asked.append(sorted(body["topics"][0]))
        send(api_key, body, **options)

    monkeypatch.setattr(connection, "send", watched)
    assert values(read_ranges(client, orders.ranges(client))) == ["a", "a", "b", "b", "c", "c"]
    assert set(map(tuple, asked)) == {("partitions", "topic" if newest == 12 else "topic_id")}
