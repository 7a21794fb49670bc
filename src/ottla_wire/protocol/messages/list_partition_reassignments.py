"""ListPartitionReassignments: moves in progress."""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
timeout_ms             int32                                =60000
topics                 [ListPartitionReassignmentsTopics]?  =null
    name               string
    partition_indexes  [int32]
"""

RESPONSE = """
throttle_time_ms           int32
error_code                 int16
error_message              string?
topics                     [OngoingTopicReassignment]
    name                   string
    partitions             [OngoingPartitionReassignment]
        partition_index    int32
        replicas           [int32]
        adding_replicas    [int32]
        removing_replicas  [int32]
"""
