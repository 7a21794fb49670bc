"""What a caller may hand to the encoder, and what it gets told otherwise."""

from __future__ import annotations

import uuid

import pytest

from ottla_wire.protocol import ApiKey, ErrorCode, SchemaError, UnsupportedVersion, codec, schemas
from ottla_wire.protocol.primitives import SHORT


def test_missing_fields_take_the_defaults_of_the_schema():
    message = codec.decode_request(ApiKey.FETCH, 11, codec.encode_request(ApiKey.FETCH, 11, {"min_bytes": 1}))
    assert (message.replica_id, message.max_bytes, message.session_epoch, message.topics) == (-1, 0x7FFFFFFF, -1, [])
    assert message.rack_id == ""


def test_one_body_serves_all_versions_because_fields_of_others_are_dropped():
    body = {"throttle_time_ms": 7, "error_code": ErrorCode.NOT_COORDINATOR}
    for version in schemas.api(ApiKey.HEARTBEAT).versions:
        message = codec.decode_response(
            ApiKey.HEARTBEAT, version, codec.encode_response(ApiKey.HEARTBEAT, version, body)
        )
        assert message.error_code == ErrorCode.NOT_COORDINATOR
        assert message.throttle_time_ms == (7 if version >= 1 else 0)


def test_an_unknown_field_is_named():
    body = {"responses": [{"name": "t", "partition_responses": [{"index": 0, "ofset": 1}]}]}
    with pytest.raises(SchemaError, match="PartitionProduceResponse has no field ofset"):
        codec.encode_response(ApiKey.PRODUCE, 9, body)


def test_an_unknown_field_beside_all_known_ones_is_named():
    complete = {"group_id": "g", "generation_id": 1, "member_id": "m", "extra": 1}
    with pytest.raises(SchemaError, match="has no field extra"):
        codec.encode_request(ApiKey.HEARTBEAT, 0, complete)


@pytest.mark.parametrize(
    "body",
    [
        {"group_id": None},
        {"group_id": 7},
        {"generation_id": 1 << 31},
        {"generation_id": "1"},
        None,
        [],
        "text",
    ],
)
def test_a_value_that_does_not_fit_is_a_schema_error(body):
    with pytest.raises(SchemaError, match="Heartbeat request v3"):
        codec.encode_request(ApiKey.HEARTBEAT, 3, body)


def test_a_schema_error_names_the_field():
    body = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "committed_leader_epoch": "x"}]}]}
    with pytest.raises(SchemaError, match=r"OffsetCommit request v8, field topics\.partitions"):
        codec.encode_request(ApiKey.OFFSET_COMMIT, 8, body)


def test_a_decoded_message_can_be_encoded_again_whole_or_in_part():
    request = codec.encode_request(ApiKey.METADATA, 12, {"topics": [{"name": "a"}, {"name": "b"}]})
    message = codec.decode_request(ApiKey.METADATA, 12, request)
    assert codec.encode_request(ApiKey.METADATA, 12, message) == request
    part = codec.encode_request(ApiKey.METADATA, 12, {"topics": message.topics[:1]})
    assert codec.decode_request(ApiKey.METADATA, 12, part).topics == message.topics[:1]


def test_a_message_compares_by_value_and_prints_its_fields():
    one, same = (codec.decode_request(ApiKey.HEARTBEAT, 0, b"\0\1g\0\0\0\5\0\1m") for _ in range(2))
    other = codec.decode_request(ApiKey.HEARTBEAT, 0, b"\0\1g\0\0\0\6\0\1m")
    assert one == same
    assert one != other
    assert one != {"group_id": "g"}
    assert repr(one) == "Heartbeat request(group_id='g', generation_id=5, member_id='m')"
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_a_field_of_another_version_reads_as_its_default():
    message = codec.decode_request(ApiKey.FETCH, 4, codec.encode_request(ApiKey.FETCH, 4, {}))
    assert message.session_epoch == -1
    assert message.rack_id == ""
    assert message.forgotten_topics_data == ()
    with pytest.raises(AttributeError):
        message.no_such_field  # noqa: B018


