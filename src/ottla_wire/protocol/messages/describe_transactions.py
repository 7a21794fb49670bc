"""DescribeTransactions: state and partitions of transactions."""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
transactional_ids  [string]
"""

RESPONSE = """
throttle_time_ms               int32
transaction_states             [TransactionState]
    error_code                 int16
    transactional_id           string
    transaction_state          string
    transaction_timeout_ms     int32
    transaction_start_time_ms  int64
    producer_id                int64
    producer_epoch             int16
    topics                     [TopicData]
        topic                  string
        partitions             [int32]
"""
