"""Hostile bytes: whatever arrives, a decoder answers with a message or a ProtocolError, in little memory."""

from __future__ import annotations

import resource
import sys
from random import Random

import message_samples as samples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_wire.protocol import ApiKey, ProtocolError, codec, schemas

seeds = st.integers(0, 2**32)


def test_a_message_cut_anywhere_is_refused(message_cases):
    for case in message_cases.values():
        encoded = case.encode(samples.fixed_body(case.schema, case.version))
        for size in range(len(encoded)):
            with pytest.raises(ProtocolError):
                case.decode(encoded[:size])


def test_a_refusal_names_message_version_field_and_position():
    body = {"topics": [{"topic": "flights", "partitions": [{"partition": 3}]}]}
    encoded = codec.encode_request(ApiKey.FETCH, 11, body)
    at_topic = encoded.index(b"flights")
    with pytest.raises(ProtocolError) as refusal:
        codec.decode_request(ApiKey.FETCH, 11, encoded[: at_topic + 4])
    error = refusal.value
    assert (error.message, error.field) == ("Fetch request v11", "topics.topic")
    assert error.position == at_topic
    assert "Fetch request v11, field topics.topic" in str(error)


def test_mutated_messages_decode_or_are_refused(message_cases):
    @given(seed=seeds)
    def check(seed: int) -> None:
        random = Random(seed)
        for case in random.sample(list(message_cases.values()), 20):
            data = bytearray(case.encode(samples.random_body(case.schema, case.version, random)))
            for _ in range(random.randint(1, 8)):
                mutate(data, random)
            try:
                message = case.decode(bytes(data))
            except ProtocolError:
                continue
            case.encode(message)  # what was accepted can be said again

    check()


def test_random_bytes_decode_or_are_refused(message_cases):
    @given(seed=seeds, data=st.binary(max_size=200))
    def check(seed: int, data: bytes) -> None:
        for case in Random(seed).sample(list(message_cases.values()), 20):
            try:
                case.decode(data)
            except ProtocolError:
                continue

    check()


@given(seed=seeds, data=st.binary(max_size=100))
def test_random_internal_records_decode_or_are_refused(seed, data):
    random = Random(seed)
    name = random.choice(schemas.record_names())
    version = random.randint(-1, 5).to_bytes(2, "big", signed=True)
    for decode in (lambda: codec.decode_record_value(name, version + data), lambda: codec.decode_metadata_record(data)):
        try:
            decode()
        except ProtocolError:
            continue


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\x00\xff\xff\xff"])
def test_an_array_cannot_claim_more_elements_than_bytes_are_left(count):
    body = codec.encode_request(ApiKey.METADATA, 4, {"topics": []})
    hostile = count + body[4:]
    with pytest.raises(ProtocolError, match="elements cannot fit"):
        codec.decode_request(ApiKey.METADATA, 4, hostile)


def test_hostile_counts_take_little_memory(message_cases):
    """Every length and count in the newest version of every message, replaced by the largest there is, in turn."""
    newest = {(case.api_key, case.direction): case for case in message_cases.values()}
    encoded = []
    for case in newest.values():
        data = case.encode(samples.fixed_body(case.schema, case.version))
        case.decode(data)  # compiled before the measurement
        encoded.append((case, data))
    before = peak_memory_bytes()
    for case, data in encoded:
        for position in range(len(data)):
            for claim in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f"):
                try:
                    case.decode(data[:position] + claim + data[position + len(claim) :])
                except ProtocolError:
                    continue
    assert peak_memory_bytes() - before < 32 << 20  # believing one of those counts would take gigabytes


