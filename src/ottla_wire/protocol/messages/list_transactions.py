"""ListTransactions: transactions that this broker coordinates."""

from __future__ import annotations

VERSIONS = "0-2"
FLEXIBLE = "0+"

REQUEST = """
state_filters             [string]
producer_id_filters       [int64]
duration_filter           int64    1+ =-1
transactional_id_pattern  string?  2+ =null
"""

RESPONSE = """
throttle_time_ms       int32
error_code             int16
unknown_state_filters  [string]
transaction_states     [TransactionState]
    transactional_id   string
    producer_id        int64
    transaction_state  string
"""
