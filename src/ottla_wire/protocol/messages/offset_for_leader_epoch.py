"""OffsetForLeaderEpoch: where a leader epoch ends.

librdkafka speaks version 2 only and gives up its truncation check if a broker does not list it.
"""

from __future__ import annotations

VERSIONS = "2-4"
FLEXIBLE = "4+"

REQUEST = """
replica_id                    int32  3+ =-2
topics                        [OffsetForLeaderTopic]
    topic                     string
    partitions                [OffsetForLeaderPartition]
        partition             int32
        current_leader_epoch  int32  =-1
        leader_epoch          int32
"""

RESPONSE = """
throttle_time_ms      int32
topics                [OffsetForLeaderTopicResult]
    topic             string
    partitions        [EpochEndOffset]
        error_code    int16
        partition     int32
        leader_epoch  int32  =-1
        end_offset    int64  =-1
"""
