"""CreateDelegationToken: a token that stands for a principal."""

from __future__ import annotations

VERSIONS = "1-3"
FLEXIBLE = "2+"

REQUEST = """
owner_principal_type  string?  3+
owner_principal_name  string?  3+
renewers              [CreatableRenewers]
    principal_type    string
    principal_name    string
max_lifetime_ms       int64
"""

RESPONSE = """
error_code                      int16
principal_type                  string
principal_name                  string
token_requester_principal_type  string  3+
token_requester_principal_name  string  3+
issue_timestamp_ms              int64
expiry_timestamp_ms             int64
max_timestamp_ms                int64
token_id                        string
hmac                            bytes
throttle_time_ms                int32
"""
