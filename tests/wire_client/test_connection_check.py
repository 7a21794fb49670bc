"""What is said of an address where something else listens than a broker that takes these settings."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla import App
from ottla.admin import Admin
from ottla.config import Address
from ottla.errors import AuthenticationError, BrokerTooOld, ConfigError
from ottla.testing import SecureKafka, make_certificates, secure_kafka
from ottla.wire_client.net.connection_check import greet, probe
from ottla_wire.protocol import ApiKey

Serve = Callable[..., Address]
TLS = {"security.protocol": "SSL", "enable.ssl.certificate.verification": False}
LOGIN = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "x"}


@pytest.fixture(scope="module")
def tls_kafka() -> Iterator[SecureKafka]:
    with secure_kafka("SSL") as running:
        yield running


@pytest.fixture(scope="module")
def login_kafka() -> Iterator[SecureKafka]:
    with secure_kafka("SASL_PLAINTEXT", mechanism=("SCRAM-SHA-256", "PLAIN"), users={"alice": "secret"}) as running:
        yield running


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Serve]:
    """A web server, as a schema registry or an application on the next port is one."""
    servers: list[ThreadingHTTPServer] = []

    def serve(*, tls: bool) -> Address:
        server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(make_certificates(tmp_path).server)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # what it is asked is nonsense to it
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return Address("127.0.0.1", server.server_address[1])

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def listener() -> Iterator[Callable[[Callable[[socket.socket], Any]], Address]]:
    """Something that does with each connection what it is told, and then closes it."""
    sockets: list[socket.socket] = []

    def listen(answer: Callable[[socket.socket], Any]) -> Address:
        server = socket.create_server(("127.0.0.1", 0))
        sockets.append(server)

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        def serve(connection: socket.socket) -> None:
            with connection, suppress(OSError):  # the client may be gone
                answer(connection)

        threading.Thread(target=accept, daemon=True).start()
        return Address("127.0.0.1", server.getsockname()[1])

    yield listen
    for server in sockets:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def address_of(kafka: Any) -> Address:
    host, _, port = kafka.bootstrap_servers.partition(":")
    return Address(host, int(port))


@pytest.mark.parametrize("settings", [{}, TLS, {"security.protocol": "SASL_PLAINTEXT", **LOGIN}])
@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_a_web_server_is_named_within_two_seconds(web: Serve, settings: dict[str, Any], tls: bool) -> None:
    address = web(tls=tls)
    began = time.monotonic()
    with pytest.raises(ConfigError, match=rf"speaks {'HTTPS' if tls else 'HTTP'}, not Kafka's protocol"):
        greet(address, settings)
    assert time.monotonic() - began < 2 * 3, "two seconds; thrice that on a busy machine"


def test_a_broker_that_speaks_tls_is_named(tls_kafka: SecureKafka) -> None:
    with pytest.raises(ConfigError, match=r"found PLAINTEXT, but .* speaks TLS, wanted SSL or SASL_SSL"):
        greet(address_of(tls_kafka), {})
    with pytest.raises(ConfigError, match=r"found SASL_PLAINTEXT, but .* speaks TLS, wanted SASL_SSL"):
        greet(address_of(tls_kafka), {"security.protocol": "SASL_PLAINTEXT", **LOGIN})
    with pytest.raises(AuthenticationError, match="not trusted"):
        greet(address_of(tls_kafka), {"security.protocol": "SSL"})
    greet(address_of(tls_kafka), tls_kafka.settings)


def test_a_broker_that_speaks_no_tls_is_named(kafka: Any) -> None:
    with pytest.raises(ConfigError, match=r"found SSL, but .* speaks no TLS, wanted PLAINTEXT or SASL_PLAINTEXT"):
        greet(address_of(kafka), TLS)
    with pytest.raises(ConfigError, match=r"found SASL_SSL, but .* speaks no TLS, wanted SASL_PLAINTEXT"):
        greet(address_of(kafka), {**TLS, "security.protocol": "SASL_SSL", **LOGIN})
    greet(address_of(kafka), {})


def test_a_broker_that_wants_a_login_or_none_is_named(kafka: Any, login_kafka: SecureKafka) -> None:
    with pytest.raises(ConfigError, match=r"found PLAINTEXT, but .* wants a login, wanted SASL_PLAINTEXT with .*PLAIN"):
        greet(address_of(login_kafka), {})
    with pytest.raises(ConfigError, match=r"found SASL_PLAINTEXT, but .* does not authenticate by SASL"):
        greet(address_of(kafka), {"security.protocol": "SASL_PLAINTEXT", **LOGIN})
    with pytest.raises(AuthenticationError, match="refused 'alice'"):
        greet(address_of(login_kafka), {"security.protocol": "SASL_PLAINTEXT", **LOGIN})
    greet(address_of(login_kafka), login_kafka.settings)


@pytest.mark.parametrize("is_slow", [False, True], ids=["answers", "too slow to tell"])
def test_a_broker_that_takes_a_login_and_needs_none_is_fine(
    kafka: Any, listener: Callable[[Callable[[socket.socket], Any]], Address], is_slow: bool
) -> None:
    broker = address_of(kafka)

    def answer(client: socket.socket) -> None:
        """Forward all requests but SaslHandshake, which succeeds without a mechanism, as at franz-go's kfake."""
        with socket.create_connection((broker.host, broker.port)) as server, suppress(EOFError):
            while True:
                request = frame(client)
                if is_slow and int.from_bytes(request[:2], "big") == ApiKey.METADATA:
                    continue
                is_handshake = int.from_bytes(request[:2], "big") == ApiKey.SASL_HANDSHAKE
                if is_handshake:
                    response = request[4:8] + bytes(6)
                else:
                    server.sendall(len(request).to_bytes(4, "big") + request)
                    response = frame(server)
                client.sendall(len(response).to_bytes(4, "big") + response)

    greet(listener(answer), {})


