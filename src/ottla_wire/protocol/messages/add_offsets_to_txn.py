"""AddOffsetsToTxn: enlist a group's offsets in a transaction."""

from __future__ import annotations

VERSIONS = "0-4"
FLEXIBLE = "3+"

REQUEST = """
transactional_id  string
producer_id       int64
producer_epoch    int16
group_id          string
"""

RESPONSE = """
throttle_time_ms  int32
error_code        int16
"""
