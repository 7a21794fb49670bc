"""DeleteGroups: delete empty groups with their offsets.

Version 3 adds a message to each error.
"""

from __future__ import annotations

VERSIONS = "0-3"
FLEXIBLE = "2+"

REQUEST = """
groups_names  [string]
"""

RESPONSE = """
throttle_time_ms  int32
results           [DeletableGroupResult]
    group_id      string
    error_code    int16
    error_message string?  3+ =null
"""
