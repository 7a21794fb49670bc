"""The records of leased offsets: out of batches that hold more, and out of bytes that hold nonsense."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import BrokerUnavailable
from ottla.queues.core.acknowledgements import Acknowledgement, Place, SentAcknowledgements
from ottla.queues.core.lease import Lease
from ottla.queues.core.share_session import ShareRequest
from ottla.queues.io.leased_records import LeasedRecords
from ottla.queues.io.share_messages import share_answer, share_body
from ottla.topics import TopicPartition
from ottla.wire_client.client_settings import wire_settings
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records import CompressionType
from ottla_wire.records.record import RecordData, encode_batch

PLACE = Place(b"t" * 16, 0)
SETTINGS = wire_settings({"bootstrap.servers": "localhost:1"})


def reader() -> LeasedRecords:
    return LeasedRecords(SETTINGS, {PLACE: TopicPartition("jobs", 0)}.get)


def batch(first: int, count: int, *, codec: CompressionType = CompressionType.NONE) -> bytes:
    records = [
        RecordData(first + number, 1_000 + number, b"k", b"v%d" % (first + number), [("h", b"1")])
        for number in range(count)
    ]
    return bytes(encode_batch(records, compression=codec))


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
def test_only_leased_records_of_a_batch_are_taken(codec: CompressionType) -> None:
    made = reader()
    data = batch(10, 5, codec=codec) + batch(15, 5, codec=codec)
    records, corrupt = made.read(PLACE, data, [(12, 13, 1), (17, 17, 2)])
    assert corrupt is None
    assert {offset: record.raw_value for offset, record in records.items()} == {12: b"v12", 13: b"v13", 17: b"v17"}
    assert records[12].topic == "jobs"
    assert records[12].headers == [("h", b"1")]
    again, _ = made.read(PLACE, data, [(14, 16, 1), (18, 19, 1)])  # the rest of both, which come again
    assert sorted(again) == [14, 15, 16, 18, 19]


def test_a_header_whose_name_is_not_utf_8_has_a_name_that_can_be_printed() -> None:
    data = bytes(encode_batch([RecordData(0, 1, None, b"v", [("h\udcff", b"1")]), RecordData(1, 1, None, b"v", [])]))
    records, _ = reader().read(PLACE, data, [(0, 1, 1)])
    assert [record.headers for record in records.values()] == [[("h\\xff", b"1")], []]


def test_a_batch_that_fails_its_crc_is_said_to_be_corrupt_and_the_others_are_read() -> None:
    broken = bytearray(batch(10, 2))
    broken[-1] ^= 0xFF
    records, corrupt = reader().read(PLACE, bytes(broken), [(10, 11, 1)])
    assert records == {}
    assert corrupt is not None
    assert "CRC" in corrupt


def test_a_partition_without_records_is_read_as_none() -> None:
    assert reader().read(PLACE, None, [(1, 2, 1)]) == ({}, None)
    assert reader().read(Place(b"u" * 16, 3), batch(1, 1), [(1, 1, 1)]) == ({}, None)


@given(data=st.binary(max_size=200), position=st.integers(0, 150), value=st.integers(0, 255))
def test_no_bytes_of_a_broker_end_the_reader(data: bytes, position: int, value: int) -> None:
    damaged = bytearray(batch(10, 3))
    damaged[min(position, len(damaged) - 1)] = value
    for each in (data, bytes(damaged), bytes(damaged)[:position]):
        records, _ = reader().read(PLACE, each, [(10, 2**62, 1)])
        assert all(offset >= 10 for offset in records)


def test_a_wide_range_with_few_records_costs_what_the_records_cost() -> None:
    records, corrupt = reader().read(PLACE, batch(10, 3), [(0, 2**62, 1)])
    assert corrupt is None
    assert sorted(records) == [10, 11, 12]


def response(**part: Any) -> Any:
    whole = {
        "partition_index": 0,
        "error_code": 0,
        "acknowledge_error_code": 0,
        "records": None,
        "acquired_records": [],
    }
    topic = SimpleNamespace(topic_id=PLACE.topic_id, partitions=[SimpleNamespace(**{**whole, **part})])
    return SimpleNamespace(error_code=0, acquisition_lock_timeout_ms=-5, responses=[topic])


@pytest.mark.parametrize(("first", "last"), [(5, 4), (-1, 3)])
def test_a_range_that_cannot_be_is_refused(first: int, last: int) -> None:
    acquired = [SimpleNamespace(first_offset=first, last_offset=last, delivery_count=1)]
    with pytest.raises(BrokerUnavailable, match="no such range"):
        share_answer(response(acquired_records=acquired), reader().read)


def test_an_answer_is_read_whatever_its_numbers_are() -> None:
    answer = share_answer(response(error_code=6, acknowledge_error_code=121), reader().read)
    assert answer.lock_ms == 0
    assert answer.partitions[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.partitions[0].acknowledge_error is ErrorCode.INVALID_RECORD_STATE


def test_what_is_said_goes_as_ranges_in_the_order_of_offsets() -> None:
    def lease(offset: int) -> Lease:
        return Lease(
            topic_partition=TopicPartition("jobs", 0),
            place=PLACE,
            node=1,
            offset=offset,
            record=None,
            delivery_count=1,
            acquired_ms=0,
            lock_ms=1_000,
        )

    kinds = {9: Acknowledgement.RENEW, 7: Acknowledgement.ACCEPT, 6: Acknowledgement.ACCEPT, 4: Acknowledgement.REJECT}
    answers = {offset: (kind, lease(offset)) for offset, kind in kinds.items()}
    sent = SentAcknowledgements(answers, [], is_single=False)
    request = ShareRequest(node=1, epoch=3, sent_ms=0, acknowledgements={PLACE: sent})
    api, body = share_body(request, group="g", member_id="m", max_bytes=1)
    assert api is ApiKey.SHARE_ACKNOWLEDGE
    assert body["is_renew_ack"]
    batches = body["topics"][0]["partitions"][0]["acknowledgement_batches"]
    assert [(each["first_offset"], each["last_offset"], each["acknowledge_types"]) for each in batches] == [
        (4, 4, [3]),
        (6, 7, [1]),
        (9, 9, [4]),
    ]
