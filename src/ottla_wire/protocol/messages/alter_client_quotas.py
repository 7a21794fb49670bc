"""AlterClientQuotas: set or remove quotas."""

from __future__ import annotations

VERSIONS = "0-1"
FLEXIBLE = "1+"

REQUEST = """
entries              [EntryData]
    entity           [EntityData]
        entity_type  string
        entity_name  string?
    ops              [OpData]
        key          string
        value        float64
        remove       bool
validate_only        bool
"""

RESPONSE = """
throttle_time_ms     int32
entries              [EntryData]
    error_code       int16
    error_message    string?
    entity           [EntityData]
        entity_type  string
        entity_name  string?
"""
