"""DescribeAcls: list ACLs that match a filter."""

from __future__ import annotations

VERSIONS = "1-3"
FLEXIBLE = "2+"

REQUEST = """
resource_type_filter  int8
resource_name_filter  string?
pattern_type_filter   int8  =3
principal_filter      string?
host_filter           string?
operation             int8
permission_type       int8
"""

RESPONSE = """
throttle_time_ms         int32
error_code               int16
error_message            string?
resources                [DescribeAclsResource]
    resource_type        int8
    resource_name        string
    pattern_type         int8  =3
    acls                 [AclDescription]
        principal        string
        host             string
        operation        int8
        permission_type  int8
"""
