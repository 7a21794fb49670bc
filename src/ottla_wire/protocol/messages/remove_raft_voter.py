"""RemoveRaftVoter: remove a voter from the metadata quorum (KIP-853)."""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
cluster_id          string?
voter_id            int32
voter_directory_id  uuid
"""

RESPONSE = """
throttle_time_ms  int32
error_code        int16
error_message     string?
"""
