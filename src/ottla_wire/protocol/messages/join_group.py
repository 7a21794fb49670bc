"""JoinGroup: enter a classic consumer group, or stay in it.

Version 5 adds static members, 7 names the protocol type, 8 the reason, 9 lets the leader skip its assignment.
"""

from __future__ import annotations

VERSIONS = "0-9"
FLEXIBLE = "6+"

REQUEST = """
group_id              string
session_timeout_ms    int32
rebalance_timeout_ms  int32    1+ =-1
member_id             string
group_instance_id     string?  5+ =null
protocol_type         string
protocols             [JoinGroupRequestProtocol]
    name              string
    metadata          bytes
reason                string?  8+ =null
"""

RESPONSE = """
throttle_time_ms       int32    2+
error_code             int16
generation_id          int32    =-1
protocol_type          string?  7+ =null
protocol_name          string   ?7+
leader                 string
skip_assignment        bool     9+
member_id              string
members                [JoinGroupResponseMember]
    member_id          string
    group_instance_id  string?  5+ =null
    metadata           bytes
"""
