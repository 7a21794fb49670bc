"""AlterUserScramCredentials: set or remove SCRAM credentials."""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
deletions            [ScramCredentialDeletion]
    name             string
    mechanism        int8
upsertions           [ScramCredentialUpsertion]
    name             string
    mechanism        int8
    iterations       int32
    salt             bytes
    salted_password  bytes
"""

RESPONSE = """
throttle_time_ms   int32
results            [AlterUserScramCredentialsResult]
    user           string
    error_code     int16
    error_message  string?
"""
