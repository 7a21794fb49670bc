"""Properties over random valid messages: what is encoded is decoded again, from any kind of buffer, anywhere in it."""

from __future__ import annotations

from random import Random

import message_samples as samples
from hypothesis import given
from hypothesis import strategies as st

from ottla_wire.protocol import codec, schemas

seeds = st.integers(0, 2**32)


def test_every_message_survives_a_round_trip(message_cases):
    @given(seed=seeds)
    def check(seed: int) -> None:
        random = Random(seed)
        for case in random.sample(list(message_cases.values()), 20):
            body = samples.random_body(case.schema, case.version, random)
            encoded = case.encode(body)
            message = case.decode(encoded)
            assert case.encode(message) == encoded, case
            assert case.encode(message.to_dict()) == encoded, case
            assert case.decode(case.encode(message)) == message, case
            for name, value in body.items():
                if not isinstance(value, list | dict):
                    assert getattr(message, name) == value, (str(case), name)

    check()


def test_a_message_may_lie_anywhere_in_any_kind_of_buffer(message_cases):
    @given(seed=seeds, before=st.binary(max_size=9), behind=st.binary(max_size=9))
    def check(seed: int, before: bytes, behind: bytes) -> None:
        random = Random(seed)
        case = random.choice(list(message_cases.values()))
        encoded = case.encode(samples.random_body(case.schema, case.version, random))
        expected = case.decode(encoded)
        decoder = codec.request_decoder if case.direction == "request" else codec.response_decoder
        frame = before + encoded + behind
        for buffer in (frame, bytearray(frame), memoryview(frame)):
            message, end = decoder(case.api_key, case.version)(buffer, len(before))
            assert message == expected
            assert end == len(before) + len(encoded)

    check()


@given(seed=seeds)
def test_every_internal_record_survives_a_round_trip(seed):
    random = Random(seed)
    for name in schemas.record_names():
        schema = schemas.record(name)
        version = random.randint(schema.versions.first, schema.versions.last)
        body = samples.random_body(schema, version, random)
        encoded = codec.encode_record_value(name, version, body)
        found, message = codec.decode_record_value(name, encoded)
        assert found == version
        assert codec.encode_record_value(name, version, message) == encoded
        if name in schemas.metadata_record_types():
            framed = codec.encode_metadata_record(name, version, body)
            assert codec.decode_metadata_record(framed) == (name, version, message)
