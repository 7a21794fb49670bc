"""SASL's client side, sans IO: PLAIN (RFC 4616), SCRAM-SHA-256/-512 (RFC 5802, RFC 7677) and OAUTHBEARER (RFC 7628), as
Kafka uses them.

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
from typing import TYPE_CHECKING

from ottla.errors import ConfigError
from ottla.wire_client.errors import BrokerRefused

if TYPE_CHECKING:
    from ottla.tokens.token import Token

Exchange = Generator[bytes, bytes, None]

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MIN_ITERATIONS = 4096
_MAX_ITERATIONS = 1_000_000
"""Half a second of work. Kafka itself gives users at most 16,384 iterations."""


def start_exchange(
    mechanism: str,
    *,
    username: str | None = None,
    password: str | None = None,
    token: Token | None = None,
    nonce: str | None = None,
) -> Exchange:
    """Return the exchange of this mechanism. `nonce` is for tests: chance is an argument."""
    if mechanism == "OAUTHBEARER":
        if token is None:
            raise ConfigError("a token is needed for OAUTHBEARER")
        return _oauthbearer(token)
    if username is None or password is None:
        raise ConfigError(f"sasl.username and sasl.password are needed for {mechanism}")
    if mechanism == "PLAIN":
        return _plain(username, password)
    return _scram(_HASHES[mechanism], username, password, nonce or secrets.token_urlsafe(24))


def _plain(username: str, password: str) -> Exchange:
    yield f"\0{username}\0{password}".encode()


def _oauthbearer(token: Token) -> Exchange:
    pairs = {"auth": f"Bearer {token.value}", **token.extensions}
    message = "n,,\x01" + "".join(f"{name}={value}\x01" for name, value in pairs.items()) + "\x01"
    answer = yield message.encode()
    if not answer:
        return
    # A JSON object that says why not. A broker waits for this byte before it ends the exchange with an error.
    yield b"\x01"
    raise BrokerRefused(f"OAUTHBEARER: the broker refused: {_shown(answer)}")


def _scram(algorithm: str, username: str, password: str, nonce: str) -> Exchange:
    name = username.replace("=", "=3D").replace(",", "=2C")
    first_bare = f"n={name},r={nonce}"
    server_first, fields = _fields((yield f"n,,{first_bare}".encode()), wanted="rsi")
    if not fields["r"].startswith(nonce):
        raise BrokerRefused(f"SCRAM: the broker's challenge is for another client: {_shown(server_first)}")
    salt, iterations = _base64(fields["s"], of=server_first), _iterations(fields["i"])
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    final_bare = f"c=biws,r={fields['r']}"  # biws is base64 of "n,,": no channel binding
    signed = f"{first_bare},{server_first},{final_bare}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), signed, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    answer = yield f"{final_bare},p={base64.b64encode(proof).decode()}".encode()
    server_final, fields = _fields(answer, wanted="v")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm)
    if not hmac.compare_digest(expected, _base64(fields["v"], of=server_final)):
        raise BrokerRefused("SCRAM: the broker could not prove that it knows the password")


def _iterations(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise BrokerRefused(f"SCRAM: the broker's challenge has i={_shown(text)}, wanted a number of iterations")
    iterations = int(text)
    if not _MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
        raise BrokerRefused(
            f"SCRAM: the broker's challenge wants {iterations} iterations, accepted are {_MIN_ITERATIONS} to"
            f" {_MAX_ITERATIONS}"
        )
    return iterations


def _base64(text: str, *, of: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise BrokerRefused(f"SCRAM: the broker sent {_shown(of)}, which is not base64 where it must be") from None


def _fields(message: bytes, *, wanted: str) -> tuple[str, dict[str, str]]:
    """Return the message as text, and its attributes by letter. They come in a fixed order; others may follow (RFC
    5802)."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise BrokerRefused(f"SCRAM: the broker sent {_shown(message)}, which is not UTF-8") from None
    parts = text.split(",")
    if parts[0].startswith("e="):
        raise BrokerRefused(f"SCRAM: the broker refused: {_shown(parts[0][2:])}")
    if "".join(part[:1] for part in parts[: len(wanted)]) != wanted or any(p[1:2] != "=" for p in parts[: len(wanted)]):
        raise BrokerRefused(f"SCRAM: the broker sent {_shown(text)}, wanted the attributes {', '.join(wanted)}")
    return text, {part[0]: part[2:] for part in parts[: len(wanted)]}


def _shown(found: str | bytes) -> str:
    """Return a text from a server, shortened and escaped for a log."""
    return repr(found if len(found) <= 80 else found[:80]) + ("" if len(found) <= 80 else "...")
