"""SaslAuthenticate: one step of the mechanism's exchange."""

from __future__ import annotations

VERSIONS = "0-2"
FLEXIBLE = "2+"

REQUEST = """
auth_bytes  bytes
"""

RESPONSE = """
error_code           int16
error_message        string?
auth_bytes           bytes
session_lifetime_ms  int64  1+
"""
