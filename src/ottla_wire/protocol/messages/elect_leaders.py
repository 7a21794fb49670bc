"""ElectLeaders: preferred or unclean election."""

from __future__ import annotations

VERSIONS = "0-2"
FLEXIBLE = "2+"

REQUEST = """
election_type     int8   1+
topic_partitions  [TopicPartitions]?
    topic         string
    partitions    [int32]
timeout_ms        int32  =60000
"""

RESPONSE = """
throttle_time_ms          int32
error_code                int16  1+
replica_election_results  [ReplicaElectionResult]
    topic                 string
    partition_result      [PartitionResult]
        partition_id      int32
        error_code        int16
        error_message     string?
"""
