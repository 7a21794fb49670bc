"""PushTelemetry: a client's metrics (KIP-714)."""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
client_instance_id  uuid
subscription_id     int32
terminating         bool
compression_type    int8
metrics             bytes
"""

RESPONSE = """
throttle_time_ms  int32
error_code        int16
"""
