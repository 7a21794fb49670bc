"""Envelope: a client's request, forwarded to the controller with its principal.

Between broker and controller.
"""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
request_data         bytes
request_principal    bytes?
client_host_address  bytes
"""

RESPONSE = """
response_data  bytes?  =null
error_code     int16
"""
