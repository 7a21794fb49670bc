"""Networks that are cut, Kafka away for a long time, thousands of connections: nothing is lost, memory is bounded."""

from __future__ import annotations

import resource
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from bridge_kit import Publisher, Start, missing
from broker_links import Link, Proxies
from foreign_brokers import free_port
from mqtt_client import StrictClient

from broker_embedded.cluster import EmbeddedCluster
from ottla.bridge.mqtt import packet_encoding as encoding
from ottla.bridge.mqtt.codes import V311
from ottla.bridge.mqtt.packets import Connect, Publish
from ottla.testing import Kafka, wait_until


def rss_mb(process: subprocess.Popen[str]) -> float:
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1_000_000


@contextmanager
def publishing(port: int, count: int = 3) -> Iterator[list[Publisher]]:
    """Publishers that come back after each loss, and are stopped with the block."""
    publishers = [Publisher(port, 4 + number % 2, f"p{number}") for number in range(count)]
    for publisher in publishers:
        publisher.thread.start()
    try:
        yield publishers
    finally:
        for publisher in publishers:
            publisher.stop()


def acknowledged(publishers: list[Publisher]) -> int:
    return sum(len(publisher.acknowledged) for publisher in publishers)


def await_more(publishers: list[Publisher], more: int = 200) -> None:
    before = acknowledged(publishers)
    wait_until(lambda: acknowledged(publishers) > before + more, timeout_s=90)


def await_silence(publishers: list[Publisher], for_s: float = 0.5) -> None:
    """Wait until nothing is acknowledged any more."""
    last = [acknowledged(publishers), time.monotonic()]

    def is_silent() -> bool:
        count = acknowledged(publishers)
        if count != last[0]:
            last[:] = [count, time.monotonic()]
        return time.monotonic() - last[1] > for_s

    wait_until(is_silent, timeout_s=30)


def cut(link: Link, publishers: list[Publisher]) -> None:
    assert link.cut() > 0


def deafen(link: Link, publishers: list[Publisher]) -> None:
    """The brokers take what is sent, and their answers are lost with the connections."""
    link.go_deaf()
    await_silence(publishers)
    link.cut()


def stall(link: Link, publishers: list[Publisher]) -> None:
    link.stall()
    await_silence(publishers)
    link.resume()


@pytest.mark.complete
@pytest.mark.parametrize("fault", [pytest.param(cut, marks=pytest.mark.representative), deafen, stall])
def test_every_acknowledged_message_is_in_kafka_when_the_network_to_it_is_cut(start: Start, fault):
    with EmbeddedCluster(brokers=3) as cluster:
        kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
        kafka.create_topic("m", partitions=3, replication_factor=3)
        proxies = Proxies(cluster.bootstrap_servers)
        try:
            link = proxies.link("bridge")
            port = free_port()
            start(link.bootstrap_servers, "--listen", f"127.0.0.1:{port}", "--map", "#=m")
            with publishing(port) as publishers:
                for _ in range(5):
                    await_more(publishers)
                    fault(link, publishers)
                await_more(publishers)
            assert not missing(publishers, kafka)
        finally:
            proxies.close()


def flood(port: int, number: int, payload: bytes) -> socket.socket:
    """A client of 3.1.1 that sends more small messages at once than the listener takes from one, and reads nothing."""
    made = socket.create_connection(("127.0.0.1", port), timeout=30)
    made.sendall(encoding.encode_connect(Connect(client_id=f"flood-{number}", version=V311, keep_alive_s=600)))
    assert made.recv(4) == b"\x20\x02\0\0"
    packets = b"".join(
        encoding.encode_publish(Publish(f"f/{number}", payload, qos=1, packet_id=packet_id), V311)
        for packet_id in range(1, 3_001)
    )
    made.sendall(packets)
    return made


def outage(start: Start, seconds: float, *, clients: int = 50) -> float:
    """Kafka is away for so long while clients send as much as is taken. Returns the MB that the bridge grew by."""
    with EmbeddedCluster() as cluster, ExitStack() as stack:
        kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
        kafka.create_topic("m", partitions=3)
        port = free_port()
        options = ("--map", "#=m", "--max-in-flight-bytes", "8388608")
        process = start(cluster.bootstrap_servers, "--listen", f"127.0.0.1:{port}", *options)
        with publishing(port) as publishers:
            await_more(publishers)
            before_mb = rss_mb(process)
            cluster.kill(1)
            until_s = time.monotonic() + seconds
            for number in range(clients):
                stack.callback(flood(port, number, b"x" * 30).close)
            grown_mb = 0.0

            def is_over() -> bool:
                nonlocal grown_mb
                grown_mb = max(grown_mb, rss_mb(process) - before_mb)
                return time.monotonic() >= until_s

            wait_until(is_over, timeout_s=seconds + 60)
            count = acknowledged(publishers)
            with StrictClient(port, "beside") as other:
                other.ping()
            assert acknowledged(publishers) == count, "nothing is acknowledged that Kafka does not have"
            cluster.start_broker(1)
            await_more(publishers)
        assert not missing(publishers, kafka)
        return grown_mb


@pytest.mark.complete
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "seconds", [pytest.param(5, marks=pytest.mark.representative), 60, pytest.param(600, marks=pytest.mark.soak)]
)
def test_memory_is_bounded_and_nothing_is_lost_while_kafka_is_away(start: Start, seconds: float):
    # 8 MiB of records in flight, twice; of each client 64 KiB of messages and as much that is not read yet.
    grown = outage(start, seconds)
    assert grown < 2 * 8.4 + 50 * 2 * 0.066 + 5


@pytest.mark.complete
def test_ten_thousand_idle_connections_take_less_than_400_mb(start: Start, make_topic, kafka: Kafka):
    port = free_port()
    process = start(kafka.bootstrap_servers, "--listen", f"127.0.0.1:{port}", "--map", f"#={make_topic()}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (11_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    before_mb = rss_mb(process)
    with ExitStack() as stack:
        for number in range(10_000):
            made = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            made.sendall(encoding.encode_connect(Connect(client_id=f"{number:06}", version=V311)))
            assert made.recv(4) == b"\x20\x02\0\0"
        assert rss_mb(process) - before_mb < 400
        with StrictClient(port, "one more") as client:
            client.publish("a", b"1")
            client.ack()


@pytest.mark.complete
def test_qos_2_ids_that_are_never_released_take_bounded_memory_and_stop_nobody_else(
    start: Start, make_topic, kafka: Kafka
):
    port = free_port()
    process = start(kafka.bootstrap_servers, "--listen", f"127.0.0.1:{port}", "--map", f"#={make_topic(partitions=3)}")
    before_mb = rss_mb(process)
    with StrictClient(port, "good", keep_alive_s=600) as good:
        for client in range(60):  # each with a session of its own, which outlives its connection
            with StrictClient(port, f"bad-{client}", version=V311, clean_start=False) as bad:
                for packet_id in range(1, 1_001):
                    bad.publish("a", b"x", qos=2, packet_id=packet_id)
                for _ in range(1_000):
                    bad.ack()
                bad.publish("a", b"x", qos=2, packet_id=1_001)
                with pytest.raises((EOFError, ConnectionError)):
                    bad.ack()
            good.publish("g", b"%d" % client, qos=2)
            good.ack()
            good.release(good.acknowledged[-1])
    assert rss_mb(process) - before_mb < 60
