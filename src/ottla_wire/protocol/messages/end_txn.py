"""EndTxn: commit or abort.

Version 5 returns the next producer epoch (KIP-890).
"""

from __future__ import annotations

VERSIONS = "0-5"
FLEXIBLE = "3+"

REQUEST = """
transactional_id  string
producer_id       int64
producer_epoch    int16
committed         bool
"""

RESPONSE = """
throttle_time_ms  int32
error_code        int16
producer_id       int64  5+ =-1
producer_epoch    int16  5+ =-1
"""
