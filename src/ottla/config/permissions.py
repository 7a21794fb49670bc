"""Errors for missing permissions: the principal, the missing right, and the command that grants it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.errors import AuthenticationError, ConfigError
from ottla.tokens.names import has_tokens
from ottla_wire.facts import fact

if TYPE_CHECKING:
    from ottla.tokens.errors import TokenUnavailable
    from ottla.tokens.shared import Tokens


def principal_of(settings: Mapping[str, Any]) -> str:
    """Return the principal for the cluster's ACLs, as far as the settings determine it."""
    user = settings.get("sasl.username")
    return f"User:{user}" if user else "this client"


def tokens_of_client(settings: Mapping[str, Any]) -> Tokens | None:
    """Return where a client with these settings has its tokens from; None where it logs in otherwise."""
    protocol = str(settings.get("security.protocol") or "")
    if not (protocol.upper().startswith("SASL_") and has_tokens(settings)) or "sasl.oauth.token.provider" in settings:
        return None
    from ottla.tokens.settings import token_settings
    from ottla.tokens.shared import tokens_of

    return tokens_of(token_settings(settings))


@fact
class Principal:
    """A client of the cluster and its operations. `writes`: as a producer."""

    principal: str = "this client"
    topics: Sequence[str] = ()
    group: str = ""
    transactional_id: str = ""
    writes: bool = False
    tokens: Tokens | None = None
    """Source of the OAUTHBEARER tokens."""

    def refused(self, code: str, text: str, *, servers: str) -> ConfigError:
        """Return the error for a refusal. `code`: Kafka's name of the error; `text`: the client's message."""
        missing = self._missing(code)
        if missing is None:
            return ConfigError(f"the cluster at {servers} refused {self.principal}: {text}")
        what, options = missing
        who = self.principal if self.principal.startswith("User:") else "User:..."
        return ConfigError(
            f"the cluster at {servers} refused {self.principal} ({code}: {text}). It needs {what}; "
            f"an administrator grants it with `ottla acls create --allow-principal {who} {options}`"
        )

    def not_accepted(self, text: str, *, servers: str) -> AuthenticationError | TokenUnavailable:
        """Return the error for a failed login, or a refused certificate. `text`: the client's message.

        TokenUnavailable where it failed for want of a token, which may come: that is an outage.
        """
        outage = None if self.tokens is None else self.tokens.outage()
        if outage is not None:
            return outage
        return AuthenticationError(f"authentication of {self.principal} at {servers} failed: {text}")

    def _missing(self, code: str) -> tuple[str, str] | None:
        """Return the missing right, and the options that grant it."""
        topics = " ".join(f"--topic {name}" for name in self.topics) or "--topic ..."
        named = ", ".join(self.topics) or "its topics"
        if code == "TOPIC_AUTHORIZATION_FAILED":
            if self.writes:
                return f"WRITE and DESCRIBE on topic {named}", f"--producer {topics}"
            group = f" --group {self.group}" if self.group else ""
            return f"READ and DESCRIBE on topic {named}", f"--consumer {topics}{group}"
        if code == "GROUP_AUTHORIZATION_FAILED":
            return f"READ on group {self.group}", f"--operation read --group {self.group or '...'}"
        if code == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED":
            name = self.transactional_id
            return f"WRITE on transactional id {name}", f"--producer --transactional-id {name or '...'} {topics}"
        if code == "CLUSTER_AUTHORIZATION_FAILED" and self.writes:
            wanted = f"topic {named}" if self.topics else "a topic"
            return f"WRITE on {wanted}, or IDEMPOTENT_WRITE on the cluster", f"--producer {topics}"
        return None
