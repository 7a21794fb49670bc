"""ListGroups: the groups that this broker coordinates.

4+ filters by state, 5 by type.
"""

from __future__ import annotations

VERSIONS = "0-5"
FLEXIBLE = "3+"

REQUEST = """
states_filter  [string]  4+
types_filter   [string]  5+
"""

RESPONSE = """
throttle_time_ms   int32   1+
error_code         int16
groups             [ListedGroup]
    group_id       string
    protocol_type  string
    group_state    string  4+
    group_type     string  5+
"""
