"""Records of the internal topics, as Kafka's own tools read them."""

from __future__ import annotations

import pytest

from ottla_wire.protocol import ProtocolError, codec, schemas

# Written by hand from the definitions: version prefix, then the fields.
GOLDEN = [
    ("OffsetCommitKey", 1, {"group": "g", "topic": "t", "partition": 3}, "0001" "000167" "000174" "00000003"),
    ("OffsetCommitValue", 1, {"offset": 5, "metadata": "m", "commit_timestamp": 7, "expire_timestamp": 9},
     "0001" "0000000000000005" "00016d" "0000000000000007" "0000000000000009"),
    ("OffsetCommitValue", 3, {"offset": 5, "leader_epoch": 2, "metadata": "", "commit_timestamp": 7},
     "0003" "0000000000000005" "00000002" "0000" "0000000000000007"),
    ("GroupMetadataKey", 2, {"group": "g"}, "0002" "000167"),
    ("GroupMetadataValue", 3,
     {"protocol_type": "consumer", "generation": 1, "protocol": "range", "leader": "m", "current_state_timestamp": 4,
      "members": [{"member_id": "m", "client_id": "c", "client_host": "h", "rebalance_timeout": 2,
                   "session_timeout": 3, "subscription": b"\1", "assignment": b"\2\3"}]},
     "0003" "0008636f6e73756d6572" "00000001" "000572616e6765" "00016d" "0000000000000004" "00000001"
     "00016d" "ffff" "000163" "000168" "00000002" "00000003" "0000000101" "000000020203"),
    ("ConsumerGroupMetadataValue", 0, {"epoch": 6}, "0000" "00000006" "00"),
    ("ConsumerGroupCurrentMemberAssignmentKey", 8, {"group_id": "g", "member_id": "m"}, "0008" "000167" "00016d"),
    # Written by Kafka 4.4: the first snapshot of a group `g`; its state has no start offset yet.
    ("ShareSnapshotKey", 0,
     {"group_id": "g", "topic_id": bytes.fromhex("cf18617962dc4857bbe570291d6f6f33"), "partition": 0},
     "0000" "000167" "cf18617962dc4857bbe570291d6f6f33" "00000000"),
    ("ShareSnapshotValue", 0,
     {"snapshot_epoch": 0, "state_epoch": 2, "leader_epoch": 0, "start_offset": -1, "create_timestamp": 7,
      "write_timestamp": 8, "state_batches": []},
     "0000" "00000000" "00000002" "00000000" "ffffffffffffffff" "0000000000000007" "0000000000000008" "01" "00"),
    ("ShareUpdateValue", 0,
     {"snapshot_epoch": 0, "leader_epoch": 1, "start_offset": -1, "delivery_complete_count": 2,
      "state_batches": [{"first_offset": 0, "last_offset": 1, "delivery_state": 2, "delivery_count": 1}]},
     "0000" "00000000" "00000001" "ffffffffffffffff" "02" "0000000000000000" "0000000000000001" "02" "0001" "00"
     "01" "00" "04" "00000002"),
    ("TransactionLogKey", 0, {"transactional_id": "tx"}, "0000" "00027478"),
    ("TransactionLogValue", 0,
     {"producer_id": 1, "producer_epoch": 2, "transaction_timeout_ms": 3, "transaction_status": 4,
      "transaction_partitions": None, "transaction_last_update_timestamp_ms": 5, "transaction_start_timestamp_ms": 6},
     "0000" "0000000000000001" "0002" "00000003" "04" "ffffffff" "0000000000000005" "0000000000000006"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "version", "body", "expected"), GOLDEN, ids=lambda value: str(value)[:40])
def test_a_record_has_the_golden_bytes(name, version, body, expected):
    encoded = codec.encode_record_value(name, version, body)
    assert encoded.hex() == expected
    found, message = codec.decode_record_value(name, encoded)
    assert found == version
    assert codec.encode_record_value(name, version, {field: getattr(message, field) for field in body}) == encoded


def test_the_kind_of_a_key_is_its_version():
    kinds = {}
    for name in schemas.record_names():
        if name.endswith("Key") and not name.startswith(("Transaction", "ShareSnapshot", "ShareUpdate")):
            versions = schemas.record(name).versions
            for version in range(versions.first, versions.last + 1):
                assert version not in kinds, name
                kinds[version] = name
    assert kinds[0] == kinds[1] == "OffsetCommitKey"
    assert kinds[2] == "GroupMetadataKey"
    assert sorted(kinds) == [0, 1, 2, 3, 4, 5, 6, 7, 8, *range(10, 17)]
    for version in kinds:
        assert codec.record_version(version.to_bytes(2, "big")) == version


def test_a_metadata_record_is_framed_with_its_type():
    encoded = codec.encode_metadata_record("TopicRecord", 0, {"name": "t", "topic_id": bytes(range(16))})
    assert encoded.hex() == "01" "02" "00" "0274" "000102030405060708090a0b0c0d0e0f" "00"  # fmt: skip
    name, version, message = codec.decode_metadata_record(encoded)
    assert (name, version, message.name) == ("TopicRecord", 0, "t")


@pytest.mark.parametrize("data", ["", "00", "0200", "017f00", "010209", "0102"])
def test_a_metadata_record_of_an_unknown_frame_type_or_version_is_refused(data):
    with pytest.raises(ProtocolError):
        codec.decode_metadata_record(bytes.fromhex(data))


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\x63", b"\0\1"])
def test_a_coordinator_record_that_is_cut_or_of_an_unknown_version_is_refused(data):
    with pytest.raises(ProtocolError):
        codec.decode_record_value("OffsetCommitKey", data)
