"""Promises that hold for every serde at once."""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ConfigError
from ottla.records import Malformed
from ottla.serdes import Avro, Bytes, Int64, Json, Serde, SerdeContext, Str

CTX = SerdeContext("orders")


@pytest.fixture(scope="module")
def serdes(models: SimpleNamespace) -> list[Serde[Any]]:
    return [
        Bytes(),
        Str(),
        Int64(),
        Json(),
        *(Json(getattr(models, name)) for name in ("Order", "FlatStruct", "FlatDict", "FlatModel", "Tree")),
        *(Avro(getattr(models, name)) for name in ("Order", "FlatStruct", "FlatDict", "FlatModel", "Tree")),
    ]


@given(data=st.binary(max_size=200))
def test_deserialize_never_raises_and_evidence_keeps_the_bytes(serdes: list[Serde[Any]], data: bytes) -> None:
    for serde in serdes:
        found = serde.deserialize(data, CTX)
        if isinstance(found, Malformed):
            assert found.raw is data
            assert found.part == "value"
            assert found.kind in ("malformed", "invalid")
            assert found.error
            assert found.error_type
            assert len(found.error) <= 1_001
        assert repr(serde.deserialize_many([data, None], CTX)) == repr([found, None])


def test_a_sound_record_with_any_one_byte_changed_never_raises(models: SimpleNamespace, order: Any) -> None:
    chance = random.Random(7)
    for serde in (Json(models.Order), Avro(models.Order)):
        sound = serde.serialize(order, CTX)
        assert sound is not None
        for position in range(len(sound)):
            changed = bytearray(sound)
            changed[position] ^= chance.randrange(1, 256)
            assert isinstance(serde.deserialize(bytes(changed), CTX), Malformed | models.Order)


def test_lengths_that_claim_more_than_there_is_take_no_memory() -> None:
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # the largest long
    for schema in ("bytes", "string", {"type": "array", "items": "long"}, {"type": "map", "values": "long"}):
        found = Avro(schema).deserialize(huge, CTX)
        assert isinstance(found, Malformed)
        assert found.kind == "malformed"


def test_a_long_message_of_a_decoder_is_cut_because_it_travels_in_a_header(models: SimpleNamespace) -> None:
    class Shouting(Exception):
        pass

    def shout(_type: object, _value: object) -> None:
        raise Shouting("x" * 100_000)

    found = Json(complex, dec_hook=shout).deserialize(b"1", CTX)
    assert isinstance(found, Malformed)
    assert len(found.error) == 1_001


def test_without_fastavro_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ConfigError, match=r"pip install 'ottla\[avro\]'"):
        Avro("string")