def frame(connection: socket.socket) -> bytes:
    with connection.makefile("rb", buffering=0) as stream:
        size = stream.read(4)
        if not size:
            raise EOFError
        left, parts = int.from_bytes(size, "big"), []
        while left:
            parts.append(stream.read(left))
            left -= len(parts[-1])
        return b"".join(parts)


def test_a_broker_that_refuses_the_next_generation_protocol_is_too_old() -> None:
    with EmbeddedCluster(config={"group.coordinator.rebalance.protocols": "classic"}) as classic:
        with pytest.raises(BrokerTooOld, match=r"group\.protocol: found consumer, .* refuses that protocol"):
            greet(address_of(classic), {"group.protocol": "consumer", "group.id": "billing"})
        greet(address_of(classic), {"group.protocol": "classic", "group.id": "billing"})


@pytest.mark.parametrize("columns", [False, True], ids=["threads", "columns"])
def test_a_service_with_that_protocol_ends_at_its_start(columns: bool) -> None:
    with EmbeddedCluster(config={"group.coordinator.rebalance.protocols": "classic"}) as classic:
        classic.create_topic("orders")
        servers, settings = classic.bootstrap_servers, {"group.protocol": "consumer"}
        app = App("billing", bootstrap_servers=servers, settings=settings)
        if columns:

            @app.handler("orders", columns=True)
            def handle_batch(batch: pa.RecordBatch) -> None: ...

        else:

            @app.handler("orders")
            def handle(value: bytes) -> None: ...

        with pytest.raises(BrokerTooOld, match=r"group\.protocol"):
            app.run(handle_signals=False)


def test_the_next_generation_protocol_is_asked_for_without_a_trace() -> None:
    with EmbeddedCluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        greet(address_of(cluster), {"group.protocol": "consumer", "group.id": "billing"})
        assert admin.list_groups() == ()


def test_something_else_is_named_by_what_it_says(listener: Any) -> None:
    address = listener(lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n") or connection.recv(1_000))
    with pytest.raises(ConfigError, match=r"does not speak Kafka's protocol: it says b'SSH-2.0-OpenSSH"):
        greet(address, {})


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda connection: connection.recv(1_000), id="cuts every connection"),
        pytest.param(
            lambda connection: connection.recv(1_000) and connection.sendall(b"\0\0\x01\x90"),
            id="ends when it has sent the length of its answer",
        ),
        pytest.param(lambda connection: time.sleep(0.01), id="does not even read"),
        pytest.param(lambda connection: [connection.recv(1_000) for _ in range(3)], id="never answers"),
    ],
)
@pytest.mark.parametrize("settings", [{}, TLS], ids=["plain", "tls"])
def test_what_cannot_be_told_is_left_to_the_client(listener: Any, answer: Any, settings: dict[str, Any]) -> None:
    address = listener(answer)
    began = time.monotonic()
    greet(address, settings)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("settings", [{"ssl.context": object()}, {"ssl.keystore.location": "x"}])
def test_certificates_that_only_the_client_can_read_are_left_to_it(settings: dict[str, Any]) -> None:
    greet(Address("127.0.0.1", 1), {"security.protocol": "SSL", **settings})


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl.mechanism": "GSSAPI"},
        {"sasl.mechanism": "OAUTHBEARER", "sasl.oauth.token.provider": object()},
        {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.metadata.authentication.type": "azure_imds"},
    ],
    ids=["kerberos", "provider", "metadata service"],
)
def test_logins_that_only_the_client_can_do_are_left_to_it(settings: dict[str, Any]) -> None:
    greet(Address("127.0.0.1", 1), {"security.protocol": "SASL_SSL", **settings})


def test_nothing_is_said_of_an_address_where_nobody_listens() -> None:
    assert probe(Address("127.0.0.1", 1)) == ""
