"""DescribeShareGroupOffsets: start offsets of a share group (KIP-932)."""

from __future__ import annotations

VERSIONS = "0-1"
FLEXIBLE = "0+"

REQUEST = """
groups              [DescribeShareGroupOffsetsRequestGroup]
    group_id        string
    topics          [DescribeShareGroupOffsetsRequestTopic]?  =null
        topic_name  string
        partitions  [int32]
"""

RESPONSE = """
throttle_time_ms             int32
groups                       [DescribeShareGroupOffsetsResponseGroup]
    group_id                 string
    topics                   [DescribeShareGroupOffsetsResponseTopic]
        topic_name           string
        topic_id             uuid
        partitions           [DescribeShareGroupOffsetsResponsePartition]
            partition_index  int32
            start_offset     int64
            leader_epoch     int32
            lag              int64    1+ =-1
            error_code       int16
            error_message    string?  =null
    error_code               int16
    error_message            string?  =null
"""
