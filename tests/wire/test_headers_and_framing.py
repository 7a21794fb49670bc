"""Headers of requests and responses, and frames cut from a stream."""

from __future__ import annotations

from itertools import pairwise

import pytest
from frame_reader import FrameReader
from hypothesis import given
from hypothesis import strategies as st

from ottla_wire.protocol import ApiKey, FrameTooLarge, ProtocolError, codec, headers, schemas

# Importing kafka-python warns of deprecated functions; this way of importing it does not turn that into an error.
PeerHeader = pytest.importorskip("kafka.protocol.api_header").RequestHeader

every_version = [(api.api_key, version) for api in schemas.all_apis() for version in api.versions]


@given(
    case=st.sampled_from(every_version),
    correlation=st.integers(-(2**31), 2**31 - 1),
    client=st.none() | st.text(max_size=200),
)
def test_a_request_frame_survives_a_round_trip(case, correlation, client):
    key, version = case
    frame = headers.encode_request_frame(key, version, correlation, client, {})
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = headers.decode_request_header(memoryview(frame), 4)
    assert header[:4] == (key, version, correlation, client)
    assert frame[header.body_offset :] == codec.encode_request(key, version, {})
    assert headers.decode_request_header(frame[4:]).body_offset == header.body_offset - 4


@given(case=st.sampled_from(every_version), correlation=st.integers(-(2**31), 2**31 - 1))
def test_a_response_frame_survives_a_round_trip(case, correlation):
    key, version = case
    frame = b"".join(headers.encode_response_frame(key, version, correlation, {}))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    found, offset = headers.decode_response_header(key, version, frame, 4)
    assert found == correlation
    assert frame[offset:] == codec.encode_response(key, version, {})


@pytest.mark.parametrize("version", [11, 12])
def test_a_request_header_is_what_kafka_python_writes(version):
    flexible = version >= 12
    theirs = PeerHeader(request_api_key=1, request_api_version=version, correlation_id=77, client_id="me")
    frame = headers.encode_request_frame(ApiKey.FETCH, version, 77, "me", b"body")
    assert frame == b"\0\0\0" + bytes([len(frame) - 4]) + theirs.encode(flexible=flexible) + b"body"


def test_the_response_header_of_api_versions_never_has_tags():
    for version in schemas.api(ApiKey.API_VERSIONS).versions:
        assert not headers.has_flexible_response_header(ApiKey.API_VERSIONS, version)
    assert headers.has_flexible_response_header(ApiKey.FETCH, 12)
    assert not headers.has_flexible_response_header(ApiKey.FETCH, 11)


def test_a_header_of_an_unknown_api_or_version_can_still_be_read():
    frame = bytes.fromhex("7fff" "0003" "00000005" "0001" "63")  # fmt: skip
    assert headers.decode_request_header(frame) == (0x7FFF, 3, 5, "c", 11)
    newer = headers.encode_request_frame(ApiKey.API_VERSIONS, 3, 9, "c", b"")[4:]
    newer = newer[:2] + (99).to_bytes(2, "big") + newer[4:]
    assert headers.decode_request_header(newer) == (18, 99, 9, "c", len(newer))


def test_a_header_cut_anywhere_is_refused():
    frame = headers.encode_request_frame(ApiKey.FETCH, 12, 1, "client", b"")[4:]
    for size in range(len(frame)):
        with pytest.raises(ProtocolError):
            headers.decode_request_header(frame[:size])
    for size in range(5):
        with pytest.raises(ProtocolError):
            headers.decode_response_header(ApiKey.FETCH, 12, bytes(size))


@given(data=st.binary(max_size=40))
def test_random_headers_are_read_or_refused(data):
    for prefix in (b"", b"\0\1\0\x0c", b"\0\x12\0\3"):
        try:
            assert headers.decode_request_header(prefix + data).body_offset <= len(prefix + data)
        except ProtocolError:
            continue


def test_record_payloads_reach_the_socket_uncopied():
    records = memoryview(bytes(10_000))
    partition = {"partition_index": 0, "high_watermark": 1, "records": records}
    body = {"responses": [{"topic": "t", "partitions": [partition]}]}
    parts = headers.encode_response_frame(ApiKey.FETCH, 11, 5, body)
    assert any(part is records for part in parts)
    whole = b"".join(parts)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4


@given(frames=st.lists(st.binary(max_size=30), max_size=5), cuts=st.lists(st.integers(0, 200), max_size=8))
def test_frames_are_the_same_however_the_stream_is_cut(frames, cuts):
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    reader = FrameReader(max_frame_bytes=100)
    found = []
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in pairwise(edges):
        found += reader.feed(stream[start:end])
    assert found == frames
    assert reader.pending_bytes == 0


def test_a_frame_that_announces_too_much_is_refused_at_once():
    reader = FrameReader(max_frame_bytes=100)
    assert reader.feed((100).to_bytes(4, "big")) == []
    with pytest.raises(FrameTooLarge, match="101 bytes, at most 100"):
        FrameReader(max_frame_bytes=100).feed((101).to_bytes(4, "big"))
    with pytest.raises(ProtocolError, match="-1 bytes"):
        FrameReader(max_frame_bytes=100).feed(b"\xff\xff\xff\xff")
