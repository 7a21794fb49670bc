"""DescribeDelegationToken: list tokens."""

from __future__ import annotations

VERSIONS = "1-3"
FLEXIBLE = "2+"

REQUEST = """
owners              [DescribeDelegationTokenOwner]?
    principal_type  string
    principal_name  string
"""

RESPONSE = """
error_code                          int16
tokens                              [DescribedDelegationToken]
    principal_type                  string
    principal_name                  string
    token_requester_principal_type  string  3+
    token_requester_principal_name  string  3+
    issue_timestamp                 int64
    expiry_timestamp                int64
    max_timestamp                   int64
    token_id                        string
    hmac                            bytes
    renewers                        [DescribedDelegationTokenRenewer]
        principal_type              string
        principal_name              string
throttle_time_ms                    int32
"""
