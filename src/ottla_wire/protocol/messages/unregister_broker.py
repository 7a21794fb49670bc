"""UnregisterBroker: remove a dead broker from the cluster."""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
broker_id  int32
"""

RESPONSE = """
throttle_time_ms  int32
error_code        int16
error_message     string?
"""
