"""AlterConfigs: replace all configs of a resource.

Deprecated in favour of IncrementalAlterConfigs, still served by Kafka 4.
"""

from __future__ import annotations

VERSIONS = "0-2"
FLEXIBLE = "2+"

REQUEST = """
resources          [AlterConfigsResource]
    resource_type  int8
    resource_name  string
    configs        [AlterableConfig]
        name       string
        value      string?
validate_only      bool
"""

RESPONSE = """
throttle_time_ms   int32
responses          [AlterConfigsResourceResponse]
    error_code     int16
    error_message  string?
    resource_type  int8
    resource_name  string
"""
