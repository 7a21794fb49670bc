"""OffsetDelete: forget a group's committed offsets for partitions that nobody consumes.

Never became flexible.
"""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = None

REQUEST = """
group_id                 string
topics                   [OffsetDeleteRequestTopic]
    name                 string
    partitions           [OffsetDeleteRequestPartition]
        partition_index  int32
"""

RESPONSE = """
error_code               int16
throttle_time_ms         int32
topics                   [OffsetDeleteResponseTopic]
    name                 string
    partitions           [OffsetDeleteResponsePartition]
        partition_index  int32
        error_code       int16
"""
