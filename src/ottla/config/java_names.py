"""Passwords and certificates by the names of Kafka's Java client, and back.

Files that Kafka's own tools take (`--command-config`) and `kafka.*` options of Spark's connector use the Java client's
names, this package's clients those of librdkafka and the SDK. What was written for Java is understood here
(`from_java`), and what was written for this package can be given to Spark's connector (`to_java`). Certificates are in
PEM files, which the Java client reads since KIP-651; stores of Java's own formats are not read here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla.config.java_tokens import from_jaas, handlers_taken, is_token_module, quoted, to_jaas
from ottla.errors import ConfigError

_LOGIN = "org.apache.kafka.common.security.{}LoginModule"
_RENAMED = {"sasl.mechanisms": "sasl.mechanism", "fetch.wait.max.ms": "fetch.max.wait.ms"}
_MODULE = re.compile(r"\s*([\w.$]+)\s+\w+(\s.*)?;\s*", re.DOTALL)
_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"']+))""")

_OF_JAVA_ALONE = frozenset(
    {
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "config.providers",
        "enable.metrics.push",
        "exclude.internal.topics",
        "group.remote.assignor",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "metadata.max.idle.ms",
        "metric.reporters",
        "security.providers",
        "ssl.enabled.protocols",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "value.deserializer",
        "value.serializer",
    }
)
_OF_JAVA_ALONE_BEGIN = ("metadata.recovery.", "metrics.", "partitioner.", "sasl.login.refresh.", "sasl.login.retry.")


def to_java(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings of this package's clients for the Java client. Raises ConfigError for an unsupported one."""
    java = {_RENAMED.get(name, name): value for name, value in settings.items()}
    if java.get("sasl.mechanism", "").upper() == "OAUTHBEARER":
        to_jaas(java)
    username, password = java.pop("sasl.username", None), java.pop("sasl.password", None)
    if username is not None and password is not None:
        mechanism = java.setdefault("sasl.mechanism", "PLAIN").upper()
        module = _LOGIN.format("plain.Plain" if mechanism == "PLAIN" else "scram.Scram")
        java["sasl.jaas.config"] = f"{module} required username={quoted(username)} password={quoted(password)};"
    if (authority := java.pop("ssl.ca.location", None)) is not None:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    if (authority := java.pop("ssl.ca.pem", None)) is not None:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    certificate, key = java.pop("ssl.certificate.location", None), java.pop("ssl.key.location", None)
    if certificate is not None:
        if key not in (None, certificate):
            raise ConfigError(
                "kafka.ssl.key.location: Spark's own connector wants certificate and key in one file; name the same"
                " file twice, or use engine='python'"
            )
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": certificate}
    if java.get("ssl.endpoint.identification.algorithm", "").lower() == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    if java.pop("enable.ssl.certificate.verification", "true").lower() == "false":
        raise ConfigError(
            "kafka.enable.ssl.certificate.verification: Spark's own connector cannot turn it off; use engine='python'"
        )
    return java


def from_java(settings: Mapping[str, str], *, prefix: str = "") -> dict[str, str]:
    """Return settings by either client's names, for this package's clients. ConfigErrors put the prefix before the
    names."""
    ours = dict(settings)
    if (text := ours.pop("sasl.jaas.config", None)) is not None:
        ours |= _login(text, prefix)
    ours |= handlers_taken(ours, prefix)
    trusts_pem = _is_pem(ours, "truststore")
    for java, name in (("ssl.truststore.location", "ssl.ca.location"), ("ssl.truststore.certificates", "ssl.ca.pem")):
        if (value := ours.pop(java, None)) is not None:
            if not trusts_pem:
                raise ConfigError(
                    f"{prefix}{java}: found a Java key store, wanted PEM: `keytool -list -rfc -keystore FILE` prints"
                    f" one; save it and set {prefix}{name}, or {prefix}ssl.truststore.type=PEM"
                )
            ours[name] = value
    shows_pem = _is_pem(ours, "keystore")
    for java in ("ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.keystore.key"):
        if (value := ours.pop(java, None)) is not None:
            if not shows_pem or java != "ssl.keystore.location":
                raise ConfigError(
                    f"{prefix}{java}: found a Java key store, or text, wanted PEM files: set"
                    f" {prefix}ssl.certificate.location and {prefix}ssl.key.location"
                )
            ours |= {"ssl.certificate.location": value, "ssl.key.location": value}
    return ours


def is_of_java_alone(name: str) -> bool:
    """Return whether the setting tunes only the Java client."""
    return name in _OF_JAVA_ALONE or name.startswith(_OF_JAVA_ALONE_BEGIN)


def _login(text: str, prefix: str) -> dict[str, str]:
    """Return user name and password of a JAAS configuration. Errors do not show it: it holds the password."""
    found = _MODULE.fullmatch(text)
    module, options = found.groups("") if found is not None else ("something else", "")
    given = {
        name: bare or re.sub(r"\\(.)", r"\1", double or single)
        for name, double, single, bare in _OPTION.findall(options)
    }
    if is_token_module(module):
        return from_jaas(module, given, prefix)
    is_known = module.endswith((".PlainLoginModule", ".ScramLoginModule"))
    if not is_known or "username" not in given or "password" not in given or given.get("tokenauth") == "true":
        raise ConfigError(
            f"{prefix}sasl.jaas.config: found {module}, wanted PlainLoginModule or ScramLoginModule with a username and"
            f" a password, or OAuthBearerLoginModule; or set {prefix}sasl.username and {prefix}sasl.password"
        )
    return {"sasl.username": given["username"], "sasl.password": given["password"]}


def _is_pem(settings: dict[str, str], store: str) -> bool:
    settings.pop(f"ssl.{store}.password", None)
    return settings.pop(f"ssl.{store}.type", "JKS").upper() == "PEM"
