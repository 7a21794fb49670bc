"""Live comparison with kafka-python, which compiles Kafka's own definitions: random messages, both ways."""

from __future__ import annotations

from random import Random

import message_samples as samples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_wire.protocol import ApiKey, codec, schemas

kafka = pytest.importorskip("kafka")

from kafka.protocol import admin, consumer, metadata, producer, sasl  # noqa: E402
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription  # noqa: E402


def peer_classes():
    found = {}
    for module in (admin, consumer, metadata, producer, sasl):
        for name, value in vars(module).items():
            direction = next((word for word in ("request", "response") if name.lower().endswith(word)), None)
            if isinstance(value, type) and direction and hasattr(value, "_json"):
                found[ApiKey(value.API_KEY), direction] = value
    return found


PEERS = peer_classes()


def test_the_peer_knows_most_apis():
    assert len(PEERS) > 90


@pytest.mark.parametrize(("api_key", "direction"), sorted(PEERS), ids=lambda word: getattr(word, "name", word).lower())
def test_kafka_python_reads_what_we_write_and_writes_the_same(api_key, direction):
    peer = PEERS[api_key, direction]
    schema = schemas.request(api_key) if direction == "request" else schemas.response(api_key)
    encode = codec.encode_request if direction == "request" else codec.encode_response
    versions = [v for v in schemas.api(api_key).versions if v <= peer.max_version]

    @given(seed=st.integers(0, 2**32), version=st.sampled_from(versions))
    def check(seed: int, version: int) -> None:
        body = samples.random_body(schema, version, Random(seed))
        if (api_key, direction) == (ApiKey.API_VERSIONS, "response"):
            body["error_code"] = 0  # with an error, it reads every version as version 0
        ours = encode(api_key, version, body)
        theirs = peer.decode(ours, version=version, header=False)
        theirs._header = None  # its encoder asks for one that its decoder did not set
        assert theirs.encode(version=version, header=False) == ours

    check()


@pytest.mark.parametrize("peer", [ConsumerProtocolSubscription, ConsumerProtocolAssignment])
@given(seed=st.integers(0, 2**32), version=st.integers(0, 3))
def test_members_metadata_is_what_kafka_python_writes(peer, seed, version):
    name = peer.__name__
    body = samples.random_body(schemas.record(name), version, Random(seed))
    ours = codec.encode_record_value(name, version, body)
    theirs = peer.decode(ours)
    assert theirs.encode(version=version) == ours
