"""DescribeConfigs: configs of topics, brokers and other resources, with their sources."""

from __future__ import annotations

VERSIONS = "1-4"
FLEXIBLE = "4+"

REQUEST = """
resources               [DescribeConfigsResource]
    resource_type       int8
    resource_name       string
    configuration_keys  [string]?
include_synonyms        bool
include_documentation   bool  3+
"""

RESPONSE = """
throttle_time_ms       int32
results                [DescribeConfigsResult]
    error_code         int16
    error_message      string?
    resource_type      int8
    resource_name      string
    configs            [DescribeConfigsResourceResult]
        name           string
        value          string?
        read_only      bool
        config_source  int8     =-1
        is_sensitive   bool
        synonyms       [DescribeConfigsSynonym]
            name       string
            value      string?
            source     int8
        config_type    int8     3+
        documentation  string?  3+
"""
