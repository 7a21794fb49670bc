"""DescribeUserScramCredentials: which users have SCRAM credentials."""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
users     [UserName]?
    name  string
"""

RESPONSE = """
throttle_time_ms      int32
error_code            int16
error_message         string?
results               [DescribeUserScramCredentialsResult]
    user              string
    error_code        int16
    error_message     string?
    credential_infos  [CredentialInfo]
        mechanism     int8
        iterations    int32
"""
