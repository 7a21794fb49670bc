"""The broker dies half way through `ottla dlq redrive`: every dead letter is sent once, by this run or by the next."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from broker_embedded.cluster import EmbeddedCluster
from ottla.cli import main
from ottla.testing import Kafka
from ottla.testing.topics import create_topic

LETTERS = [b"%d" % number for number in range(60)]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"group.initial.rebalance.delay.ms": 0}) as running:
        yield running


def test_a_redrive_goes_on_when_the_broker_is_back(cluster: EmbeddedCluster) -> None:
    kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
    create_topic(kafka.bootstrap_servers, "orders", partitions=1)
    create_topic(kafka.bootstrap_servers, "dead", partitions=1)
    kafka.produce("dead", LETTERS, headers=[("ottla-dlq-topic", b"orders"), ("ottla-dlq-partition", b"0")])
    command = ["dlq", "redrive", "dead", "--yes", "-b", kafka.bootstrap_servers]
    with (
        ThreadPoolExecutor(1) as pool,
        cluster.faults.add(api="PRODUCE", topic="orders", hold=True, after_apply=True, count=1) as held,
    ):
        running = pool.submit(CliRunner().invoke, main, command)
        held.wait(hits=1, timeout_s=30)
        cluster.kill(1)
        held.release()
        cluster.start_broker(1)
        ended = running.result(90)
    assert ended.exit_code == 0, ended.output
    assert f"{len(LETTERS)} sent" in ended.output
    assert sorted(record.raw_value or b"" for record in kafka.consume_all("orders")) == sorted(LETTERS)
    assert "0 sent" in CliRunner().invoke(main, command).output
