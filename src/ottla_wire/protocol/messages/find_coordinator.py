"""FindCoordinator: which broker coordinates a group, a transactional id or a share partition.

4+ asks for several keys at once (KIP-699); 6 knows share groups.
"""

from __future__ import annotations

VERSIONS = "0-6"
FLEXIBLE = "3+"

REQUEST = """
key               string    0-3
key_type          int8      1+
coordinator_keys  [string]  4+
"""

RESPONSE = """
throttle_time_ms   int32          1+
error_code         int16          0-3
error_message      string?        1-3
node_id            int32          0-3
host               string         0-3
port               int32          0-3
coordinators       [Coordinator]  4+
    key            string
    node_id        int32
    host           string
    port           int32
    error_code     int16
    error_message  string?
"""
