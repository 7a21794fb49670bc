"""DescribeClientQuotas: quotas of users, client ids and addresses."""

from __future__ import annotations

VERSIONS = "0-1"
FLEXIBLE = "1+"

REQUEST = """
components       [ComponentData]
    entity_type  string
    match_type   int8
    match        string?
strict           bool
"""

RESPONSE = """
throttle_time_ms     int32
error_code           int16
error_message        string?
entries              [EntryData]?
    entity           [EntityData]
        entity_type  string
        entity_name  string?
    values           [ValueData]
        key          string
        value        float64
"""
