"""AlterShareGroupOffsets: move a share group's start offsets (KIP-932)."""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
group_id                 string
topics                   [AlterShareGroupOffsetsRequestTopic]
    topic_name           string
    partitions           [AlterShareGroupOffsetsRequestPartition]
        partition_index  int32
        start_offset     int64
"""

RESPONSE = """
throttle_time_ms         int32
error_code               int16
error_message            string?  =null
responses                [AlterShareGroupOffsetsResponseTopic]
    topic_name           string
    topic_id             uuid
    partitions           [AlterShareGroupOffsetsResponsePartition]
        partition_index  int32
        error_code       int16
        error_message    string?  =null
"""
