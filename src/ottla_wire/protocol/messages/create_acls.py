"""CreateAcls: add ACLs."""

from __future__ import annotations

VERSIONS = "1-3"
FLEXIBLE = "2+"

REQUEST = """
creations                  [AclCreation]
    resource_type          int8
    resource_name          string
    resource_pattern_type  int8  =3
    principal              string
    host                   string
    operation              int8
    permission_type        int8
"""

RESPONSE = """
throttle_time_ms   int32
results            [AclCreationResult]
    error_code     int16
    error_message  string?
"""
