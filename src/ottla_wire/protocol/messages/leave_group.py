"""LeaveGroup: leave a classic group.

3+ removes several members at once, static ones too; 5 carries reasons.
"""

from __future__ import annotations

VERSIONS = "0-5"
FLEXIBLE = "4+"

REQUEST = """
group_id               string
member_id              string            0-2
members                [MemberIdentity]  3+
    member_id          string
    group_instance_id  string?           =null
    reason             string?           5+ =null
"""

RESPONSE = """
throttle_time_ms       int32             1+
error_code             int16
members                [MemberResponse]  3+
    member_id          string
    group_instance_id  string?
    error_code         int16
"""
