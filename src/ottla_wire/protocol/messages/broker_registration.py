"""BrokerRegistration: a broker joins the cluster.

Between broker and controller.
"""

from __future__ import annotations

VERSIONS = "0-4"
FLEXIBLE = "0+"

REQUEST = """
broker_id                  int32
cluster_id                 string
incarnation_id             uuid
listeners                  [Listener]
    name                   string
    host                   string
    port                   uint16
    security_protocol      int16
features                   [Feature]
    name                   string
    min_supported_version  int16
    max_supported_version  int16
rack                       string?
is_migrating_zk_broker     bool    1+
log_dirs                   [uuid]  2+
previous_broker_epoch      int64   3+ =-1
"""

RESPONSE = """
throttle_time_ms  int32
error_code        int16
broker_epoch      int64  =-1
"""
