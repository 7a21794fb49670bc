"""SaslHandshake: choose a mechanism.

Version 0 is followed by raw tokens instead of SaslAuthenticate. Never became flexible.
"""

from __future__ import annotations

VERSIONS = "0-1"
FLEXIBLE = None

REQUEST = """
mechanism  string
"""

RESPONSE = """
error_code  int16
mechanisms  [string]
"""
