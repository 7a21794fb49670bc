"""AlterReplicaLogDirs: move replicas between directories of a broker."""

from __future__ import annotations

VERSIONS = "1-2"
FLEXIBLE = "2+"

REQUEST = """
dirs                [AlterReplicaLogDir]
    path            string
    topics          [AlterReplicaLogDirTopic]
        name        string
        partitions  [int32]
"""

RESPONSE = """
throttle_time_ms         int32
results                  [AlterReplicaLogDirTopicResult]
    topic_name           string
    partitions           [AlterReplicaLogDirPartitionResult]
        partition_index  int32
        error_code       int16
"""
