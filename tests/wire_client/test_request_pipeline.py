"""What is said on a connection, without a socket."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import BrokerUnavailable
from ottla.wire_client import BrokerRefused, ResponseTooLarge
from ottla.wire_client.net.request_pipeline import NEWEST, PREFIX_BYTES, RequestPipeline
from ottla_wire.protocol import ApiKey, headers, schemas

BROKER = {int(api): (0, 20) for api in NEWEST}


@pytest.fixture
def pipeline() -> RequestPipeline:
    made = RequestPipeline(address="broker:9092", client_id="test")
    made.negotiated(BROKER)
    made.let_in(most_bytes=1_000_000)
    return made


def answer(api: ApiKey, version: int, correlation_id: int, body: dict[str, Any]) -> bytearray:
    return bytearray(b"".join(headers.encode_response_frame(api, version, correlation_id, body)))


def test_responses_are_matched_to_requests_in_order(pipeline: RequestPipeline) -> None:
    for group in ("a", "b"):
        pipeline.request(ApiKey.FIND_COORDINATOR, {"key": group, "key_type": 0})
    assert pipeline.in_flight == 2
    for number, host in ((1, "first"), (2, "second")):
        body = {"error_code": 0, "node_id": 1, "host": host, "port": 1}
        frame = answer(ApiKey.FIND_COORDINATOR, NEWEST[ApiKey.FIND_COORDINATOR], number, body)
        assert pipeline.frame_size(frame[:PREFIX_BYTES]) == len(frame) - PREFIX_BYTES
        assert pipeline.response(frame[PREFIX_BYTES:]).host == host
    assert pipeline.in_flight == 0


def test_a_request_without_a_response_is_not_in_flight(pipeline: RequestPipeline) -> None:
    body = {"acks": 0, "timeout_ms": 1, "topic_data": []}
    assert pipeline.request(ApiKey.PRODUCE, body, expects_response=False)
    assert pipeline.in_flight == 0


@pytest.mark.parametrize("api", NEWEST)
def test_the_version_is_the_newest_that_both_sides_speak(pipeline: RequestPipeline, api: ApiKey) -> None:
    known = schemas.request(api).versions
    assert pipeline.version(api) == min(NEWEST[api], known.last)
    pipeline.negotiated({int(api): (known.first, known.first)})
    assert pipeline.version(api) == known.first
    for oldest, newest in ((NEWEST[api] + 1, 99), (-9, -1), (9, 0), (32_767, -32_768)):
        pipeline.negotiated({int(api): (oldest, newest)})
        assert not pipeline.supports(api)
        with pytest.raises(BrokerRefused, match=f"broker:9092 does not serve {api.name}"):
            pipeline.request(api, {})
    assert pipeline.in_flight == 0


def test_before_the_handshake_is_over_a_peer_may_say_little() -> None:
    pipeline = RequestPipeline(address="broker:9092", client_id="test")
    pipeline.request(ApiKey.API_VERSIONS, {})
    with pytest.raises(BrokerUnavailable, match=r"2000000 bytes, at most 1048576"):
        pipeline.frame_size(bytearray((2_000_000).to_bytes(4, "big")))


def test_after_it_the_setting_is_the_limit(pipeline: RequestPipeline) -> None:
    pipeline.request(ApiKey.METADATA, {"topics": None})
    assert pipeline.frame_size(bytearray((1_000_000).to_bytes(4, "big"))) == 1_000_000
    with pytest.raises(ResponseTooLarge, match=r"METADATA announces 1,000,001 bytes, receive\.message\.max\.bytes"):
        pipeline.frame_size(bytearray((1_000_001).to_bytes(4, "big")))
    with pytest.raises(BrokerUnavailable, match="announces -1 bytes"):
        pipeline.frame_size(bytearray(b"\xff\xff\xff\xff"))
