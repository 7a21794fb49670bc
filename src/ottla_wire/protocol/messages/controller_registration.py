"""ControllerRegistration: a controller makes itself known.

Between controllers.
"""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
controller_id              int32
incarnation_id             uuid
zk_migration_ready         bool
listeners                  [Listener]
    name                   string
    host                   string
    port                   uint16
    security_protocol      int16
features                   [Feature]
    name                   string
    min_supported_version  int16
    max_supported_version  int16
"""

RESPONSE = """
throttle_time_ms  int32
error_code        int16
error_message     string?
"""
