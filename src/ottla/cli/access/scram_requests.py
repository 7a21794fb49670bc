"""Requests of `ottla users`: SCRAM credentials (KIP-554). A broker never receives a password, but its salted hash."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any, Final

from ottla.cli.access.any_broker import any_broker, refuse_error
from ottla_wire.facts import fact
from ottla_wire.protocol import ApiKey

MECHANISMS: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
"""Name → (number in the protocol, hash)."""

_NAMES: Final = {number: name for name, (number, _) in MECHANISMS.items()}
_SALT_BYTES: Final = 24


@fact
class ScramCredential:
    """A user's credential for one mechanism, as a broker describes it."""

    user: str
    mechanism: str
    iterations: int


def describe(settings: Mapping[str, object]) -> list[ScramCredential]:
    """Return all credentials, by user and mechanism. Raises BrokerRefused."""
    with any_broker(settings) as connection:
        answer = connection.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None})
    refuse_error(answer.error_code, answer.error_message)
    found = []
    for result in answer.results:
        refuse_error(result.error_code, result.error_message)
        for each in result.credential_infos:
            name = _NAMES.get(each.mechanism, f"mechanism {each.mechanism}")
            found.append(ScramCredential(user=result.user, mechanism=name, iterations=each.iterations))
    return sorted(found, key=lambda each: (each.user, each.mechanism))


def upsert(settings: Mapping[str, object], user: str, mechanism: str, *, password: str, iterations: int) -> None:
    """Give a user a password. It takes the place of the one before. Raises BrokerRefused."""
    number, algorithm = MECHANISMS[mechanism]
    salt = secrets.token_bytes(_SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    upsertion = {
        "name": user,
        "mechanism": number,
        "iterations": iterations,
        "salt": salt,
        "salted_password": salted,
    }
    _alter(settings, {"deletions": [], "upsertions": [upsertion]})


def delete(settings: Mapping[str, object], user: str, mechanism: str) -> None:
    """Delete a user's credential for one mechanism. Raises BrokerRefused."""
    deletion = {"name": user, "mechanism": MECHANISMS[mechanism][0]}
    _alter(settings, {"deletions": [deletion], "upsertions": []})


def _alter(settings: Mapping[str, object], body: dict[str, Any]) -> None:
    with any_broker(settings) as connection:
        answer = connection.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, body)
    for result in answer.results:
        refuse_error(result.error_code, result.error_message)
