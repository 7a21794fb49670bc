"""The settings of OAUTHBEARER by the names of Kafka's Java client, and back: JAAS options, callback handlers (KIP-768).

Amazon's login modules for MSK with IAM are understood too; to the Java client they cannot be given from here, because
they are in a jar of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.errors import ConfigError

MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_HANDLER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_PREFIX: Final = "sasl.oauthbearer."
_EXTENSION: Final = "extension_"
_TRUST: Final = ("ssl.truststore.location", "ssl.truststore.type")
"""Options of the login module for certificates of the token endpoint, separate from the brokers' ones."""
_UNSECURED: Final = "unsecuredLoginStringClaim_"
_OPTIONS: Final = {"clientId": "client.id", "clientSecret": "client.secret", "scope": "scope"}
_LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
_CLIENT_HANDLER: Final = "sasl.client.callback.handler.class"
_MSK: Final = "software.amazon.msk.auth.iam."
_MSK_METHOD: Final = {"sasl.mechanism": "OAUTHBEARER", _PREFIX + "method": "aws-msk-iam"}


def is_token_module(module: str) -> bool:
    """Return whether a login module of JAAS is one of tokens."""
    return module.endswith(".OAuthBearerLoginModule") or module == f"{_MSK}IAMLoginModule"


def from_jaas(module: str, options: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return a JAAS configuration as this package's settings. ConfigErrors name options, and show no value."""
    if module == f"{_MSK}IAMLoginModule":
        if options:
            raise ConfigError(
                f"{prefix}sasl.jaas.config: found {', '.join(sorted(options))} of {module}, wanted none: set AWS's own "
                "variables in the environment"
            )
        return dict(_MSK_METHOD)
    found: dict[str, str] = {"sasl.mechanism": "OAUTHBEARER"}
    extensions: list[str] = []
    for name, value in options.items():
        if name in _OPTIONS:
            found[_PREFIX + _OPTIONS[name]] = value
        elif name.startswith(_EXTENSION):
            extensions.append(f"{name.removeprefix(_EXTENSION)}={value}")
        elif name in _TRUST:
            if options.get("ssl.truststore.type", "JKS").upper() != "PEM":
                raise ConfigError(
                    f"{prefix}sasl.jaas.config: found {name} of a Java key store, wanted ssl.truststore.type=PEM"
                )
            if name == "ssl.truststore.location":
                found["https.ca.location"] = value
        elif name == f"{_UNSECURED}sub":
            found["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
            found[_PREFIX + "config"] = f"principal={value}"
        else:
            raise ConfigError(
                f"{prefix}sasl.jaas.config: found {name} of {module}, wanted clientId, clientSecret, scope, "
                "extension_NAME, or ssl.truststore.location with ssl.truststore.type=PEM"
            )
    if extensions:
        found[_PREFIX + "extensions"] = ",".join(extensions)
    return found


def handlers_taken(ours: dict[str, str], prefix: str) -> dict[str, str]:
    """Take the Java client's callback handlers out of the settings, and return what they mean here."""
    found: dict[str, str] = {}
    for name in (_LOGIN_HANDLER, _CLIENT_HANDLER):
        handler = ours.pop(name, None)
        if handler is None or handler.endswith(".OAuthBearerLoginCallbackHandler"):
            continue
        if not handler.startswith(_MSK):
            raise ConfigError(
                f"{prefix}{name}: found a class of Java's, wanted none, or one of Kafka's or of Amazon MSK's IAM"
            )
        found |= _MSK_METHOD
    if ours.get("sasl.mechanism", "").upper() == "AWS_MSK_IAM":
        found |= _MSK_METHOD
    return found


def to_jaas(java: dict[str, str]) -> None:
    """Replace the settings about tokens by those that the Java client has. ConfigError for what it cannot do."""
    if java.pop("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() == "true":
        words = dict(part.partition("=")[::2] for part in java.pop(_PREFIX + "config", "").split())
        java["sasl.jaas.config"] = _jaas({f"{_UNSECURED}sub": words.get("principal", "")})
        return
    if java.get(_PREFIX + "method", "oidc") not in ("oidc", "default") or _PREFIX + "token" in java:
        raise ConfigError(
            f"kafka.{_PREFIX}method: Spark's own connector has tokens of an endpoint or a file alone; use "
            "engine='python'"
        )
    unknown = sorted(name for name in java if name.startswith((f"{_PREFIX}assertion.", "https.ca.pem")))
    if unknown:
        raise ConfigError(f"kafka.{unknown[0]}: Spark's own connector has no such setting; use engine='python'")
    options: dict[str, str] = {}
    for option, name in _OPTIONS.items():
        if (value := java.pop(_PREFIX + name, None)) is not None:
            options[option] = value
    for pair in filter(None, map(str.strip, java.pop(_PREFIX + "extensions", "").split(","))):
        name, _, value = pair.partition("=")
        options[_EXTENSION + name] = value
    if (authority := java.pop("https.ca.location", None)) is not None:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    java.pop(_PREFIX + "method", None)
    java["sasl.jaas.config"] = _jaas(options)
    java[_LOGIN_HANDLER] = _HANDLER


def _jaas(options: Mapping[str, str]) -> str:
    return " ".join([MODULE, "required", *(f"{name}={quoted(value)}" for name, value in options.items())]) + ";"


def quoted(text: str) -> str:
    """Return a value as JAAS writes it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
