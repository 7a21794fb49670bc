"""AddRaftVoter: add a voter to the metadata quorum (KIP-853)."""

from __future__ import annotations

VERSIONS = "0-1"
FLEXIBLE = "0+"

REQUEST = """
cluster_id          string?
timeout_ms          int32
voter_id            int32
voter_directory_id  uuid
listeners           [Listener]
    name            string
    host            string
    port            uint16
ack_when_committed  bool  1+ =true
"""

RESPONSE = """
throttle_time_ms  int32
error_code        int16
error_message     string?
"""
