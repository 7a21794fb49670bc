"""InitializeShareGroupState: begin a share partition's state (KIP-932).

Between group and share coordinator.
"""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
group_id              string
topics                [InitializeStateData]
    topic_id          uuid
    partitions        [PartitionData]
        partition     int32
        state_epoch   int32
        start_offset  int64
"""

RESPONSE = """
results                [InitializeStateResult]
    topic_id           uuid
    partitions         [PartitionResult]
        partition      int32
        error_code     int16
        error_message  string?  =null
"""