def test_records_are_a_view_into_the_frame_and_encode_without_a_copy():
    records = bytes(range(100))
    body = {"topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]}
    frame = bytearray(codec.encode_request(ApiKey.PRODUCE, 9, body))
    decoded = codec.decode_request(ApiKey.PRODUCE, 9, frame).topic_data[0].partition_data[0].records
    assert isinstance(decoded, memoryview)
    assert decoded == records
    decoded[0] = 255
    assert frame.count(bytes([255]) + records[1:]) == 1

    partition = {"partition_index": 0, "high_watermark": 5, "records": records}
    response = {"responses": [{"topic": "t", "partitions": [partition]}]}
    parts = codec.encode_response_parts(ApiKey.FETCH, 11, response)
    assert any(part is records for part in parts)
    assert b"".join(parts) == codec.encode_response(ApiKey.FETCH, 11, response)


def test_records_may_be_given_in_pieces():
    def fetched(records):
        partition = {"partition_index": 0, "high_watermark": 5, "records": records}
        return {"responses": [{"topic": "t", "partitions": [partition]}]}

    whole = codec.encode_response(ApiKey.FETCH, 12, fetched(b"abcdef" * 50))
    pieces = [memoryview(b"abc"), bytearray(b"def"), b"abcdef" * 49]
    assert codec.encode_response(ApiKey.FETCH, 12, fetched(pieces)) == whole
    for version in (11, 12):
        for nothing in (b"", []):
            encoded = codec.encode_response(ApiKey.FETCH, version, fetched(nothing))
            assert codec.decode_response(ApiKey.FETCH, version, encoded).responses[0].partitions[0].records == b""
        encoded = codec.encode_response(ApiKey.FETCH, version, fetched(None))
        assert codec.decode_response(ApiKey.FETCH, version, encoded).responses[0].partitions[0].records is None


def test_a_uuid_is_sixteen_bytes_or_a_uuid_object():
    identity = uuid.UUID(int=7)
    by_bytes = codec.encode_request(ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": None, "topic_id": identity.bytes}]})
    by_object = codec.encode_request(ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": None, "topic_id": identity}]})
    assert by_bytes == by_object
    with pytest.raises(SchemaError, match="a uuid has 16 bytes, not 3"):
        codec.encode_request(ApiKey.DELETE_TOPICS, 6, {"topics": [{"topic_id": b"abc"}]})


def test_a_tagged_field_with_its_default_is_not_sent():
    plain = codec.encode_response(ApiKey.PRODUCE, 10, {})
    assert codec.encode_response(ApiKey.PRODUCE, 10, {"node_endpoints": []}) == plain
    endpoint = {"node_id": 1, "host": "h", "port": 9092}
    assert len(codec.encode_response(ApiKey.PRODUCE, 10, {"node_endpoints": [endpoint]})) > len(plain)


def test_a_tagged_struct_that_was_not_sent_reads_as_its_defaults():
    body = {"responses": [{"name": "t", "partition_responses": [{"index": 0}]}]}
    message = codec.decode_response(ApiKey.PRODUCE, 10, codec.encode_response(ApiKey.PRODUCE, 10, body))
    leader = message.responses[0].partition_responses[0].current_leader
    assert (leader.leader_id, leader.leader_epoch) == (-1, -1)


def test_an_unknown_version_or_api_is_said_so():
    with pytest.raises(UnsupportedVersion, match="Fetch request has versions 4-18, not 3"):
        codec.decode_request(ApiKey.FETCH, 3, b"")
    with pytest.raises(UnsupportedVersion, match="no message table for LEADER_AND_ISR"):
        schemas.api(ApiKey.LEADER_AND_ISR)


def test_error_codes_know_which_of_them_to_retry():
    assert ErrorCode.NONE == 0
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.TOPIC_AUTHORIZATION_FAILED.retriable
    assert ErrorCode.of(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode.of(30_000) is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("version", [8, 12])
@pytest.mark.parametrize("count", [0, 1, SHORT - 1, SHORT, SHORT + 1, 200])
def test_numbers_come_back_however_many_there_are(version, count):
    numbers = [7 - number for number in range(count)]
    partition = {"partition_index": 1, "leader_id": 2, "replica_nodes": numbers, "isr_nodes": tuple(numbers)}
    body = {"topics": [{"name": "orders", "partitions": [partition]}]}
    data = codec.encode_response(ApiKey.METADATA, version, body)
    (topic,) = codec.decode_response(ApiKey.METADATA, version, data).topics
    assert topic.partitions[0].replica_nodes == topic.partitions[0].isr_nodes == numbers
    assert topic.partitions[0].offline_replicas == []


def test_a_number_that_does_not_fit_names_its_field():
    for count in (1, SHORT):
        body = {"topics": [{"name": "t", "partitions": [{"replica_nodes": [2**31] * count}]}]}
        with pytest.raises(SchemaError, match=r"replica_nodes"):
            codec.encode_response(ApiKey.METADATA, 12, body)
