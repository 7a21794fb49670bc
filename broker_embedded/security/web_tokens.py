"""Tokens that a listener accepts: unsecured ones, which are not verified, or those signed by a key of a JWKS.

The claims are held against Kafka's settings of the same names. Times are the cluster's own, so that a test with a
virtual clock decides when a token expires. No I/O here: keys come from whoever keeps them (`server/net/jwks.py`).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from os import PathLike
from typing import Any, Final, Protocol

from broker_embedded.common.errors import StartupError
from ottla_wire.facts import positional_fact

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Algorithms with key pairs only: with HS256 every reader of the JWKS could sign."""

_MOST_CHARACTERS: Final = 500_000
_LATEST_S: Final = 1e11


@dataclass(frozen=True, slots=True)
class OAuthBearer:
    """Which tokens are accepted. Without `jwks`: unsecured ones, for tests, as Kafka's default validator does."""

    jwks: str | PathLike[str] | None = None
    """A file, or an http(s) URL: Kafka's sasl.oauthbearer.jwks.endpoint.url. Needs joserfc (ottla[oauth])."""
    _: KW_ONLY
    issuer: str | None = None
    """Kafka's sasl.oauthbearer.expected.issuer: the `iss` claim."""
    audience: str | Sequence[str] = ()
    """Kafka's sasl.oauthbearer.expected.audience: the `aud` claim has one of them."""
    scope: Sequence[str] = ()
    """Every one of these must be in the scope claim: unsecuredValidatorRequiredScope."""
    clock_skew_s: float = 0.0
    """How far the issuer's clock may be from the broker's: Kafka's sasl.oauthbearer.clock.skew.seconds, 30 there."""
    principal_claim: str = "sub"
    """Kafka's sasl.oauthbearer.sub.claim.name."""
    scope_claim: str = "scope"
    """Kafka's sasl.oauthbearer.scope.claim.name."""
    jwks_ca: str | PathLike[str] | None = None
    """PEM file: authorities of an https JWKS; by default the system's."""

    def __post_init__(self) -> None:
        if not 0 <= self.clock_skew_s < 86_400:
            raise StartupError(f"oauth: clock_skew_s: found {self.clock_skew_s}, wanted 0 to 86400 seconds")
        if not self.principal_claim or not self.scope_claim:
            raise StartupError("oauth: the name of a claim is empty")
        if isinstance(self.scope, str):
            raise StartupError("oauth: scope: found text, wanted a list of scopes")

    @property
    def audiences(self) -> tuple[str, ...]:
        """`audience` as several."""
        return (self.audience,) if isinstance(self.audience, str) else tuple(self.audience)


@positional_fact
class AcceptedToken:
    """Whose token it is, and when it expires, in milliseconds since the epoch."""

    principal: str
    expires_ms: int


class TokenNotAccepted(Exception):
    """The token is not accepted. `answer` is sent to the client; the text is for the log, and has no token."""

    def __init__(self, reason: str, *, status: str = "invalid_token", scope: str = "") -> None:
        super().__init__(reason)
        self.answer = json.dumps({"status": status} | ({"scope": scope} if scope else {}), separators=(",", ":"))


class Keys(Protocol):
    """The public keys of a JWKS, at this moment."""

    def claims(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token that one of the keys has signed. Raises TokenNotAccepted."""
        ...


class TokenValidator:
    """Decides by the settings of one listener."""

    def __init__(self, settings: OAuthBearer, *, now_ms: Callable[[], int], keys: Keys | None = None) -> None:
        """`keys`: of `settings.jwks`; empty without it."""
        self._settings = settings
        self._now_ms = now_ms
        self._claims = unsecured_claims if keys is None else keys.claims

    def accept(self, token: str) -> AcceptedToken:
        """Return the principal of the token, and its expiry. Raises TokenNotAccepted."""
        if len(token) > _MOST_CHARACTERS:
            raise TokenNotAccepted(f"a token of {len(token):,} characters")
        claims = self._claims(token)
        expires_s = self._check_times(claims)
        self._check_origin(claims)
        self._check_scope(claims)
        name = self._settings.principal_claim
        principal = claims.get(name)
        if not isinstance(principal, str) or not principal:
            raise TokenNotAccepted(f"no claim {name!r} with a name in it")
        return AcceptedToken(principal, int(expires_s * 1000))

    def _check_times(self, claims: Mapping[str, Any]) -> float:
        now_s, skew_s = self._now_ms() / 1000, self._settings.clock_skew_s
        expires_s = _seconds(claims, "exp")
        if expires_s is None:
            raise TokenNotAccepted("no claim 'exp'")
        if now_s >= expires_s + skew_s:
            raise TokenNotAccepted(f"expired {now_s - expires_s:.1f} s ago")
        for name in ("nbf", "iat"):
            begins_s = _seconds(claims, name)
            if begins_s is not None and begins_s > now_s + skew_s:
                raise TokenNotAccepted(f"{name} is {begins_s - now_s:.1f} s in the future")
        return expires_s if now_s < expires_s else expires_s + skew_s

    def _check_origin(self, claims: Mapping[str, Any]) -> None:
        issuer, audiences = self._settings.issuer, self._settings.audiences
        if issuer is not None and claims.get("iss") != issuer:
            raise TokenNotAccepted("issued by another issuer")
        if audiences and not any(each in audiences for each in _texts(claims.get("aud"))):
            raise TokenNotAccepted("for another audience")

    def _check_scope(self, claims: Mapping[str, Any]) -> None:
        found = claims.get(self._settings.scope_claim)
        granted = set(found.split()) if isinstance(found, str) else set(_texts(found))
        missing = [scope for scope in self._settings.scope if scope not in granted]
        if missing:
            wanted = f"[{', '.join(self._settings.scope)}]"  # as Java writes a list
            raise TokenNotAccepted(f"without scope {missing[0]}", status="insufficient_scope", scope=wanted)


def unsecured_claims(token: str) -> Mapping[str, Any]:
    """Return the claims of an unsigned token (RFC 7515, appendix A.5). Raises TokenNotAccepted."""
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenNotAccepted(f"{len(parts)} parts, wanted the 3 of a web token")
    header, claims = json_part(parts[0]), json_part(parts[1])
    if header.get("alg") != "none" or parts[2]:
        raise TokenNotAccepted("signed, where the listener has no keys (jwks) to check it by")
    return claims


def json_part(part: str) -> dict[str, Any]:
    """Return one part of a web token. Raises TokenNotAccepted for an invalid one."""
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        raise TokenNotAccepted("not a web token: a part is not JSON in base64url") from None
    if not isinstance(found, dict):
        raise TokenNotAccepted("not a web token: a part is not a JSON object")
    return found


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < _LATEST_S:
        raise TokenNotAccepted(f"claim {name!r} is not a time in seconds")
    return float(found)


def _texts(found: Any) -> list[str]:
    several = found if isinstance(found, list) else [found]
    return [each for each in several if isinstance(each, str)]
