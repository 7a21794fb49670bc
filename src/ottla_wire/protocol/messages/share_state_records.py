"""Records of `__share_group_state` (KIP-932). Key version 0 is a snapshot, 1 an update."""

from __future__ import annotations

_KEY = """
    group_id   string
    topic_id   uuid
    partition  int32
    """

RECORDS = """
record ShareSnapshotKey  0
    group_id   string
    topic_id   uuid
    partition  int32

record ShareSnapshotValue  0  flexible=0+
    snapshot_epoch           int32
    state_epoch              int32
    leader_epoch             int32
    start_offset             int64
    delivery_complete_count  int32         =-1 @0
    create_timestamp         int64
    write_timestamp          int64
    state_batches            [StateBatch]
        first_offset         int64
        last_offset          int64
        delivery_state       int8
        delivery_count       int16

record ShareUpdateKey  1
    group_id   string
    topic_id   uuid
    partition  int32

record ShareUpdateValue  0  flexible=0+
    snapshot_epoch           int32
    leader_epoch             int32
    start_offset             int64
    delivery_complete_count  int32         =-1 @0
    state_batches            [StateBatch]
        first_offset         int64
        last_offset          int64
        delivery_state       int8
        delivery_count       int16
"""
