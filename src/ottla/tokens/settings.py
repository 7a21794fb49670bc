"""How tokens are had, by the setting names of librdkafka and of Kafka's Java client.

    sasl.oauthbearer.token.endpoint.url   with sasl.oauthbearer.client.id and .client.secret, .scope: OIDC client
                                          credentials (KIP-768); with sasl.oauthbearer.assertion.*: a signed assertion
                                          in place of the secret, or as the grant (RFC 7523, KIP-1139)
    ...=file:///run/token                 a file that something else renews
    sasl.oauthbearer.method=aws-msk-iam   Amazon MSK with IAM, needs ottla[msk-iam]
    enable.sasl.oauthbearer.unsecure.jwt  unsecured tokens by sasl.oauthbearer.config, for tests
    sasl.oauthbearer.token                a callable that returns a Token, or an async one
    oauth_cb                              a callable as confluent-kafka takes it

All of it is checked when settings are read, before anything is connected to. Names in messages are sorted.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from typing import Any, Final

from ottla.errors import ConfigError
from ottla.showing import shown
from ottla.tokens.names import BY_LIBRDKAFKA, PREFIX, SYNONYMS, TOKEN_NAME, is_left_to_librdkafka
from ottla.tokens.token import check_extensions
from ottla_wire.facts import fact

CLIENT_CREDENTIALS: Final = "client_credentials"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384")

_METHODS: Final = ("default", "oidc", "aws-msk-iam")
_ORIGIN_WANTED: Final = (
    "one of oauth_cb, sasl.oauthbearer.method=aws-msk-iam, sasl.oauthbearer.token and "
    "sasl.oauthbearer.token.endpoint.url"
)


class Origin(Enum):
    """Source of tokens."""

    OIDC = "oidc"
    FILE = "file"
    CALLABLE = "callable"
    OAUTH_CB = "oauth_cb"
    MSK_IAM = "aws-msk-iam"
    UNSECURED = "unsecured"


class ByIdentity:
    """A callable as part of a key: equal to itself alone where it cannot be hashed."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and (self.call is other.call or self.call == other.call)

    def __hash__(self) -> int:
        try:
            return hash(self.call)
        except TypeError:
            return id(self.call)

    def __repr__(self) -> str:
        return getattr(self.call, "__name__", type(self.call).__name__)


