"""ListOffsets: offsets by timestamp, or the ends of a log.

Negative timestamps are questions: -1 latest, -2 earliest, -3 max timestamp (7+), -4 earliest local (8+), -5 last
tiered (9+), -6 earliest pending upload (11+).
"""

from __future__ import annotations

VERSIONS = "1-11"
FLEXIBLE = "6+"

REQUEST = """
replica_id                    int32
isolation_level               int8   2+
topics                        [ListOffsetsTopic]
    name                      string
    partitions                [ListOffsetsPartition]
        partition_index       int32
        current_leader_epoch  int32  4+ =-1
        timestamp             int64
timeout_ms                    int32  10+
"""

RESPONSE = """
throttle_time_ms         int32  2+
topics                   [ListOffsetsTopicResponse]
    name                 string
    partitions           [ListOffsetsPartitionResponse]
        partition_index  int32
        error_code       int16
        timestamp        int64  =-1
        offset           int64  =-1
        leader_epoch     int32  4+ =-1
"""
