from __future__ import annotations

import dataclasses

import pytest

from ottla.records import Malformed
from ottla.serdes import Json
from ottla.testing import ManualClock, make_record, make_records


@dataclasses.dataclass
class Order:
    id: int


@pytest.mark.parametrize(
    ("value", "raw"),
    [(b"x", b"x"), ("x", b"x"), (1, b"\0\0\0\0\0\0\0\1"), ({"a": 1}, b'{"a":1}'), (None, None), (True, b"true")],
)
def test_a_record_has_the_bytes_that_its_value_would_have_had(value: object, raw: bytes | None) -> None:
    record = make_record(value, key="k")
    assert (record.value, record.raw_value) == (value, raw)
    assert (record.key, record.raw_key) == ("k", b"k")


def test_with_the_handlers_serde_values_are_encoded_and_bytes_are_decoded() -> None:
    assert make_record(Order(1), value_serde=Json(Order)).raw_value == b'{"id":1}'
    assert make_record(b'{"id":1}', value_serde=Json(Order)).value == Order(1)
    broken = make_record(b"{", value_serde=Json(Order), topic="orders").value
    assert isinstance(broken, Malformed)
    assert (broken.kind, broken.part, broken.raw) == ("malformed", "value", b"{")


def test_records_have_consecutive_offsets_and_share_the_rest() -> None:
    records = make_records(["a", "b"], offset=5, topic="t", partition=2, headers=[("h", b"1")])
    assert [record.position for record in records] == ["t-2@5", "t-2@6"]
    assert [record.header("h") for record in records] == [b"1", b"1"]
    assert records[0].headers is not records[1].headers


def test_a_record_is_as_old_as_a_fresh_manual_clock() -> None:
    assert make_record().timestamp_ms == ManualClock().now_ms()
