"""DescribeQuorum: state of the metadata quorum."""

from __future__ import annotations

VERSIONS = "0-2"
FLEXIBLE = "0+"

REQUEST = """
topics                   [TopicData]
    topic_name           string
    partitions           [PartitionData]
        partition_index  int32
"""

RESPONSE = """
error_code               int16
error_message            string?  2+
topics                   [TopicData]
    topic_name           string
    partitions           [PartitionData]
        partition_index  int32
        error_code       int16
        error_message    string?  2+
        leader_id        int32
        leader_epoch     int32
        high_watermark   int64
        current_voters   [ReplicaState]
        observers        [ReplicaState]
nodes                    [Node]   2+
    node_id              int32
    listeners            [Listener]
        name             string
        host             string
        port             uint16
struct ReplicaState
    replica_id                int32
    replica_directory_id      uuid   2+
    log_end_offset            int64
    last_fetch_timestamp      int64  1+ =-1
    last_caught_up_timestamp  int64  1+ =-1
"""
