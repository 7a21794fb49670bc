"""The names of the settings of OAUTHBEARER: what every client reads, also one that has no tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MECHANISM: Final = "OAUTHBEARER"
PREFIX: Final = "sasl.oauthbearer."
TOKEN_NAME: Final = "sasl.oauthbearer.token"
BY_LIBRDKAFKA: Final = "sasl.oauthbearer.metadata.authentication.type"

SYNONYMS: Final = {  # Kafka 4.1 and librdkafka 2.14 -> the name before (KIP-1139)
    "client.credentials.client.id": "client.id",
    "client.credentials.client.secret": "client.secret",
}
_OWN: Final = """
    assertion.algorithm assertion.claim.aud assertion.claim.exp.seconds assertion.claim.iss
    assertion.claim.jti.include assertion.claim.nbf.seconds assertion.claim.sub assertion.file
    assertion.jwt.template.file assertion.private.key.file assertion.private.key.passphrase assertion.private.key.pem
    aws.region client.id client.secret config extensions grant.type header.urlencode method scope sub.claim.name token
    token.endpoint.url
"""
_BESIDE: Final = ("enable.sasl.oauthbearer.unsecure.jwt", "https.ca.location", "https.ca.pem", "oauth_cb")

OAUTH_NAMES: Final = frozenset([*(PREFIX + name for name in (*_OWN.split(), *SYNONYMS)), *_BESIDE, BY_LIBRDKAFKA])
"""Every setting about tokens, which all of this package's clients take."""


def is_oauth_name(name: str) -> bool:
    """Return whether a setting is about tokens."""
    return name in OAUTH_NAMES


def is_left_to_librdkafka(given: Mapping[str, Any]) -> bool:
    """Return whether tokens come from what only librdkafka knows: the metadata service of a cloud's machine."""
    return str(given.get(BY_LIBRDKAFKA) or "none") != "none"


def has_tokens(given: Mapping[str, Any]) -> bool:
    """Return whether a client with these settings logs in with tokens of the process's own source."""
    mechanism = str(given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "").upper()
    return mechanism == MECHANISM and not is_left_to_librdkafka(given)