@fact
class TokenSettings:
    """The source of tokens, and the parameters of its requests. Hashable: equal settings share one source."""

    origin: Origin
    call: ByIdentity | None = None
    url: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    grant_type: str = CLIENT_CREDENTIALS
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    principal_claim: str = "sub"
    is_header_urlencoded: bool = False
    """`sasl.oauthbearer.header.urlencode`: client id and secret are quoted in the header (RFC 6749, section 2.3.1)."""
    ca_location: str | None = None
    """The authority to trust as the endpoint. With `is_ca_added` beside the system's authorities, else alone."""
    ca_pem: str | None = None
    is_ca_added: bool = True
    aws_region: str = ""
    unsecured: str = ""
    """`sasl.oauthbearer.config`: principal=... scope=... lifeSeconds=..."""
    assertion: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Settings under `sasl.oauthbearer.assertion.`, without that prefix; sorted."""

    @property
    def name(self) -> str:
        """The origin of the tokens, as messages name it."""
        if self.origin in (Origin.OIDC, Origin.FILE):
            parts = urllib.parse.urlsplit(self.url)
            return f"token endpoint {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        if self.origin is Origin.CALLABLE:
            return f"{TOKEN_NAME} ({self.call})"
        if self.origin is Origin.OAUTH_CB:
            return f"oauth_cb ({self.call})"
        return "Amazon's signer for MSK" if self.origin is Origin.MSK_IAM else "unsecured tokens"


def token_settings(given: Mapping[str, Any]) -> TokenSettings:
    """Read the settings of OAUTHBEARER. Raises ConfigError, before anything is connected to.

    `given` holds all settings of a client, by their canonical names; those that are not about tokens are not looked at,
    except `ssl.ca.*` and `bootstrap.servers`.
    """
    if is_left_to_librdkafka(given):
        raise ConfigError(
            f"{BY_LIBRDKAFKA}: found {shown(given[BY_LIBRDKAFKA])}, which only the threaded client can do, wanted "
            + _ORIGIN_WANTED
        )
    own = _own(given)
    method = own.get("method", "default").lower()
    if method not in _METHODS:
        raise ConfigError(f"sasl.oauthbearer.method: found {shown(method)}, wanted one of {', '.join(_METHODS)}")
    common: dict[str, Any] = {
        "extensions": _extensions(own.get("extensions", "")),
        "principal_claim": own.get("sub.claim.name", "sub"),
    }
    for name, origin in ((TOKEN_NAME, Origin.CALLABLE), ("oauth_cb", Origin.OAUTH_CB)):
        if given.get(name) is not None:
            if not callable(given[name]):
                kind = type(given[name]).__name__  # not what it is: it may be a token
                raise ConfigError(f"{name}: found {kind}, wanted a function that returns a token")
            return TokenSettings(origin=origin, call=ByIdentity(given[name]), **common)
    if method == "aws-msk-iam":
        return TokenSettings(origin=Origin.MSK_IAM, aws_region=_region(own, given), **common)
    url = own.get("token.endpoint.url", "")
    if not url and method == "default" and _flag(given, "enable.sasl.oauthbearer.unsecure.jwt"):
        return TokenSettings(origin=Origin.UNSECURED, unsecured=own.get("config", ""), **common)
    if not url:
        wanted = "the address of a token endpoint" if method == "oidc" else _ORIGIN_WANTED
        name = PREFIX + ("token.endpoint.url" if method == "oidc" else "method")
        raise ConfigError(f"{name}: found nothing, wanted {wanted}, because sasl.mechanism=OAUTHBEARER")
    scheme = _scheme(url)
    if scheme == "file":
        return TokenSettings(origin=Origin.FILE, url=url, **common)
    return _oidc(given, own, url, common)


def _oidc(given: Mapping[str, Any], own: Mapping[str, str], url: str, common: Mapping[str, Any]) -> TokenSettings:
    grant_type = own.get("grant.type", CLIENT_CREDENTIALS)
    if grant_type not in (CLIENT_CREDENTIALS, JWT_BEARER):
        raise ConfigError(
            f"sasl.oauthbearer.grant.type: found {shown(grant_type)}, wanted {CLIENT_CREDENTIALS} or {JWT_BEARER}"
        )
    assertion = {name.removeprefix("assertion."): text for name, text in own.items() if name.startswith("assertion.")}
    _check_assertion(assertion, is_needed=grant_type == JWT_BEARER)
    if not assertion and not own.get("client.secret"):
        raise ConfigError(
            "sasl.oauthbearer.client.secret: found nothing, wanted it or an assertion "
            "(sasl.oauthbearer.assertion.file or .private.key.file), because of sasl.oauthbearer.token.endpoint.url"
        )
    if grant_type == CLIENT_CREDENTIALS and not own.get("client.id"):
        raise ConfigError(
            "sasl.oauthbearer.client.id: found nothing, wanted it, because of sasl.oauthbearer.token.endpoint.url"
        )
    is_alone = any(given.get(f"https.ca.{kind}") for kind in ("location", "pem"))
    prefix = "https.ca." if is_alone else "ssl.ca."
    return TokenSettings(
        origin=Origin.OIDC,
        url=url,
        client_id=own.get("client.id", ""),
        client_secret=own.get("client.secret", ""),
        scope=own.get("scope", ""),
        grant_type=grant_type,
        is_header_urlencoded=_flag(given, PREFIX + "header.urlencode"),
        ca_location=given.get(prefix + "location"),
        ca_pem=given.get(prefix + "pem"),
        is_ca_added=not is_alone,
        assertion=tuple(sorted(assertion.items())),
        **common,
    )


def _own(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings under `sasl.oauthbearer.` that are text, by their names without that prefix."""
    own: dict[str, str] = {}
    for name in sorted(given):
        short = name.removeprefix(PREFIX)
        if short == name or name == TOKEN_NAME or given[name] is None:
            continue
        value = given[name]
        if not isinstance(value, str | int | bool):
            raise ConfigError(f"{name}: found {shown(value)}, wanted text")
        text = str(value).strip()
        short = SYNONYMS.get(short, short)
        if short in own and own[short] != text:
            raise ConfigError(f"{PREFIX}{short}: found twice, as {name} too, wanted once (they are one setting)")
        own[short] = text
    return own


