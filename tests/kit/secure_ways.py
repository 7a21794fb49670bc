"""The ways to connect to a secure Kafka that every client is tried on, as arguments of `ottla.testing.secure_kafka`."""

from __future__ import annotations

from typing import Any

WAYS: dict[str, dict[str, Any]] = {
    "tls": {"protocol": "SSL"},
    "mtls": {"protocol": "SSL", "client_auth": "required"},
    "plain": {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN"},
    "scram-256": {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-256"},
    "oauthbearer": {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER"},
    "scram-512": {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "client_auth": "requested"},
}
