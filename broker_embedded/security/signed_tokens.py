"""The signatures of web tokens (RFC 7515), by the public keys of a JWKS (RFC 7517). Needs joserfc."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from broker_embedded.common.errors import StartupError
from broker_embedded.security.web_tokens import ALGORITHMS, TokenNotAccepted, json_part

try:
    from joserfc import jws
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet
except ImportError as missing:
    raise StartupError("oauth: jwks needs joserfc: pip install 'ottla[oauth]'") from missing

_MOST_KEYS = 1_000


class PublicKeys:
    """The keys of one JWKS."""

    def __init__(self, text: bytes) -> None:
        """Raises ValueError with the reason for an invalid JWKS."""
        try:
            document = json.loads(text)
            keys = document["keys"]
            if not isinstance(keys, list) or len(keys) > _MOST_KEYS:
                raise ValueError(f"wanted a list of at most {_MOST_KEYS} keys")
            # Keys for something else, or of a kind that is not known, are no reason to use none.
            usable = [key for key in keys if isinstance(key, dict) and key.get("kty") in ("RSA", "EC", "OKP")]
            usable = [key for key in usable if key.get("use", "sig") == "sig"]
            self._keys = KeySet.import_key_set({"keys": usable}) if usable else None
        except (KeyError, TypeError, RecursionError, JoseError) as error:
            raise ValueError(f"{type(error).__name__}: wanted a JSON object with keys") from error
        self.key_ids = frozenset(key["kid"] for key in usable if isinstance(key.get("kid"), str))
        self._registry = jws.JWSRegistry(algorithms=list(ALGORITHMS), strict_check_header=False)
        self._registry.max_header_length = 16_384
        self._registry.max_payload_length = 1_000_000

    def claims(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token that one of the keys has signed."""
        if self._keys is None:
            raise TokenNotAccepted("the JWKS has no keys")
        try:
            signed = jws.deserialize_compact(token, self._keys, algorithms=list(ALGORITHMS), registry=self._registry)
            claims = json.loads(signed.payload)
        except (JoseError, ValueError, RecursionError, TypeError) as error:
            raise TokenNotAccepted(f"its signature is not by a key of the JWKS ({type(error).__name__})") from None
        if not isinstance(claims, dict):
            raise TokenNotAccepted("not a web token: its claims are not a JSON object")
        return claims


def key_id(token: str) -> str | None:
    """Return the key id in the token's header."""
    try:
        found = json_part(token.split(".", 1)[0]).get("kid")
    except TokenNotAccepted:
        return None
    return found if isinstance(found, str) else None
