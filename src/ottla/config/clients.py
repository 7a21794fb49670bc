"""The settings of a producer, a consumer and an admin client: sources merged, rules checked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.config.catalog import ALIASES, Role, known_names
from ottla.config.checks import check_admin, check_consumer, check_producer
from ottla.config.defaults import (
    COMMON_DEFAULTS,
    CONSUMER_DEFAULTS,
    NEXT_GENERATION_GROUP_DEFAULTS,
    PRODUCER_DEFAULTS,
    TRANSACTION_DEFAULTS,
)
from ottla.config.fitting import fit_consumer, fit_producer
from ottla.config.profiles import PROFILES
from ottla.config.settings import Settings, resolve
from ottla.errors import ConfigError
from ottla.showing import shown
from ottla.tokens.names import is_oauth_name

BootstrapServers = str | Sequence[str] | None


def producer_settings(
    bootstrap_servers: BootstrapServers = None,
    *,
    profile: str | None = None,
    settings: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Return a producer's effective settings, checked. `environ` is the process's own unless given."""
    resolved = resolve(
        Role.PRODUCER,
        defaults=(COMMON_DEFAULTS, PRODUCER_DEFAULTS),
        profile=_profile(profile),
        environ=os.environ if environ is None else environ,
        arguments=_arguments(settings, bootstrap_servers=bootstrap_servers),
    )
    if resolved.get("transactional.id") is not None:
        resolved = resolved.with_defaults(*TRANSACTION_DEFAULTS.values())
    resolved = fit_producer(resolved)
    check_producer(resolved)
    return resolved


def consumer_settings(
    bootstrap_servers: BootstrapServers = None,
    *,
    group_id: str | None = None,
    settings: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Return a consumer's effective settings, checked. `settings.to_client(shell)` returns its client's arguments."""
    resolved = resolve(
        Role.CONSUMER,
        defaults=(COMMON_DEFAULTS, CONSUMER_DEFAULTS),
        profile=None,
        environ=os.environ if environ is None else environ,
        arguments=_arguments(settings, bootstrap_servers=bootstrap_servers, group_id=group_id),
    )
    if resolved["group.protocol"] == "consumer":
        resolved = resolved.with_defaults(*NEXT_GENERATION_GROUP_DEFAULTS.values())
    resolved = fit_consumer(resolved)
    check_consumer(resolved)
    return resolved


def admin_settings(
    bootstrap_servers: BootstrapServers = None,
    *,
    settings: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Return an admin client's effective settings, checked: addresses, security, timeouts."""
    resolved = resolve(
        Role.ADMIN,
        defaults=(COMMON_DEFAULTS,),
        profile=None,
        environ=os.environ if environ is None else environ,
        arguments=_arguments(settings, bootstrap_servers=bootstrap_servers),
    )
    check_admin(resolved)
    return resolved


def for_admin(settings: Settings) -> Settings:
    """Return the settings for an admin client beside a producer or consumer: addresses, security, timeouts.

    Not the callbacks: they are about the client that they were given to.
    """
    known = known_names(Role.ADMIN) - _OF_ONE_CLIENT
    return Settings(Role.ADMIN, {setting.name: setting for setting in settings.explain() if setting.name in known})


def security_of(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the security settings among those given."""
    return {
        name: value
        for name, value in mapping_of("settings", settings).items()
        if name.startswith(("sasl.", "ssl.", "security.")) or is_oauth_name(name)
    }


def settings_beside(settings: Mapping[str, Any] | None, own: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings of the producer beside a consumer: its `own` settings, plus the consumer's security settings
    if it has none. Both use the same cluster.
    """
    return {**({} if security_of(own) else security_of(settings)), **mapping_of("producer_settings", own)}


def dead_letter_arguments(own: Mapping[str, Any] | None, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the arguments of the producer of dead letters and retry topics: `own` settings and an environment.

    An offset is committed when its dead letter is acknowledged. So an acknowledgement means every in-sync replica here,
    whatever the environment says of producers in general, and it never shares the `transactional.id` of the service's
    own producer, which it would fence. Raises ConfigError when `own` asks for either.
    """
    given = {ALIASES.get(name, name): value for name, value in (own or {}).items()}
    if given.get("transactional.id") is not None:
        raise ConfigError(
            f"transactional.id: found {given['transactional.id']!r} for the producer of dead letters, wanted it unset: "
            "they are written outside of transactions"
        )
    for name, wanted in _ACKNOWLEDGED.items():
        if name in given and str(given[name]).lower() not in wanted:
            raise ConfigError(
                f"{name}: found {given[name]!r} for the producer of dead letters, wanted {wanted[0]}: an offset is "
                "committed as soon as its dead letter is acknowledged, so the letter must not be lost"
            )
    settings = {"acks": "all", "enable.idempotence": True, **(own or {})}
    kept = {
        name: text for name, text in (os.environ if environ is None else environ).items() if name not in _NOT_BESIDE
    }
    return {"settings": settings, "environ": kept}


_OF_ONE_CLIENT = frozenset({"error_cb", "stats_cb", "throttle_cb", "statistics.interval.ms"})
_ACKNOWLEDGED = {"acks": ("all", "-1"), "enable.idempotence": ("true", "1", "yes", "on")}
_NOT_BESIDE = frozenset({"OTTLA_PRODUCER_TRANSACTIONAL_ID", "OTTLA_CLIENT_TRANSACTIONAL_ID"})


def _profile(name: str | None) -> tuple[str, Mapping[str, Any]] | None:
    if name is None:
        return None
    if not isinstance(name, str) or name not in PROFILES:
        raise ConfigError(f"profile: found {shown(name)}, wanted one of {', '.join(PROFILES)}")
    return name, PROFILES[name]


def mapping_of(name: str, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the given settings; empty for None. Raises ConfigError for anything but a mapping."""
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f'{name}: found {shown(given)}, wanted Kafka\'s names with their values: {{"acks": "all"}}')
    return given or {}


def _arguments(settings: Mapping[str, Any] | None, **named: Any) -> dict[str, Any]:
    """Return the settings mapping and the named arguments as one; naming a setting in both places must agree."""
    merged = dict(mapping_of("settings", settings))
    for argument, value in named.items():
        if value is None:
            continue
        name = argument.replace("_", ".")
        if name in merged and merged[name] != value:
            raise ConfigError(
                f"{name}: found {shown(value)} as {argument}= and {shown(merged[name])} in settings, wanted it in one "
                "place"
            )
        merged[name] = value
    return merged
