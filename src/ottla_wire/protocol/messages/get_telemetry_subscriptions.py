"""GetTelemetrySubscriptions: which metrics the broker wants from a client (KIP-714)."""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
client_instance_id  uuid
"""

RESPONSE = """
throttle_time_ms            int32
error_code                  int16
client_instance_id          uuid
subscription_id             int32
accepted_compression_types  [int8]
push_interval_ms            int32
telemetry_max_bytes         int32
delta_temporality           bool
requested_metrics           [string]
"""
