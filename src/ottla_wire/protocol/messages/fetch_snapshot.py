"""FetchSnapshot: read a snapshot of the metadata log.

Between controllers and brokers.
"""

from __future__ import annotations

VERSIONS = "0-1"
FLEXIBLE = "0+"

REQUEST = """
cluster_id                    string?  =null @0
replica_id                    int32    =-1
max_bytes                     int32    =2147483647
topics                        [TopicSnapshot]
    name                      string
    partitions                [PartitionSnapshot]
        partition             int32
        current_leader_epoch  int32
        snapshot_id           SnapshotId
            end_offset        int64
            epoch             int32
        position              int64
        replica_directory_id  uuid     1+ @0
"""

RESPONSE = """
throttle_time_ms           int32
error_code                 int16
topics                     [TopicSnapshot]
    name                   string
    partitions             [PartitionSnapshot]
        index              int32
        error_code         int16
        snapshot_id        SnapshotId
            end_offset     int64
            epoch          int32
        current_leader     LeaderIdAndEpoch  @0
            leader_id      int32
            leader_epoch   int32
        size               int64
        position           int64
        unaligned_records  records
node_endpoints             [NodeEndpoint]    1+ @0
    node_id                int32
    host                   string
    port                   uint16
"""
