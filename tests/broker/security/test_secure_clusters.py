"""Three brokers behind TLS and SASL, of which one dies; and what a secure listener keeps to itself."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from broker_embedded.cluster import EmbeddedCluster, Security
from broker_embedded.common.errors import StartupError
from broker_embedded.server.net.secure_connection import SecureConnection
from ottla.columnar import Cluster, read, wire_settings
from ottla.testing import Certificates, SecureKafka, secure_kafka
from ottla_wire.protocol import ApiKey


def test_nothing_is_lost_when_a_leader_dies_and_clients_come_back_with_their_password() -> None:
    with secure_kafka("SASL_SSL", brokers=3) as kafka:
        cluster = kafka.cluster
        assert cluster is not None
        kafka.create_topic("orders", replication_factor=3, config={"min.insync.replicas": 2})
        producer = Producer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
                **kafka.settings,
            }
        )
        acknowledged: list[bytes | None] = []
        refused: list[str] = []

        def on_delivery(error: object, message: object) -> None:
            if error is None:
                acknowledged.append(message.value())  # type: ignore[attr-defined]
            else:
                refused.append(str(error))

        victim = cluster.wait_for_leader("orders")
        for number in range(3_000):
            producer.produce("orders", b"%d" % number, on_delivery=on_delivery)
            producer.poll(0)
            if number == 1_000:
                wait_until(lambda: producer.poll(0.05) >= 0 and bool(acknowledged))
                cluster.kill(victim)
        assert producer.flush(60) == 0
        assert refused == []
        assert cluster.wait_for_leader("orders") != victim
        cluster.start_broker(victim)
        cluster.wait_for_isr("orders")
        values = read("orders", bootstrap_servers=kafka.bootstrap_servers, settings=kafka.settings).read_all()["value"]
        assert values.to_pylist() == [b"%d" % number for number in range(3_000)]
        assert len(acknowledged) == 3_000


def wait_until(condition: Callable[[], bool], *, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"


def test_a_broker_says_which_protocol_it_listens_with() -> None:
    with secure_kafka("SASL_SSL") as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, **kafka.settings})
        (future,) = admin.describe_configs([ConfigResource("broker", "1")]).values()
        assert future.result(30)["listeners"].value == f"SASL_SSL://{kafka.bootstrap_servers}"


# --- handshakes that come to nothing


def connection_to(kafka: SecureKafka) -> socket.socket:
    host, port = kafka.bootstrap_servers.split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def is_closed_by_peer(client: socket.socket) -> bool:
    """Wait for the end of the stream; an alert before it is dropped."""
    try:
        while client.recv(1_000):
            pass
    except ConnectionResetError:
        pass
    return True


def is_served(kafka: SecureKafka) -> bool:
    return read("orders", bootstrap_servers=kafka.bootstrap_servers, settings=kafka.settings).read_all().num_rows == 0


def test_who_never_finishes_the_handshake_holds_up_nobody_and_no_stop() -> None:
    with secure_kafka("SSL") as kafka:
        kafka.create_topic("orders")
        silent, chatty = connection_to(kafka), connection_to(kafka)
        chatty.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert is_served(kafka)
        assert is_closed_by_peer(chatty)
    assert is_closed_by_peer(silent)
    silent.close()
    chatty.close()


def talk(context: ssl.SSLContext, raw: socket.socket) -> None:
    """TLS 1.3 hears of a refused certificate with the first bytes that it reads."""
    with context.wrap_socket(raw, server_hostname="localhost") as client:
        client.sendall(bytes(4))
        if client.recv(1) == b"":
            raise EOFError


@pytest.mark.parametrize("auth", ["requested", "required"])
def test_a_certificate_that_is_asked_for_must_be_of_the_right_authority(auth: str) -> None:
    with secure_kafka("SSL", client_auth=auth) as kafka, secure_kafka("SSL") as other:
        kafka.create_topic("orders")
        assert is_served(kafka)
        assert kafka.certificates is not None
        assert other.certificates is not None
        context = ssl.create_default_context(cafile=kafka.certificates.ca)
        context.load_cert_chain(other.certificates.client)
        with connection_to(kafka) as raw, pytest.raises((OSError, EOFError)):
            talk(context, raw)
        assert is_served(kafka)


def test_a_certificate_that_is_only_requested_may_be_left_out() -> None:
    with secure_kafka("SSL", client_auth="requested") as kafka:
        kafka.create_topic("orders")
        assert kafka.certificates is not None
        bare = {"security.protocol": "SSL", "ssl.ca.location": str(kafka.certificates.ca)}
        assert read("orders", bootstrap_servers=kafka.bootstrap_servers, settings=bare).read_all().num_rows == 0


# --- what it is started with


def test_a_file_that_holds_no_certificate_is_named(certificates: Certificates) -> None:
    for security, message in (
        (Security("SSL", certificate=certificates.ca), "no certificate and key can be read from .*ca.pem"),
        (Security("SSL", certificate="/nowhere/x.pem"), "/nowhere/x.pem: No such file"),
        (
            Security("SSL", certificate=certificates.server, key=certificates.client),
            "server.pem and .*client.pem: key values mismatch",
        ),
        (
            Security("SSL", certificate=certificates.server, client_ca="/nowhere/ca.pem"),
            "no certificate authority can be read from /nowhere/ca.pem: No such file",
        ),
    ):
        with pytest.raises(StartupError, match=message):
            EmbeddedCluster(security=security).start()


@pytest.mark.parametrize(
    ("protocol", "options", "message"),
    [
        ("TLS", {}, "security protocol: found 'TLS', wanted PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("SSL", {}, "SSL needs the broker's certificate"),
        ("SASL_PLAINTEXT", {"mechanisms": ()}, "needs a SASL mechanism"),
        ("SASL_PLAINTEXT", {"mechanisms": ("GSSAPI",)}, "SASL mechanism: found 'GSSAPI', wanted PLAIN, SCRAM"),
        ("SASL_PLAINTEXT", {"users": {"alice": ""}}, "a name or a password is empty"),
        ("SASL_PLAINTEXT", {"certificate": "x.pem"}, "shows no certificate"),
        ("SSL", {"certificate": "x.pem", "users": {"alice": "x"}}, "asks for no password"),
        ("SSL", {"certificate": "x.pem", "client_auth": "required"}, "client_auth=required needs client_ca"),
        ("SSL", {"certificate": "x.pem", "client_auth": "maybe"}, "client_auth: found 'maybe', wanted none"),
    ],
)
def test_what_does_not_go_together_is_refused(protocol: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(StartupError, match=message):
        Security(protocol, **options)  # type: ignore[arg-type]


def test_passwords_are_not_shown() -> None:
    security = Security("SASL_SSL", users={"alice": "s3cret"}, certificate="x.pem", key_password="k3y")
    assert "s3cret" not in repr(security)
    assert "k3y" not in repr(security)


# --- who clients are


@pytest.mark.parametrize(
    ("options", "principal"),
    [
        ({"protocol": "SSL"}, "User:ANONYMOUS"),
        ({"protocol": "SSL", "client_auth": "required"}, "User:CN=test-client,"),
        ({"protocol": "SASL_SSL", "client_auth": "required"}, "User:alice"),
        ({"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN"}, "User:alice"),
    ],
)
def test_the_broker_knows_who_a_client_is(options: dict[str, str], principal: str) -> None:
    with secure_kafka(**options) as kafka:  # type: ignore[arg-type]
        assert kafka.cluster is not None
        kafka.create_topic("orders")
        with Cluster(wire_settings(kafka.settings, bootstrap_servers=kafka.bootstrap_servers)) as client:
            assert client.topic("orders") is not None
            (connection, *_) = kafka.cluster._cluster.brokers[1].server.connections
            assert isinstance(connection, SecureConnection)
            assert connection.principal.startswith(principal)


# --- much, and slowly


def test_a_client_that_asks_for_much_and_reads_late_gets_all_of_it_encrypted() -> None:
    with secure_kafka("SSL") as kafka:
        kafka.create_topic("orders")
        values = [bytes([number]) * 500_000 for number in range(20)]
        kafka.produce("orders", values)
        settings = wire_settings(kafka.settings, bootstrap_servers=kafka.bootstrap_servers)
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50_000_000}
        fetch = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 50_000_000,
            "topics": [{"topic": "orders", "partitions": [partition]}],
        }
        with Cluster(settings) as client:
            connection = client.any_broker()
            for _ in range(5):  # far more than sockets and buffers hold
                connection.send(ApiKey.FETCH, fetch, newest=12)  # by name
            for _ in range(5):
                records = bytes(connection.receive().responses[0].partitions[0].records)
                assert len(records) > len(values) * 500_000
                assert all(value in records for value in values)
