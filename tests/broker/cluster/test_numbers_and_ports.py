"""What foreign suites have written into their code can be chosen: the first broker's number, and each broker's port."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.openness import what_is_open
from broker_embedded.common.errors import StartupError
from broker_embedded.process import EXIT_CANNOT_START, main
from broker_embedded.security.settings import Security
from ottla_wire.protocol import ApiKey


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.mark.representative("1")
@pytest.mark.parametrize("brokers", [1, 3])
def test_brokers_may_be_numbered_from_zero(tmp_path: Path, brokers: int) -> None:
    records = 0
    for _ in range(2):  # and are found again by that number
        with EmbeddedCluster(brokers, data_dir=tmp_path, first_broker_id=0) as cluster:
            assert cluster.broker_ids == list(range(brokers))
            if records == 0:
                cluster.create_topic("t", partitions=brokers, replication_factor=brokers)
            assert {cluster.wait_for_leader("t", each) for each in range(brokers)} <= set(range(brokers))
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
            for each in range(brokers):
                producer.produce("t", b"v", partition=each)
            assert producer.flush(30) == 0
            records += brokers
            if brokers > 1:
                cluster.kill(0)
                assert all(cluster.wait_for_leader("t", each) != 0 for each in range(brokers))
                cluster.start_broker(0)
            assert count_of(cluster, records) == records


def count_of(cluster: EmbeddedCluster, wanted: int) -> int:
    """What a group reads, so that a coordinator is found too."""
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": f"g-{wanted}",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings | {"enable.auto.commit": False})
    consumer.subscribe(["t"])
    try:
        return len(consumer.consume(wanted, 30))
    finally:
        consumer.close()


def test_each_broker_may_have_a_port_of_its_own() -> None:
    ports = free_ports(3)
    with EmbeddedCluster(3, ports=ports) as cluster:
        client = WireClient(cluster.bootstrap_servers)
        told = client.call(ApiKey.METADATA, 9, {"topics": []}).brokers
        client.close()
    assert {each.node_id: each.port for each in told} == dict(enumerate(ports, start=1))


def test_clients_are_told_the_advertised_host() -> None:
    with EmbeddedCluster(3, advertised_host="localhost") as cluster:
        assert {each.split(":")[0] for each in cluster.bootstrap_servers.split(",")} == {"localhost"}
        client = WireClient(cluster.bootstrap_servers)
        told = client.call(ApiKey.METADATA, 9, {"topics": []}).brokers
        coordinator = client.call(ApiKey.FIND_COORDINATOR, 3, {"key": "g", "key_type": 0})
        client.close()
        cluster.create_topic("t", partitions=3, replication_factor=3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        producer.produce("t", b"v")
        assert producer.flush(30) == 0
        assert count_of(cluster, 1) == 1
    assert {each.host for each in told} == {"localhost"}
    assert coordinator.host == "localhost"


def test_the_command_takes_numbers_ports_and_host() -> None:
    ports = free_ports(2)
    options = ["--brokers", "2", "--first-broker-id", "0", "--ports", ",".join(map(str, ports))]
    command = [sys.executable, "-m", "ottla", "broker", "start", *options, "--advertised-host", "localhost"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready bootstrap=localhost:{ports[0]},localhost:{ports[1]}\n"
        client = WireClient(f"127.0.0.1:{ports[0]}")
        told = client.call(ApiKey.METADATA, 9, {"topics": []}).brokers
        client.close()
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert {(each.node_id, each.host, each.port) for each in told} == {
        (0, "localhost", ports[0]),
        (1, "localhost", ports[1]),
    }


def test_an_advertised_broker_listens_beyond_loopback_and_says_what_is_open() -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "ottla", "broker", "start", "--port", str(port), "--advertise", "127.0.0.2"]
    pipe = subprocess.PIPE
    process = subprocess.Popen([*command, "--log-level", "error"], stdout=pipe, stderr=pipe, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready bootstrap=127.0.0.2:{port}\n"
        client = WireClient(f"127.0.0.2:{port}")
        (told,) = client.call(ApiKey.METADATA, 9, {"topics": []}).brokers
        client.close()
    finally:
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert (told.host, told.port) == ("127.0.0.2", port)
    assert said == (
        f"broker_embedded: listening on 0.0.0.0, port {port}: every machine that reaches it can read, write and delete"
        " everything, no login; data unencrypted (PLAINTEXT). For development only\n"
    )


def test_a_killed_broker_keeps_its_port_on_the_address_that_it_listens_on() -> None:
    with EmbeddedCluster(3, advertised_host="127.0.0.2", listen_host="127.0.0.2") as cluster:
        addresses = cluster.bootstrap_servers.split(",")
        cluster.kill(2)
        with pytest.raises(OSError, match="refused"):
            WireClient(addresses[1]).call(ApiKey.METADATA, 9, {"topics": []})
        cluster.start_broker(2)
        assert cluster.bootstrap_servers.split(",") == addresses
        client = WireClient(addresses[1])
        assert len(client.call(ApiKey.METADATA, 9, {"topics": []}).brokers) == 3
        client.close()


OPENNESS = [
    ("127.0.0.1", None, None),
    ("localhost", None, None),
    ("0.0.0.0", None, "can read, write and delete everything, no login; data unencrypted (PLAINTEXT)"),
    ("10.0.0.1", Security("SSL", certificate="c.pem"), "everything, no login; encrypted (SSL)"),
    (
        "10.0.0.1",
        Security("SSL", certificate="c.pem", client_ca="ca.pem", client_auth="required"),
        "needs a login to read, write and delete; encrypted (SSL)",
    ),
    (
        "0.0.0.0",
        Security("SASL_PLAINTEXT", users={"alice": "s3cret"}),
        "needs a login to read, write and delete; data and passwords unencrypted (SASL_PLAINTEXT)",
    ),
    ("0.0.0.0", Security("SASL_PLAINTEXT", mechanisms=["OAUTHBEARER"]), "everything, no login"),
]


@pytest.mark.parametrize(("host", "security", "said"), OPENNESS)
def test_what_is_open_follows_from_address_login_and_encryption(
    host: str, security: Security | None, said: str | None
) -> None:
    found = what_is_open(host, [9092, 9093], security)
    assert found is None if said is None else (found is not None and said in found)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--advertise", "kafka", "--advertised-host", "kafka"], "wanted one of them"),
        (["--listen", "0.0.0.0"], "found --listen without --advertise"),
        (["--advertise", "kafka:9092"], "wanted a host's name"),
        (["--advertise", "a" * 256], "wanted a host's name"),
        (["--advertise", "kafka", "--listen", "203.0.113.1"], "cannot listen on 203.0.113.1"),
        (["--advertise", "kafka", "--listen", "::1"], "cannot listen on ::1"),
    ],
)
def test_addresses_that_cannot_be_are_refused_in_a_line(options: list[str], said: str) -> None:
    command = [sys.executable, "-m", "ottla", "broker", "start", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr.splitlines()[-1]


def test_every_address_alone_is_none_that_clients_could_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--listen", "0.0.0.0"]) == EXIT_CANNOT_START
    assert "found 0.0.0.0 without advertised_host" in capsys.readouterr().err


@pytest.mark.parametrize("ports", ["1,two", "70000", "", "9" * 5_000])
def test_ports_that_are_none_are_refused_in_a_line(ports: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--ports", ports]) == EXIT_CANNOT_START
    assert f"--ports: found {ports!r}, wanted numbers" in capsys.readouterr().err


WRONG = [{"first_broker_id": -1}, {"ports": [1, 2]}, {"advertised_host": "localhost:9092"}, {"advertised_host": ""}]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_numbers_and_ports_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(StartupError, match=f"{next(iter(wrong))}: found"):
        EmbeddedCluster(3, **wrong)
