"""OffsetFetch: a group's committed offsets.

Topics null asks for all (2+). 8+ asks for several groups at once; 9 adds the member epoch, 10 topic ids (KIP-848).
"""

from __future__ import annotations

VERSIONS = "1-10"
FLEXIBLE = "6+"

REQUEST = """
group_id                   string                     1-7
topics                     [OffsetFetchRequestTopic]  1-7 ?2-7
    name                   string
    partition_indexes      [int32]
groups                     [OffsetFetchRequestGroup]  8+
    group_id               string
    member_id              string?                    9+ =null
    member_epoch           int32                      9+ =-1
    topics                 [OffsetFetchRequestTopics]?
        name               string                     8-9
        topic_id           uuid                       10+
        partition_indexes  [int32]
require_stable             bool                       7+
"""

RESPONSE = """
throttle_time_ms                    int32                       3+
topics                              [OffsetFetchResponseTopic]  1-7
    name                            string
    partitions                      [OffsetFetchResponsePartition]
        partition_index             int32
        committed_offset            int64
        committed_leader_epoch      int32                       5+ =-1
        metadata                    string?
        error_code                  int16
error_code                          int16                       2-7
groups                              [OffsetFetchResponseGroup]  8+
    group_id                        string
    topics                          [OffsetFetchResponseTopics]
        name                        string                      8-9
        topic_id                    uuid                        10+
        partitions                  [OffsetFetchResponsePartitions]
            partition_index         int32
            committed_offset        int64
            committed_leader_epoch  int32                       =-1
            metadata                string?
            error_code              int16
    error_code                      int16
"""
