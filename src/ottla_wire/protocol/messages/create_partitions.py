"""CreatePartitions: add partitions to topics."""

from __future__ import annotations

VERSIONS = "0-3"
FLEXIBLE = "2+"

REQUEST = """
topics              [CreatePartitionsTopic]
    name            string
    count           int32
    assignments     [CreatePartitionsAssignment]?
        broker_ids  [int32]
timeout_ms          int32
validate_only       bool
"""

RESPONSE = """
throttle_time_ms   int32
results            [CreatePartitionsTopicResult]
    name           string
    error_code     int16
    error_message  string?  =null
"""
