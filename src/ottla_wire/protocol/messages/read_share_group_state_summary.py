"""ReadShareGroupStateSummary: a share partition's start offset (KIP-932).

Between group and share coordinator.
"""

from __future__ import annotations

VERSIONS = "0-1"
FLEXIBLE = "0+"

REQUEST = """
group_id              string
topics                [ReadStateSummaryData]
    topic_id          uuid
    partitions        [PartitionData]
        partition     int32
        leader_epoch  int32
"""

RESPONSE = """
results                          [ReadStateSummaryResult]
    topic_id                     uuid
    partitions                   [PartitionResult]
        partition                int32
        error_code               int16
        error_message            string?  =null
        state_epoch              int32
        leader_epoch             int32
        start_offset             int64
        delivery_complete_count  int32    1+ =-1
"""
