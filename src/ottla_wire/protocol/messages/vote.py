"""Vote: a candidate of the metadata quorum asks for a vote.

Between controllers. 2 adds pre-votes (KIP-996).
"""

from __future__ import annotations

VERSIONS = "0-2"
FLEXIBLE = "0+"

REQUEST = """
cluster_id                    string?  =null
voter_id                      int32    1+ =-1
topics                        [TopicData]
    topic_name                string
    partitions                [PartitionData]
        partition_index       int32
        replica_epoch         int32
        replica_id            int32
        replica_directory_id  uuid     1+
        voter_directory_id    uuid     1+
        last_offset_epoch     int32
        last_offset           int64
        pre_vote              bool     2+
"""

RESPONSE = """
error_code               int16
topics                   [TopicData]
    topic_name           string
    partitions           [PartitionData]
        partition_index  int32
        error_code       int16
        leader_id        int32
        leader_epoch     int32
        vote_granted     bool
node_endpoints           [NodeEndpoint]  1+ @0
    node_id              int32
    host                 string
    port                 uint16
"""
