"""BrokerHeartbeat: a broker stays, unfences or shuts down in a controlled way.

Between broker and controller. Replaces ControlledShutdown since KRaft.
"""

from __future__ import annotations

VERSIONS = "0-2"
FLEXIBLE = "0+"

REQUEST = """
broker_id                int32
broker_epoch             int64    =-1
current_metadata_offset  int64
want_fence               bool
want_shut_down           bool
offline_log_dirs         [uuid]   1+ @0
cordoned_log_dirs        [uuid]?  2+ =null @1
"""

RESPONSE = """
throttle_time_ms  int32
error_code        int16
is_caught_up      bool
is_fenced         bool  =true
should_shut_down  bool
"""
