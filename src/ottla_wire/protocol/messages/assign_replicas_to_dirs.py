"""AssignReplicasToDirs: a broker tells the controller where replicas live.

Between broker and controller.
"""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
broker_id                    int32
broker_epoch                 int64  =-1
directories                  [DirectoryData]
    id                       uuid
    topics                   [TopicData]
        topic_id             uuid
        partitions           [PartitionData]
            partition_index  int32
"""

RESPONSE = """
throttle_time_ms             int32
error_code                   int16
directories                  [DirectoryData]
    id                       uuid
    topics                   [TopicData]
        topic_id             uuid
        partitions           [PartitionData]
            partition_index  int32
            error_code       int16
"""
