"""ReadShareGroupState: a share partition's state (KIP-932).

Between leader and share coordinator.
"""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
group_id              string
topics                [ReadStateData]
    topic_id          uuid
    partitions        [PartitionData]
        partition     int32
        leader_epoch  int32
"""

RESPONSE = """
results                     [ReadStateResult]
    topic_id                uuid
    partitions              [PartitionResult]
        partition           int32
        error_code          int16
        error_message       string?  =null
        state_epoch         int32
        start_offset        int64
        state_batches       [StateBatch]
            first_offset    int64
            last_offset     int64
            delivery_state  int8
            delivery_count  int16
"""
