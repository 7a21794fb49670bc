"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), the server's half, and the credentials that it checks.

Neither side sends the password. The broker keeps a salt, an iteration count and two keys that are derived from the
password: with them it can check that the client knows the password, and prove that it knows the keys itself.

    client first    n,,n=alice,r=<client nonce>
    server first    r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client final    c=biws,r=<both nonces>,p=<proof>
    server final    v=<signature>

Text is taken as it comes, without SASLprep, as in Kafka.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable

from broker_embedded.metadata.records import ScramMechanism, UserScramCredential
from broker_embedded.security.exchange import AuthenticationFailed, other_authorization_id

MIN_ITERATIONS = 4_096
MAX_ITERATIONS = 16_384
"""More is refused: every login would take that long on the client's side."""

_HASHES = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}

_VALUE = r"[^,\x00]+"
_BASE64 = r"[A-Za-z0-9/+]+={0,2}"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authorization>{_VALUE}))?,(?P<bare>n=(?P<name>{_VALUE}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,.*)?)"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<binding>{_BASE64}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,.*)?),p=(?P<proof>{_BASE64})"
)
_ESCAPE = re.compile(r"=(2C|3D)?")

FindCredential = Callable[[str], UserScramCredential | None]
"""Returns the credential of a user, None without one."""


def mechanism_called(name: str) -> ScramMechanism | None:
    """Return `SCRAM-SHA-256` as the metadata numbers it; None for other mechanisms."""
    return next((each for each in ScramMechanism if mechanism_name(each) == name), None)


def mechanism_name(mechanism: ScramMechanism) -> str:
    """Return its SASL name."""
    return mechanism.name.replace("_", "-")


def credential(
    name: str, mechanism: ScramMechanism, *, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
) -> UserScramCredential:
    """Return the credential that a broker stores for a password. Takes milliseconds, on purpose."""
    import hashlib

    salted = hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)
    return credential_of_salted(name, mechanism, salted_password=salted, salt=salt, iterations=iterations)


def credential_of_salted(
    name: str, mechanism: ScramMechanism, *, salted_password: bytes, salt: bytes, iterations: int
) -> UserScramCredential:
    """Return the same from a password that was salted already, as AlterUserScramCredentials sends it."""
    import hashlib

    algorithm = _HASHES[mechanism]
    client_key = _mac(algorithm, salted_password, b"Client Key")
    return UserScramCredential(
        name=name,
        mechanism=mechanism,
        salt=salt,
        stored_key=hashlib.new(algorithm, client_key).digest(),
        server_key=_mac(algorithm, salted_password, b"Server Key"),
        iterations=iterations,
    )


def is_password(kept: UserScramCredential, password: str) -> bool:
    """Return whether a credential was made from this password."""
    same = credential(kept.name, kept.mechanism, password=password, salt=kept.salt, iterations=kept.iterations)
    return same.stored_key == kept.stored_key


class ScramExchange:
    """See the module. `nonce`: the server's, of printable characters without a comma."""

    def __init__(self, mechanism: ScramMechanism, *, find: FindCredential, nonce: str) -> None:
        self._algorithm = _HASHES[mechanism]
        self._find = find
        self._nonce = nonce
        self._challenge: _Challenge | None = None
        self.user: str | None = None
        self.expires_ms: int | None = None

    def evaluate(self, token: bytes) -> bytes:
        try:
            message = token.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("the message of SCRAM is not UTF-8") from None
        if self._challenge is None:
            self._challenge = self._challenge_for(message)
            return self._challenge.server_first.encode()
        return self._verify(message, self._challenge).encode()

    def _challenge_for(self, message: str) -> _Challenge:
        first = _CLIENT_FIRST.fullmatch(message)
        if first is None:
            raise AuthenticationFailed("SCRAM: the client's first message cannot be read")
        name = _unescaped(first["name"])
        kept = self._find(name)
        if kept is None:
            raise AuthenticationFailed(f"SCRAM: there are no credentials of user {name!r}")
        authorization = first["authorization"]
        if authorization is not None and _unescaped(authorization) != name:
            raise other_authorization_id()
        nonce = first["nonce"] + self._nonce
        server_first = f"r={nonce},s={base64.b64encode(kept.salt).decode()},i={kept.iterations}"
        header = message[: first.start("bare")]
        return _Challenge(kept, nonce=nonce, header=header, client_first=first["bare"], server_first=server_first)

    def _verify(self, message: str, challenge: _Challenge) -> str:
        import hashlib
        import hmac

        final = _CLIENT_FINAL.fullmatch(message)
        if final is None:
            raise AuthenticationFailed("SCRAM: the client's final message cannot be read")
        if final["nonce"] != challenge.nonce:
            raise AuthenticationFailed("SCRAM: the client's final message has another nonce")
        if _decoded(final["binding"]) != challenge.header.encode():
            raise AuthenticationFailed("SCRAM: the client's final message begins otherwise than its first")
        kept = challenge.kept
        signed = f"{challenge.client_first},{challenge.server_first},{final['without_proof']}".encode()
        signature = _mac(self._algorithm, kept.stored_key, signed)
        proof = _decoded(final["proof"])
        if len(proof) != len(signature):
            raise AuthenticationFailed(f"SCRAM: the proof has {len(proof)} bytes, wanted {len(signature)}")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._algorithm, client_key).digest(), kept.stored_key):
            raise AuthenticationFailed(f"SCRAM: user {kept.name!r} gave a wrong password")
        self.user = kept.name
        return f"v={base64.b64encode(_mac(self._algorithm, kept.server_key, signed)).decode()}"


class _Challenge:
    """The server's first message, by which the client's final one is checked."""

    __slots__ = ("client_first", "header", "kept", "nonce", "server_first")

    def __init__(
        self, kept: UserScramCredential, *, nonce: str, header: str, client_first: str, server_first: str
    ) -> None:
        self.kept = kept
        self.nonce = nonce
        self.header = header
        self.client_first = client_first
        self.server_first = server_first


def _mac(algorithm: str, key: bytes, message: bytes) -> bytes:
    import hmac

    return hmac.digest(key, message, algorithm)


def _unescaped(name: str) -> str:
    """Return a name with =2C read as `,` and =3D as `=`; any other `=` is an error."""

    def letter(escape: re.Match[str]) -> str:
        if escape[1] is None:
            raise AuthenticationFailed(f"SCRAM: name {name!r} has an = that is not escaped")
        return "," if escape[1] == "2C" else "="

    return _ESCAPE.sub(letter, name)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise AuthenticationFailed("SCRAM: what should be base64 is not") from None
