"""Users and their passwords, in the format of `mosquitto_passwd`: `name:$7$iterations$salt$hash`, one a line.

The hash is PBKDF2 with SHA-512. A check takes as long for an unknown name as for a wrong password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from pathlib import Path
from typing import Final, NamedTuple

from ottla.bounded_files import read_bounded
from ottla.errors import ConfigError

_KIND: Final = "7"
_MOST_BYTES: Final = 16 * 1024 * 1024
_MOST_ITERATIONS: Final = 1_000_000
_ITERATIONS: Final = 101
"""As `mosquitto_passwd` makes it."""


class _Hash(NamedTuple):
    iterations: int
    salt: bytes
    digest: bytes


_NOBODY: Final = _Hash(_ITERATIONS, b"\0" * 12, b"\0" * 64)


class Users:
    """The users of one file."""

    def __init__(self, hashes: dict[str, _Hash]) -> None:
        self._hashes = hashes

    def __len__(self) -> int:
        return len(self._hashes)

    def is_known(self, name: str | None, password: bytes | None) -> bool:
        """Return whether there is a user of this name with this password."""
        found = self._hashes.get(name or "", _NOBODY)
        digest = hashlib.pbkdf2_hmac("sha512", password or b"", found.salt, found.iterations, len(found.digest))
        return hmac.compare_digest(digest, found.digest) and found is not _NOBODY


def read_users(path: str | Path) -> Users:
    """Return the users of a file. Raises `ConfigError` that names the line."""
    data, _ = read_bounded(path, _MOST_BYTES, wanted="a file of users", error=ConfigError)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read as a file of users: {error}") from error
    hashes: dict[str, _Hash] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, encoded = line.partition(":")
        parts = encoded.strip().split("$")
        found = _decoded(parts) if colon and name and len(parts) == 5 and parts[1] == _KIND else None
        if found is None:
            raise ConfigError(
                f"{path}: line {number}: wanted name:$7$iterations$salt$hash, as `mosquitto_passwd -c FILE NAME` writes"
            )
        hashes[name] = found
    return Users(hashes)


def _decoded(parts: list[str]) -> _Hash | None:
    try:
        iterations = int(parts[2])
        salt, digest = base64.b64decode(parts[3], validate=True), base64.b64decode(parts[4], validate=True)
    except (ValueError, binascii.Error):
        return None
    return _Hash(iterations, salt, digest) if 0 < iterations <= _MOST_ITERATIONS and len(digest) == 64 else None
