"""ApiVersions: what the broker speaks.

The response header is version 0 in every version, and a broker answers an unknown version with a version 0 body and
UNSUPPORTED_VERSION: a client must be able to read it before it knows anything. 3 adds client name and features, 5 the
broker that the client means to reach (KIP-1242).
"""

from __future__ import annotations

VERSIONS = "0-5"
FLEXIBLE = "3+"

REQUEST = """
client_software_name     string  3+
client_software_version  string  3+
cluster_id               string? 5+ =null
node_id                  int32   5+ =-1
"""

RESPONSE = """
error_code                int16
api_keys                  [ApiVersion]
    api_key               int16
    min_version           int16
    max_version           int16
throttle_time_ms          int32                  1+
supported_features        [SupportedFeatureKey]  3+ @0
    name                  string
    min_version           int16
    max_version           int16
finalized_features_epoch  int64                  3+ =-1 @1
finalized_features        [FinalizedFeatureKey]  3+ @2
    name                  string
    max_version_level     int16
    min_version_level     int16
zk_migration_ready        bool                   3+ @3
"""
