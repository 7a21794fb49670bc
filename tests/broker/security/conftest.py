"""Clusters that ask who their clients are, and a client that speaks frame by frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from wire_client import WireClient

from ottla.testing import Certificates, SecureKafka, make_certificates, secure_kafka


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def sasl_kafka() -> Iterator[SecureKafka]:
    """In plain text, with every mechanism."""
    with secure_kafka("SASL_PLAINTEXT", mechanism=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")) as running:
        yield running


@pytest.fixture
def connect(sasl_kafka: SecureKafka) -> Iterator[Callable[[], WireClient]]:
    """A function that opens another connection."""
    opened: list[WireClient] = []

    def open_one() -> WireClient:
        opened.append(WireClient(sasl_kafka.bootstrap_servers, timeout_s=30))
        return opened[-1]

    yield open_one
    for client in opened:
        client.close()


@pytest.fixture
def client(connect: Callable[[], WireClient]) -> WireClient:
    return connect()
