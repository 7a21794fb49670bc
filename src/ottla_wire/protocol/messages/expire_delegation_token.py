"""ExpireDelegationToken: end a token."""

from __future__ import annotations

VERSIONS = "1-2"
FLEXIBLE = "2+"

REQUEST = """
hmac                   bytes
expiry_time_period_ms  int64
"""

RESPONSE = """
error_code           int16
expiry_timestamp_ms  int64
throttle_time_ms     int32
"""
