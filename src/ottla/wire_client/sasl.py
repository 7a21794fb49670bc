"""SASL's client side, sans IO: PLAIN (RFC 4616) and SCRAM-SHA-256/-512 (RFC 5802, RFC 7677), as Kafka uses them.

A mechanism is a generator: it yields what to send, is sent what the broker answered, and returns when it is satisfied
that the broker knows the password too. A wrong password shows as the broker's own error; a broker that cannot prove
itself is refused here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator

from ottla.errors import ConfigError
from ottla.wire_client.errors import BrokerRefused

Exchange = Generator[bytes, bytes, None]

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MIN_ITERATIONS = 4096


def start_exchange(mechanism: str, *, username: str | None, password: str | None, nonce: str | None = None) -> Exchange:
    """The exchange of this mechanism. `nonce` is for tests: chance is an argument."""
    if username is None or password is None:
        raise ConfigError(f"sasl.username and sasl.password are needed for {mechanism}")
    if mechanism == "PLAIN":
        return _plain(username, password)
    return _scram(_HASHES[mechanism], username, password, nonce or secrets.token_urlsafe(24))


def _plain(username: str, password: str) -> Exchange:
    yield f"\0{username}\0{password}".encode()


def _scram(algorithm: str, username: str, password: str, nonce: str) -> Exchange:
    name = username.replace("=", "=3D").replace(",", "=2C")
    first_bare = f"n={name},r={nonce}"
    server_first = (yield f"n,,{first_bare}".encode()).decode()
    fields = _fields(server_first)
    iterations = int(fields.get("i", "0"))
    if not fields.get("r", "").startswith(nonce) or iterations < _MIN_ITERATIONS:
        raise BrokerRefused(f"SCRAM: the broker's challenge is not acceptable (nonce or {iterations} iterations)")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), base64.b64decode(fields["s"]), iterations)
    final_bare = f"c=biws,r={fields['r']}"  # biws is base64 of "n,,": no channel binding
    signed = f"{first_bare},{server_first},{final_bare}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), signed, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = yield f"{final_bare},p={base64.b64encode(proof).decode()}".encode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm)
    found = base64.b64decode(_fields(server_final.decode()).get("v", ""))
    if not hmac.compare_digest(expected, found):
        raise BrokerRefused("SCRAM: the broker could not prove that it knows the password")


def _fields(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)
