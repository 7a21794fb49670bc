"""SyncGroup: hand out, or wait for, a classic group's assignment.

Version 3 adds static members, 5 the protocol.
"""

from __future__ import annotations

VERSIONS = "0-5"
FLEXIBLE = "4+"

REQUEST = """
group_id           string
generation_id      int32
member_id          string
group_instance_id  string?  3+ =null
protocol_type      string?  5+ =null
protocol_name      string?  5+ =null
assignments        [SyncGroupRequestAssignment]
    member_id      string
    assignment     bytes
"""

RESPONSE = """
throttle_time_ms  int32    1+
error_code        int16
protocol_type     string?  5+ =null
protocol_name     string?  5+ =null
assignment        bytes
"""
