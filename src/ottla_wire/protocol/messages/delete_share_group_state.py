"""DeleteShareGroupState: forget a share partition's state (KIP-932).

Between group and share coordinator.
"""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
group_id           string
topics             [DeleteStateData]
    topic_id       uuid
    partitions     [PartitionData]
        partition  int32
"""

RESPONSE = """
results                [DeleteStateResult]
    topic_id           uuid
    partitions         [PartitionResult]
        partition      int32
        error_code     int16
        error_message  string?  =null
"""