def peak_memory_bytes() -> int:
    """Of the process. `tracemalloc` would be exact, but asks for a line number at each allocation: 100 times slower."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def test_a_flood_of_empty_elements_is_bounded_by_its_own_size():
    """One byte per element is the least there is; a list of them takes memory in proportion, not more."""
    flood = b"\x00" + (1_000_001).to_bytes(4, "big") + b"\x00" * 1000
    with pytest.raises(ProtocolError):
        codec.decode_response(ApiKey.METADATA, 9, flood)


def test_null_where_none_is_allowed_is_refused():
    with pytest.raises(ProtocolError, match="null is not allowed") as refusal:
        codec.decode_request(ApiKey.HEARTBEAT, 0, b"\xff\xff" + bytes(6))
    assert refusal.value.field == "group_id"


def test_text_that_is_not_utf8_is_refused():
    with pytest.raises(ProtocolError, match="UTF-8"):
        codec.decode_request(ApiKey.HEARTBEAT, 0, b"\x00\x01\xff" + bytes(6))


def test_an_unknown_tag_is_skipped_and_an_overlong_one_refused():
    plain = codec.encode_request(ApiKey.HEARTBEAT, 4, {"group_id": "g"})
    assert plain.endswith(b"\0")
    tagged = plain[:-1] + b"\x01\x2a\x03abc"
    assert codec.decode_request(ApiKey.HEARTBEAT, 4, tagged).group_id == "g"
    with pytest.raises(ProtocolError, match="tag 42 claims 4 bytes"):
        codec.decode_request(ApiKey.HEARTBEAT, 4, plain[:-1] + b"\x01\x2a\x04abc")


def test_a_known_tag_must_have_the_size_it_announces():
    encoded = codec.encode_request(ApiKey.FETCH, 12, {"cluster_id": "abc"})
    assert encoded.endswith(b"\x01\x00\x04\x04abc")
    with pytest.raises(ProtocolError, match="tag 0 announced 5 bytes"):
        codec.decode_request(ApiKey.FETCH, 12, encoded[:-5] + b"\x05\x04abcd")


def mutate(data: bytearray, random: Random) -> None:
    position = random.randrange(len(data) + 1)
    action = random.randrange(4)
    if action == 0:
        data[position:position] = random.randbytes(random.randint(1, 4))
    elif action == 1:
        del data[position : position + random.randint(1, 4)]
    elif action == 2:
        data[position : position + 4] = random.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00"))
    elif position < len(data):
        data[position] = random.randrange(256)


def test_a_request_of_more_elements_than_any_client_sends_is_refused_before_they_are_made():
    """Three bytes each: an empty name, no partitions, no tags. Ten megabytes of them were 190 MB, and five seconds."""
    count = 3_000_000
    number, varint = count + 1, bytearray()
    while number > 127:
        varint.append(number & 127 | 128)
        number >>= 7
    varint.append(number)
    bomb = bytes(varint) + b"\x01\x01\x00" * count + b"\x00"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ProtocolError, match="more elements than a request may have"):
        codec.decode_request(ApiKey.DESCRIBE_LOG_DIRS, 2, bomb)
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kb < 30_000


def test_elements_are_counted_over_all_arrays_of_a_request():
    def request(topics: int, partitions: int) -> bytes:
        body = {"topics": [{"topic": "t", "partitions": list(range(partitions))} for _ in range(topics)]}
        return codec.encode_request(ApiKey.DESCRIBE_LOG_DIRS, 2, body)

    assert len(codec.decode_request(ApiKey.DESCRIBE_LOG_DIRS, 2, request(6_000, 30)).topics) == 6_000
    with pytest.raises(ProtocolError, match="more elements"):
        codec.decode_request(ApiKey.DESCRIBE_LOG_DIRS, 2, request(6_000, 40))


def test_tags_that_no_version_has_are_not_read_over_for_ever():
    # ApiVersions v3: two empty strings, then a million tags of two bytes.
    with pytest.raises(ProtocolError, match="tags"):
        codec.decode_request(ApiKey.API_VERSIONS, 3, b"\x01\x01" + b"\xc0\x84\x3d" + b"\x05\x00" * 1_000_000)
