"""Bytes on the socket: frames in pieces, responses in order, and what is no request."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_embedded.cluster import EmbeddedCluster
from ottla_wire.protocol import ApiKey, ErrorCode, codec, headers

Connect = Callable[[], Any]


def wait_until(condition: Callable[[], bool], *, timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.002)


def api_versions_frame(correlation_id: int = 1) -> bytes:
    body = {"client_software_name": "test", "client_software_version": "1.0"}
    return headers.encode_request_frame(ApiKey.API_VERSIONS, 3, correlation_id, "test", body)


def test_a_frame_may_arrive_one_byte_at_a_time(client: Any) -> None:
    for byte in api_versions_frame(7):
        client.socket.sendall(bytes([byte]))
    assert int.from_bytes(client.receive_frame()[:4], "big") == 7


def test_many_frames_in_one_piece_are_answered_in_order(client: Any) -> None:
    client.socket.sendall(b"".join(api_versions_frame(number) for number in range(200)))
    answered = [int.from_bytes(client.receive_frame()[:4], "big") for _ in range(200)]
    assert answered == list(range(200))


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(1, 400), max_size=6))
def test_frames_cut_anywhere_are_whole_again(connect: Connect, cuts: list[int]) -> None:
    client = connect()
    stream = b"".join(api_versions_frame(number) for number in range(10))
    places = [0, *sorted({min(cut, len(stream)) for cut in cuts}), len(stream)]
    for start, end in pairwise(places):
        client.socket.sendall(stream[start:end])
    assert [int.from_bytes(client.receive_frame()[:4], "big") for _ in range(10)] == list(range(10))
    client.close()


def test_a_large_frame_between_small_ones_is_read_whole(client: Any, make_batch: Callable[..., bytes]) -> None:
    values = [b"x" * 900_000]
    client.call(ApiKey.METADATA, 4, {"topics": [{"name": "t"}], "allow_auto_topic_creation": True})
    for number in range(5):
        answer = client.produce("t", make_batch(*values))
        assert (answer.error_code, answer.base_offset) == (0, number)
        assert client.call(ApiKey.API_VERSIONS, 2, {}).error_code == 0


def test_a_waiting_fetch_holds_back_the_responses_behind_it(client: Any, make_batch: Callable[..., bytes]) -> None:
    client.call(ApiKey.METADATA, 4, {"topics": [{"name": "t"}], "allow_auto_topic_creation": True})
    fetch = client.send(ApiKey.FETCH, 11, client.fetch_body("t", max_wait_ms=100))
    versions = client.send(ApiKey.API_VERSIONS, 2, {})
    first, _ = client.receive()
    second, _ = client.receive()
    assert (first, second) == (fetch, versions)


def test_a_waiting_fetch_does_not_hold_up_another_connection(connect: Connect) -> None:
    waiting, other = connect(), connect()
    waiting.call(ApiKey.METADATA, 4, {"topics": [{"name": "t"}], "allow_auto_topic_creation": True})
    waiting.send(ApiKey.FETCH, 11, waiting.fetch_body("t", max_wait_ms=5_000))
    started = time.monotonic()
    assert other.call(ApiKey.API_VERSIONS, 2, {}).error_code == 0
    assert time.monotonic() - started < 4


def test_a_frame_above_the_limit_closes_the_connection_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedCluster(config={"socket.request.max.bytes": 1000}) as cluster:
        host, port = cluster.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as client, caplog.at_level(logging.WARNING):
            client.sendall((1001).to_bytes(4, "big") + b"x" * 20)
            assert _is_cut(client)
    assert "announces 1001 bytes, wanted 8 to 1000 (socket.request.max.bytes)" in caplog.text


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff\xff\xff\xff rest",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x08" + b"\x7f\x7f" + b"\x00" * 6,  # no such API
        b"\x00\x00\x00\x0a" + b"\x00\x01\x7f\x7f\x00\x00\x00\x01\xff\xff",  # no such version
        b"\x00\x00\x00\x0a" + b"\x00\x03\x00\x04\x00\x00\x00\x01\x00\x63",  # a client id longer than the frame
        b"\x00\x00\x00\x0e"
        + b"\x00\x03\x00\x04\x00\x00\x00\x01\xff\xff\x7f\xff\xff\xff",  # two thousand million topics
    ],
)
def test_bytes_that_are_no_request_close_only_their_connection(connect: Connect, garbage: bytes) -> None:
    other, client = connect(), connect()
    assert other.call(ApiKey.API_VERSIONS, 2, {}).error_code == 0
    client.socket.sendall(garbage)
    assert client.is_closed_by_peer()
    assert other.call(ApiKey.API_VERSIONS, 2, {}).error_code == 0


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(client: Any) -> None:
    frame = headers.encode_request_frame(ApiKey.API_VERSIONS, 4, 5, "test", b"\x00" * 8)
    client.socket.sendall(frame[:6] + b"\x00\x63" + frame[8:])  # version 99
    answer = client.receive_frame()
    body = codec.decode_response(ApiKey.API_VERSIONS, 0, answer, 4)
    assert body.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {18} <= {each.api_key for each in body.api_keys}


def test_a_client_that_does_not_read_stops_being_read_and_loses_nothing(
    connect: Connect, make_batch: Callable[..., bytes]
) -> None:
    """Responses of many megabytes pile up: the broker must stop at its write limit, then continue in order."""
    client, other = connect(), connect()
    client.call(ApiKey.METADATA, 4, {"topics": [{"name": "t"}], "allow_auto_topic_creation": True})
    client.produce("t", make_batch(b"x" * 900_000))
    client.socket.settimeout(30)
    sent = [client.send(ApiKey.FETCH, 11, client.fetch_body("t")) for _ in range(60)]
    assert other.call(ApiKey.API_VERSIONS, 2, {}).error_code == 0
    for correlation_id in sent:
        answered, response = client.receive()
        assert answered == correlation_id
        assert len(response.responses[0].partitions[0].records) > 900_000


def test_an_idle_connection_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedCluster(config={"connections.max.idle.ms": 50}) as cluster:
        host, port = cluster.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as client:
            assert _is_cut(client)


def _is_cut(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
