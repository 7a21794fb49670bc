"""Authentication of one listener's connections: mechanisms and users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import UserScramCredential
from broker_embedded.security.authenticator import SaslAuthenticator
from broker_embedded.security.exchange import AuthenticationFailed, Exchange, other_authorization_id
from broker_embedded.security.oauthbearer import OAuthBearerExchange
from broker_embedded.security.scram import ScramExchange, credential, is_password, mechanism_called
from broker_embedded.security.settings import OAUTHBEARER, Security
from broker_embedded.security.web_tokens import Keys, OAuthBearer, TokenValidator

NONCE_BYTES = 24
SALT_BYTES = 24


class ListenerSecurity:
    """The security of one broker's clients. PLAIN passwords are fixed at the broker's start, as in Kafka; SCRAM
    credentials are read from the current metadata."""

    def __init__(
        self,
        settings: Security,
        *,
        image: Callable[[], ClusterImage],
        random: Random,
        session_ms: int,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        keys: Keys | None = None,
    ) -> None:
        """`session_ms`: connections.max.reauth.ms. `wall_ms`: the time by which tokens expire. `keys`: of the JWKS of
        `settings.oauth`."""
        self.settings = settings
        self._session_ms = session_ms
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._validator: TokenValidator | None = None
        if OAUTHBEARER in settings.mechanisms:
            self._validator = TokenValidator(settings.oauth or OAuthBearer(), now_ms=wall_ms, keys=keys)
        self._image = image
        self._random = random

    def new_authenticator(self) -> SaslAuthenticator | None:
        """Return an authenticator for a new connection; None without SASL."""
        if not self.settings.uses_sasl:
            return None
        return SaslAuthenticator(
            mechanisms=self.settings.mechanisms,
            new_exchange=self._new_exchange,
            session_ms=lambda mechanism: self.settings.max_reauth_ms.get(mechanism, self._session_ms),
            now_ms=self._now_ms,
            wall_ms=self._wall_ms,
        )

    def _new_exchange(self, mechanism: str) -> Exchange:
        if mechanism == OAUTHBEARER and self._validator is not None:
            return OAuthBearerExchange(self._validator.accept)
        scram = mechanism_called(mechanism)
        if scram is None:
            return PlainExchange(self.settings.users)
        return ScramExchange(
            scram,
            find=lambda name: self._image().scram_credentials.get((name, scram)),
            nonce=f"{self._random.getrandbits(8 * NONCE_BYTES):x}",
        )


def missing_credentials(settings: Security, image: ClusterImage, random: Random) -> list[UserScramCredential]:
    """Return the SCRAM credentials of the initial users, without existing ones."""
    wanted: list[UserScramCredential] = []
    for mechanism in filter(None, map(mechanism_called, settings.mechanisms)):
        for name, password in settings.users.items():
            kept = image.scram_credentials.get((name, mechanism))
            if kept is None or not is_password(kept, password):
                wanted.append(credential(name, mechanism, password=password, salt=random.randbytes(SALT_BYTES)))
    return wanted


class PlainExchange:
    """`passwords` maps user names to passwords."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user: str | None = None
        self.expires_ms: int | None = None

    def evaluate(self, token: bytes) -> bytes:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationFailed("the token of PLAIN is not UTF-8") from None
        if len(parts) != 3:
            raise AuthenticationFailed(f"PLAIN: found {len(parts)} parts in the token, wanted 3")
        authorization_id, username, password = parts
        if not username or not password:
            raise _refused(f"Authentication failed: {'password' if username else 'username'} not specified")
        if not self._is_password(username, password):
            raise _refused("Authentication failed: Invalid username or password")
        if authorization_id and authorization_id != username:
            raise other_authorization_id()
        self.user = username
        return b""

    def _is_password(self, username: str, password: str) -> bool:
        import hmac  # here: a broker without SASL loads no hash

        expected = self._passwords.get(username)
        return hmac.compare_digest((expected or "").encode(), password.encode()) and expected is not None


def _refused(message: str) -> AuthenticationFailed:
    return AuthenticationFailed(message, message=message)
