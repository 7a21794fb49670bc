"""OffsetCommit: store a group's offsets.

Version 10 names topics by id (KIP-848).
"""

from __future__ import annotations

VERSIONS = "2-10"
FLEXIBLE = "8+"

REQUEST = """
group_id                        string
generation_id_or_member_epoch   int32    =-1
member_id                       string
group_instance_id               string?  7+ =null
retention_time_ms               int64    2-4 =-1
topics                          [OffsetCommitRequestTopic]
    name                        string   2-9
    topic_id                    uuid     10+
    partitions                  [OffsetCommitRequestPartition]
        partition_index         int32
        committed_offset        int64
        committed_leader_epoch  int32    6+ =-1
        committed_metadata      string?
"""

RESPONSE = """
throttle_time_ms         int32   3+
topics                   [OffsetCommitResponseTopic]
    name                 string  2-9
    topic_id             uuid    10+
    partitions           [OffsetCommitResponsePartition]
        partition_index  int32
        error_code       int16
"""
