"""Settings as aiokafka wants them: keyword arguments. Pure: nothing is imported from the client."""

from __future__ import annotations

import ssl
from typing import Any

from ottla.config.addresses import parse_addresses
from ottla.config.catalog import ASYNCIO_ONLY, SPECS, Asyncio, Role
from ottla.config.settings import Settings, is_for_threads_only
from ottla.errors import ConfigError
from ottla.tokens.names import is_oauth_name


def to_aiokafka(settings: Settings) -> dict[str, Any]:
    """Return aiokafka's keyword arguments, without those that Ottla's shell enforces. Raises ConfigError for an
    unsupported setting.
    """
    kwargs: dict[str, Any] = {}
    for name, value in settings.items():
        if name in ASYNCIO_ONLY:
            kwargs[ASYNCIO_ONLY[name]] = value
            continue
        if is_oauth_name(name):
            continue
        if is_for_threads_only(settings.role, name):
            raise _refused(settings, name, "only the threaded client (librdkafka) takes it")
        argument = SPECS[name].aiokafka
        if isinstance(argument, str):
            kwargs[argument] = value
        elif argument is Asyncio.MISSING and settings.was_chosen(name):
            raise _refused(settings, name, "aiokafka has no counterpart")
    _check_what_aiokafka_always_does(settings)
    _in_aiokafkas_words(settings, kwargs)
    if settings.get("sasl.mechanism") == "OAUTHBEARER" and "sasl_oauth_token_provider" not in kwargs:
        from ottla.tokens.aiokafka import AiokafkaTokens  # most clients have no tokens
        from ottla.tokens.settings import token_settings
        from ottla.tokens.shared import tokens_of

        kwargs["sasl_oauth_token_provider"] = AiokafkaTokens(tokens_of(token_settings(settings)))
    if settings.get("security.protocol", "PLAINTEXT").endswith("SSL"):
        kwargs.setdefault("ssl_context", _ssl_context(settings))
    return kwargs


def _in_aiokafkas_words(settings: Settings, kwargs: dict[str, Any]) -> None:
    if kwargs.get("compression_type") == "none":
        kwargs["compression_type"] = None
    if "acks" in kwargs and kwargs["acks"] != "all":
        kwargs["acks"] = int(kwargs["acks"])
    if kwargs.get("connections_max_idle_ms") == 0:  # librdkafka's way to say never
        kwargs["connections_max_idle_ms"] = None
    if "bootstrap_servers" in kwargs:
        kwargs["bootstrap_servers"] = [
            address.host_and_port for address in parse_addresses(settings["bootstrap.servers"])
        ]
    if kwargs.get("auto_offset_reset") == "error":  # aiokafka keeps the Java client's word
        kwargs["auto_offset_reset"] = "none"
    if settings.role is Role.PRODUCER:
        if "transactional_id" not in kwargs:
            kwargs.pop("transaction_timeout_ms", None)
        # aiokafka measures a record by its own upper bound, a few bytes above the exact size, which Ottla has checked
        kwargs["max_request_size"] = kwargs["max_request_size"] + _ESTIMATE_SLACK_BYTES


_ESTIMATE_SLACK_BYTES = 1_024


def _check_what_aiokafka_always_does(settings: Settings) -> None:
    if settings.was_chosen("retries") and settings["retries"] < 2_147_483_647:
        raise _refused(settings, "retries", "aiokafka retries until delivery.timeout.ms; bound the time instead")
    if settings.get("group.protocol") == "consumer":
        raise _refused(settings, "group.protocol", "aiokafka knows only group.protocol=classic")
    for name in ("enable.partition.eof", "enable.auto.offset.store"):
        if settings.get(name):
            raise _refused(settings, name, "aiokafka has no counterpart")


def _ssl_context(settings: Settings) -> ssl.SSLContext:
    verifies = settings.get("enable.ssl.certificate.verification", True)
    checks_host = settings.get("ssl.endpoint.identification.algorithm", "https") == "https"
    try:
        context = ssl.create_default_context(cafile=settings.get("ssl.ca.location"), cadata=settings.get("ssl.ca.pem"))
        context.check_hostname = verifies and checks_host
        context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
        if "ssl.certificate.location" in settings:
            context.load_cert_chain(
                settings["ssl.certificate.location"],
                settings.get("ssl.key.location"),
                settings.get("ssl.key.password"),
            )
    except (OSError, ssl.SSLError) as error:
        names = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
        found = ", ".join(f"{name}={settings[name]}" for name in names if name in settings)
        raise ConfigError(f"ssl: found {found}, wanted readable certificates and key: {error}") from error
    return context


def _refused(settings: Settings, name: str, why: str) -> ConfigError:
    setting = settings.setting(name)
    found = "" if setting is None else f"found {setting.shown_value} ({setting.origin}), "
    return ConfigError(f"{name}: {found}but {why}")
