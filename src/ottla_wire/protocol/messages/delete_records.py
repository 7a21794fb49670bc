"""DeleteRecords: move a partition's log start offset forward.

Offset -1 means the high watermark.
"""

from __future__ import annotations

VERSIONS = "0-2"
FLEXIBLE = "2+"

REQUEST = """
topics                   [DeleteRecordsTopic]
    name                 string
    partitions           [DeleteRecordsPartition]
        partition_index  int32
        offset           int64
timeout_ms               int32
"""

RESPONSE = """
throttle_time_ms         int32
topics                   [DeleteRecordsTopicResult]
    name                 string
    partitions           [DeleteRecordsPartitionResult]
        partition_index  int32
        low_watermark    int64
        error_code       int16
"""
