"""IncrementalAlterConfigs: set, delete, append to or subtract from single configs."""

from __future__ import annotations

VERSIONS = "0-1"
FLEXIBLE = "1+"

REQUEST = """
resources                 [AlterConfigsResource]
    resource_type         int8
    resource_name         string
    configs               [AlterableConfig]
        name              string
        config_operation  int8
        value             string?
validate_only             bool
"""

RESPONSE = """
throttle_time_ms   int32
responses          [AlterConfigsResourceResponse]
    error_code     int16
    error_message  string?
    resource_type  int8
    resource_name  string
"""
