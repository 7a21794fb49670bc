"""WriteTxnMarkers: a transaction coordinator tells leaders how a transaction ended.

Between brokers only.
"""

from __future__ import annotations

VERSIONS = "1-2"
FLEXIBLE = "1+"

REQUEST = """
markers                    [WritableTxnMarker]
    producer_id            int64
    producer_epoch         int16
    transaction_result     bool
    topics                 [WritableTxnMarkerTopic]
        name               string
        partition_indexes  [int32]
    coordinator_epoch      int32
    transaction_version    int8  2+
"""

RESPONSE = """
markers                      [WritableTxnMarkerResult]
    producer_id              int64
    topics                   [WritableTxnMarkerTopicResult]
        name                 string
        partitions           [WritableTxnMarkerPartitionResult]
            partition_index  int32
            error_code       int16
"""
