"""UnregisterController: remove a controller from the cluster's registrations."""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
controller_id  int32
"""

RESPONSE = """
throttle_time_ms  int32
error_code        int16
error_message     string?
"""
