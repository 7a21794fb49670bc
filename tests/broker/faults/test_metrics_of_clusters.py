"""Prometheus' text of a cluster: Kafka's names, figures that are true, through the control API."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.control import ControlServer
from broker_embedded.cluster.facts import EmbeddedClusterFacts, GroupFacts
from broker_embedded.cluster.metrics import BrokerFigures, metrics_text
from ottla import Consumer, Producer
from ottla.testing.waiting import wait_until

PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")


class Scraped:
    """`GET /metrics` of a cluster of three."""

    def __init__(self, cluster: EmbeddedCluster, port: int) -> None:
        self.cluster = cluster
        self._port = port

    def text(self) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", "/metrics")
            response = connection.getresponse()
            assert response.status == 200
            assert (response.getheader("Content-Type") or "").startswith("text/plain; version=0.0.4")
            return response.read().decode()
        finally:
            connection.close()

    def value(self, name: str, **labels: str) -> float:
        """The sum over the samples that have these labels."""
        found = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", self.text(), re.MULTILINE)
        assert found, name
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        return sum(float(value) for own, value in found if wanted <= set(own.split(",")))


@pytest.fixture
def scraped() -> Iterator[Scraped]:
    with EmbeddedCluster(brokers=3) as cluster:
        assert cluster._loop is not None
        server = ControlServer(cluster._control)
        asyncio.run_coroutine_threadsafe(server.start(), cluster._loop).result(30)
        yield Scraped(cluster, int(server.url.rpartition(":")[2]))
        asyncio.run_coroutine_threadsafe(server.stop(), cluster._loop).result(30)


def test_requests_logs_and_groups_are_counted(scraped: Scraped) -> None:
    servers = scraped.cluster.bootstrap_servers
    scraped.cluster.create_topic("orders", partitions=2, replication_factor=3)
    with Producer(servers) as producer:
        for number in range(100):
            producer.send("orders", os.urandom(50), partition=number % 2)
    with Consumer("orders", group="billing", bootstrap_servers=servers) as consumer:
        assert len([record for _, record in zip(range(100), consumer, strict=False)]) == 100
        assert scraped.value("kafka_coordinator_group_members", group="billing") == 1
        assert scraped.value("kafka_server_socketservermetrics_connection_count") > 0

    assert scraped.value("kafka_network_requestmetrics_requests_total", request="PRODUCE") > 0
    assert scraped.value("kafka_network_requestmetrics_requestbytes_total", request="PRODUCE") > 100 * 50
    assert scraped.value("kafka_network_requestmetrics_requests_total", request="FETCH") > 0
    assert scraped.value("kafka_controller_kafkacontroller_activecontrollercount") == 1
    wait_until(lambda: scraped.value("kafka_log_log_logendoffset", topic="orders") == 3 * 100)
    wait_until(lambda: scraped.value("kafka_server_fetcherlagmetrics_consumerlag", topic="orders") == 0)
    assert scraped.value("kafka_log_log_size", topic="orders") > 3 * 100 * 50


def test_a_broker_that_dies_is_seen_in_under_replicated_partitions(scraped: Scraped) -> None:
    scraped.cluster.create_topic("orders", partitions=3, replication_factor=3)
    assert scraped.value("kafka_server_replicamanager_underreplicatedpartitions") == 0

    scraped.cluster.kill(scraped.cluster.broker_ids[-1])
    wait_until(lambda: scraped.value("kafka_server_replicamanager_underreplicatedpartitions") >= 3, timeout_s=60)
    assert scraped.value("kafka_controller_kafkacontroller_offlinepartitionscount") == 0


def test_names_of_groups_are_escaped() -> None:
    facts = EmbeddedClusterFacts(groups={"x": GroupFacts(group='a "b"\n\\', state="Stable", members=2)})

    text = metrics_text(facts, {})
    assert 'kafka_coordinator_group_members{group="a \\"b\\"\\n\\\\",state="Stable"} 2\n' in text


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool on PATH, nor in $PROMTOOL")
def test_prometheus_reads_it(scraped: Scraped) -> None:
    done = subprocess.run(
        [str(PROMTOOL), "check", "metrics"], input=scraped.text(), capture_output=True, text=True, check=False
    )
    assert "error while linting" not in done.stderr
    assert done.returncode in (0, 3), done.stderr  # 3: it would have named some otherwise


def test_a_broker_that_counted_nothing_has_no_requests() -> None:
    text = metrics_text(EmbeddedClusterFacts(), {1: BrokerFigures()})

    assert "kafka_network_requestmetrics_requests_total" not in text
    assert 'kafka_server_socketservermetrics_connection_count{broker="1"} 0' in text
