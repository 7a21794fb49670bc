"""The keys that sign tokens: a JWKS in a file or at a URL, read when the broker starts, and again as keys change.

A token by a key that is not known is refused, and has the JWKS read again, at most once in `AGAIN_MS`: the next token
by that key is accepted. A JWKS that cannot be read again leaves the keys as they were, until it can be.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from broker_embedded.common.errors import StartupError
from broker_embedded.security.signed_tokens import PublicKeys, key_id
from broker_embedded.security.web_tokens import OAuthBearer

log = logging.getLogger(__name__)

AGAIN_MS: Final = 1_000
REFRESH_MS: Final = 3_600_000
"""Kafka's sasl.oauthbearer.jwks.endpoint.refresh.ms."""

_MOST_BYTES: Final = 4 * 1024 * 1024
_ANSWER_S: Final = 10.0


class Jwks:
    """The keys of `settings.jwks`. On the broker's loop; what blocks runs in a thread."""

    def __init__(self, settings: OAuthBearer, *, monotonic_ms: Callable[[], int]) -> None:
        """Reads them for the first time. Raises StartupError where that cannot be done."""
        self._settings = settings
        self._monotonic_ms = monotonic_ms
        self._reading: asyncio.Future[bytes] | None = None
        self._read_ms = monotonic_ms()
        try:
            self._keys = PublicKeys(self._read())
        except (OSError, ValueError) as error:
            raise StartupError(f"oauth: jwks: {self.place}: {error}") from None

    @property
    def place(self) -> str:
        """Return the location of the keys."""
        return os.fspath(self._settings.jwks or "")

    def claims(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token that one of the keys has signed. Raises TokenNotAccepted."""
        age_ms = self._monotonic_ms() - self._read_ms
        is_unknown = (name := key_id(token)) is not None and name not in self._keys.key_ids
        if age_ms >= REFRESH_MS or (is_unknown and age_ms >= AGAIN_MS):
            self._read_again()
        return self._keys.claims(token)

    def _read_again(self) -> None:
        if self._reading is None:
            self._reading = asyncio.get_running_loop().run_in_executor(None, self._read)
            self._reading.add_done_callback(self._was_read)

    def _was_read(self, reading: asyncio.Future[bytes]) -> None:
        self._reading = None
        self._read_ms = self._monotonic_ms()
        if reading.cancelled():
            return
        try:
            self._keys = PublicKeys(reading.result())
        except (OSError, ValueError) as error:
            log.warning("the keys that sign tokens could not be read again at %s: %s", self.place, error)

    def _read(self) -> bytes:
        place = self.place
        if not place.startswith(("http://", "https://")):
            with Path(place.removeprefix("file://")).open("rb") as file:
                return _bounded(file.read(_MOST_BYTES + 1))
        ca = self._settings.jwks_ca
        tls = ssl.create_default_context(cafile=None if ca is None else os.fspath(ca))
        with urllib.request.urlopen(place, timeout=_ANSWER_S, context=tls) as answer:
            return _bounded(answer.read(_MOST_BYTES + 1))


def _bounded(found: bytes) -> bytes:
    if len(found) > _MOST_BYTES:
        raise ValueError(f"found more than {_MOST_BYTES:,} bytes")
    return found
