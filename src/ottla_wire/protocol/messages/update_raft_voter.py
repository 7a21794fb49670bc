"""UpdateRaftVoter: a voter reports new endpoints (KIP-853)."""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
cluster_id                 string?
current_leader_epoch       int32
voter_id                   int32
voter_directory_id         uuid
listeners                  [Listener]
    name                   string
    host                   string
    port                   uint16
k_raft_version_feature     KRaftVersionFeature
    min_supported_version  int16
    max_supported_version  int16
"""

RESPONSE = """
throttle_time_ms  int32
error_code        int16
current_leader    CurrentLeader  @0
    leader_id     int32          =-1
    leader_epoch  int32          =-1
    host          string
    port          int32
"""
