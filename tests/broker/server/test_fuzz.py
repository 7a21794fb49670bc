"""Random and mutated requests: the broker never fails, never hangs another connection, keeps nothing.

Three kinds of input, from one seed each: valid bodies with random values for every API and version; valid requests
with bytes changed, cut or repeated; and plain noise. After each of them a second connection must be answered, and no
handler may have failed (that would be an UNKNOWN_SERVER_ERROR and a traceback in the log).
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from message_samples import fixed_body, random_body

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.server.broker import Broker
from broker_embedded.server.requests.registry import TABLE, Api
from ottla_wire.protocol import ApiKey, headers, schemas

Connect = Callable[[str], Any]

# What a random request would really make or end is only validated: a fuzz test needs no ten thousand partitions.
VALIDATE_ONLY = {ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"socket.request.max.bytes": 1_000_000}) as running:
        running.create_topic("s1", partitions=3)
        yield running


def broker_of(cluster: EmbeddedCluster) -> Broker:
    return cluster._cluster.brokers[1]


def connection_to(cluster: EmbeddedCluster) -> socket.socket:
    host, port = cluster.bootstrap_servers.split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def throw(cluster: EmbeddedCluster, *frames: bytes) -> None:
    """Send bytes on a connection of their own, read what comes at once, hang up."""
    with connection_to(cluster) as client:
        try:
            for frame in frames:
                client.sendall(frame)
        except (BrokenPipeError, ConnectionResetError):
            return  # refused before we had finished


def answers(cluster: EmbeddedCluster) -> None:
    """Another connection gets its response: nothing crashed, nothing hangs."""
    body = {"client_software_name": "x", "client_software_version": "1"}
    with connection_to(cluster) as client:
        client.sendall(headers.encode_request_frame(ApiKey.API_VERSIONS, 3, 77, "x", body))
        received = client.recv(8)
        assert received[4:] == (77).to_bytes(4, "big")


def frame_of(api: Api, version: int, body: dict[str, Any]) -> bytes:
    if api.key in VALIDATE_ONLY and "validate_only" in schemas.request(api.key).struct.fields_of(version)[-1].name:
        body["validate_only"] = True
    return headers.encode_request_frame(api.key, version, 1, "fuzz", body)


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def wait_until(condition: Callable[[], bool], *, timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.005)


@pytest.mark.parametrize("api", TABLE.values(), ids=lambda api: api.key.name.lower())
@pytest.mark.parametrize("kind", ["fixed", "nulls", "random"])
def test_a_valid_request_with_any_values_is_answered_or_refused(
    fuzzed: EmbeddedCluster, caplog: pytest.LogCaptureFixture, api: Api, kind: str
) -> None:
    random = Random(f"{api.key.name} {kind}")
    schema = schemas.request(api.key)
    for version in range(api.min_version, api.max_version + 1):
        if kind == "random":
            bodies = [random_body(schema, version, random) for _ in range(10)]
        else:
            bodies = [fixed_body(schema, version, nulls=kind == "nulls")]
        for body in bodies:
            throw(fuzzed, frame_of(api, version, body))
    answers(fuzzed)
    assert failures(caplog) == []


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_mutated_requests_never_fail_a_handler(
    fuzzed: EmbeddedCluster, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    random = Random(seed)
    apis = [api for key, api in TABLE.items() if key not in VALIDATE_ONLY]
    for _ in range(10):
        api = random.choice(apis)
        version = random.randint(api.min_version, api.max_version)
        frame = bytearray(frame_of(api, version, random_body(schemas.request(api.key), version, random)))
        for _ in range(random.randint(1, 6)):
            place = random.randrange(12, max(13, len(frame)))
            action = random.randrange(4)
            if action == 0 and place < len(frame):
                frame[place] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
            elif action == 1:
                del frame[place : place + random.randint(1, 8)]
            elif action == 2:
                frame[place:place] = random.randbytes(random.randint(1, 8))
            else:
                frame[place:place] = frame[12 : random.randrange(12, len(frame) + 1)]
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
        throw(fuzzed, bytes(frame))
    answers(fuzzed)
    assert failures(caplog) == []


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.binary(max_size=400), max_size=5), framed=st.booleans())
def test_noise_closes_only_its_own_connection(
    fuzzed: EmbeddedCluster, caplog: pytest.LogCaptureFixture, pieces: list[bytes], framed: bool
) -> None:
    if framed:
        pieces = [len(piece).to_bytes(4, "big") + piece for piece in pieces]
    throw(fuzzed, *pieces)
    answers(fuzzed)
    assert failures(caplog) == []


def test_announced_sizes_cost_no_memory(fuzzed: EmbeddedCluster) -> None:
    """Two hundred connections announce the largest frame and send little of it."""
    with ExitStack() as stack:
        for _ in range(200):
            client = stack.enter_context(connection_to(fuzzed))
            client.sendall((1_000_000).to_bytes(4, "big") + b"\x00" * 2_000)
        answers(fuzzed)
        server = broker_of(fuzzed).server
        wait_until(lambda: sum(each._frame_filled == 2_004 for each in list(server.connections)) == 200)
        held = sum(len(each._frame or b"") for each in list(server.connections))
        assert held < 200 * 70_000, f"{held} bytes are held for 400,000 received"


def test_nothing_is_kept_of_clients_that_have_gone(fuzzed: EmbeddedCluster) -> None:
    broker = broker_of(fuzzed)
    wait_until(lambda: len(broker.server.connections) == 0)
    wait_until(lambda: len(broker.replicas.fetches) == 0)
    assert len(broker.replicas.produces) == 0
