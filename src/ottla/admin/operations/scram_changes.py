"""SCRAM credentials of users (KIP-554). A broker never receives a password, but its salted hash."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from ottla.admin.facts.admin_operation import AdminOperation, AdminRequest, changing, raise_problem, reading
from ottla.admin.facts.cluster_facts import Int64
from ottla_wire.facts import fact
from ottla_wire.protocol import ApiKey

MECHANISMS: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
"""Name → (number in the protocol, hash)."""

_NAMES: Final = {number: name for name, (number, _) in MECHANISMS.items()}


@fact
class ScramUser:
    """A user's credential for one mechanism, as a broker describes it."""

    user: str
    mechanism: str
    iterations: Int64


def find_scram_users() -> AdminOperation[tuple[ScramUser, ...]]:
    """Return all credentials, by user and mechanism. Raises `BrokerRefused`."""
    answer = yield from reading(AdminRequest(api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, body={"users": None}))
    raise_problem("users", answer.error_code, answer.error_message)
    found = []
    for result in answer.results:
        raise_problem("users", result.error_code, result.error_message)
        for each in result.credential_infos:
            name = _NAMES.get(each.mechanism, f"mechanism {each.mechanism}")
            found.append(ScramUser(user=result.user, mechanism=name, iterations=each.iterations))
    return tuple(sorted(found, key=lambda each: (each.user, each.mechanism)))


def set_scram_user(user: str, mechanism: str, *, password: str, iterations: int, salt: bytes) -> AdminOperation[None]:
    """Give a user a password. It takes the place of the one before. `salt` are random bytes. Raises `BrokerRefused`."""
    number, algorithm = MECHANISMS[mechanism]
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    upsertion = {
        "name": user,
        "mechanism": number,
        "iterations": iterations,
        "salt": salt,
        "salted_password": salted,
    }
    yield from _alter({"deletions": [], "upsertions": [upsertion]})


def delete_scram_user(user: str, mechanism: str) -> AdminOperation[None]:
    """Delete a user's credential for one mechanism. Raises `BrokerRefused`."""
    deletion = {"name": user, "mechanism": MECHANISMS[mechanism][0]}
    yield from _alter({"deletions": [deletion], "upsertions": []})


def _alter(body: dict[str, Any]) -> AdminOperation[None]:
    answer = yield from changing(AdminRequest(api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, body=body))
    for result in answer.results:
        raise_problem("users", result.error_code, result.error_message)
