"""Settings as confluent-kafka (librdkafka) wants them. Pure: nothing is imported from the client."""

from __future__ import annotations

from typing import Any

from ottla.config.catalog import SPECS, Role
from ottla.config.settings import Settings, is_for_asyncio_only
from ottla.errors import ConfigError
from ottla.tokens.names import has_tokens

# Settings that librdkafka has for all clients but warns about in one that does not use them.
_PRODUCER_PROPERTIES_ONLY = frozenset({"max.in.flight.requests.per.connection"})
_ADMIN_LEAVES_OUT = frozenset({"request.timeout.ms"})
_CONSUMER_LEAVES_OUT = frozenset({"request.timeout.ms"})


def to_confluent(settings: Settings) -> dict[str, Any]:
    """Return librdkafka's configuration, by its own property names. Callables (error_cb, ...) stay Python objects."""
    config: dict[str, Any] = {}
    for name, value in settings.items():
        if is_for_asyncio_only(name):
            raise ConfigError(f"{name}: found for the threaded client, but only the asyncio client takes it")
        spec = SPECS.get(name)
        key = name if spec is None or spec.confluent is None else spec.confluent
        if not key or _is_left_out(settings.role, name):
            continue
        config[key] = value
    _in_librdkafkas_units(config)
    if settings.role is not Role.PRODUCER:
        # librdkafka answers a request that stays open this long itself; a producer has request.timeout.ms for it.
        config.setdefault("socket.timeout.ms", min(max(settings.get("request.timeout.ms", 30_000), 10), 300_000))
    if has_tokens(config):
        from ottla.tokens.confluent import with_tokens  # most clients have no tokens

        return with_tokens(config)
    return config


def _is_left_out(role: Role, name: str) -> bool:
    if role is Role.PRODUCER:
        return False
    if name in _PRODUCER_PROPERTIES_ONLY:
        return True
    return name in (_CONSUMER_LEAVES_OUT if role is Role.CONSUMER else _ADMIN_LEAVES_OUT)


def _in_librdkafkas_units(config: dict[str, Any]) -> None:
    if "queue.buffering.max.kbytes" in config:  # from buffer.memory, in bytes; round up so that it never is less
        config["queue.buffering.max.kbytes"] = -(-config["queue.buffering.max.kbytes"] // 1024)
    if "topic.metadata.refresh.interval.ms" in config:
        # its cache must outlive the interval at which it is refreshed, or topics flicker out of it
        config["metadata.max.age.ms"] = min(config["topic.metadata.refresh.interval.ms"] * 3, 86_400_000)
    if config.get("auto.offset.reset") == "none":  # the Java client's word for it
        config["auto.offset.reset"] = "error"
    if config.get("security.protocol"):
        config["security.protocol"] = config["security.protocol"].lower()
