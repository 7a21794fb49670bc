"""ListConfigResources: names of the resources that have configs.

Version 0 lists client metrics subscriptions only, as the API was first called.
"""

from __future__ import annotations

VERSIONS = "0-1"
FLEXIBLE = "0+"

REQUEST = """
resource_types  [int8]  1+
"""

RESPONSE = """
throttle_time_ms   int32
error_code         int16
config_resources   [ConfigResource]
    resource_name  string
    resource_type  int8  1+ =16
"""