def _check_assertion(assertion: Mapping[str, str], *, is_needed: bool) -> None:
    origins = [name for name in ("file", "private.key.file", "private.key.pem") if assertion.get(name)]
    if len(origins) > 1:
        raise ConfigError(f"{PREFIX}assertion: found {', '.join(origins)}, wanted one of them")
    if not origins and (assertion or is_needed):
        raise ConfigError(
            f"{PREFIX}assertion.private.key.file: found nothing, wanted it, or .assertion.file with an assertion that "
            "something else makes"
        )
    algorithm = assertion.get("algorithm", ALGORITHMS[0])
    if algorithm not in ALGORITHMS:
        raise ConfigError(
            f"{PREFIX}assertion.algorithm: found {shown(algorithm)}, wanted one of {', '.join(ALGORITHMS)}"
        )
    for name in ("claim.exp.seconds", "claim.nbf.seconds"):
        text = assertion.get(name, "0")
        if not (text.isascii() and text.isdigit() and len(text) < 8):
            raise ConfigError(f"{PREFIX}assertion.{name}: found {shown(text)}, wanted a whole number of seconds")


def _extensions(text: str) -> tuple[tuple[str, str], ...]:
    """Parse `logicalCluster=lkc-1,identityPoolId=pool-2`, as librdkafka takes it."""
    found: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError("sasl.oauthbearer.extensions: found a part without =, wanted name=value,name=value")
        found[name.strip()] = value.strip()
    check_extensions(found, where="sasl.oauthbearer.extensions")
    return tuple(sorted(found.items()))


def _scheme(url: str) -> str:
    try:
        parts = urllib.parse.urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_good = False
        parts = urllib.parse.urlsplit("")
    if parts.scheme == "file" and parts.path and not parts.netloc:
        return "file"
    if not is_good or "@" in parts.netloc:
        raise ConfigError(
            "sasl.oauthbearer.token.endpoint.url: found something else, wanted https://HOST[:PORT]/PATH without a "
            "user, or file:///PATH of a file that something else renews"
        )
    return parts.scheme


_REGION: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+){1,4}\Z")
_MSK_HOST: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]{4,30})\.amazonaws\.com")


def _region(own: Mapping[str, str], given: Mapping[str, Any]) -> str:
    """Return the region, from the setting or the addresses; empty if AWS's environment variables decide."""
    region = own.get("aws.region", "")
    if not region:
        found = _MSK_HOST.search(str(given.get("bootstrap.servers") or ""))
        return found[1] if found else ""
    if not _REGION.match(region) or len(region) > 40:
        raise ConfigError(f"sasl.oauthbearer.aws.region: found {shown(region)}, wanted a region, as in eu-central-1")
    return region


def _flag(given: Mapping[str, Any], name: str) -> bool:
    found = str(given.get(name, "false")).strip().lower()
    if found not in ("true", "false", "1", "0", "yes", "no", "on", "off"):
        raise ConfigError(f"{name}: found {shown(found)}, wanted true or false")
    return found in ("true", "1", "yes", "on")
