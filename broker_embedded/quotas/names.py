"""The quotas and their entities, by Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping

from broker_embedded.common.config_definition import INT_MAX, LONG_MAX

USER, CLIENT_ID, IP = "user", "client-id", "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

OF_CLIENTS: Mapping[str, int | None] = {
    PRODUCER_BYTE_RATE: LONG_MAX,
    CONSUMER_BYTE_RATE: LONG_MAX,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
"""Quotas of users and client ids: the maximum of whole-number quotas, None for the others."""

OF_ADDRESSES: Mapping[str, int | None] = {CONNECTION_CREATION_RATE: INT_MAX}
