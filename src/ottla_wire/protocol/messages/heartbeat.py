"""Heartbeat: stay a member of a classic group.

Version 3 adds static members.
"""

from __future__ import annotations

VERSIONS = "0-4"
FLEXIBLE = "4+"

REQUEST = """
group_id           string
generation_id      int32
member_id          string
group_instance_id  string?  3+ =null
"""

RESPONSE = """
throttle_time_ms  int32  1+
error_code        int16
"""
