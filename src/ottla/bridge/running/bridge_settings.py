"""What a bridge is made with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ottla.bridge.listener.listen_address import ListenAddress, listen_address
from ottla.bridge.listener.listener_tls import TlsFiles
from ottla.bridge.listener.logins import Authenticate
from ottla.bridge.mapping.mapping_file import FindSerde, MappingFile, read_mapping
from ottla.bridge.mapping.rules import Rule
from ottla.bridge.mqtt.listener_limits import ListenerLimits
from ottla.bridge.source_urls import AmqpSource, MqttSource
from ottla.errors import ConfigError
from ottla.quantities import count, seconds
from ottla.showing import shown

_MOST_IN_FLIGHT_BYTES: Final = 1 << 38
"""A quarter of a TiB: the producer's buffer is four times as large, and is counted in KiB with 31 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings:
    """Everything of a bridge but Kafka."""

    rules: Sequence[Rule] = ()
    mapping_file: str | Path | None = None
    """Read again by `reload`."""
    find_serde: FindSerde = field(default=lambda name: _no_serde(name))
    dead_letter_topic: str | None = None
    listen: Sequence[str] = ()
    sources: Sequence[MqttSource] = ()
    queues: Sequence[AmqpSource] = ()
    users_file: str | Path | None = None
    authenticate: Authenticate | None = None
    tls: TlsFiles | None = None
    limits: ListenerLimits = field(default_factory=ListenerLimits)
    max_connections: int = 20_000
    max_in_flight: int = 100_000
    """Records of a road that Kafka has not acknowledged."""
    max_in_flight_bytes: int = 67_108_864
    drain_s: float = 10.0
    """Longest time that a stop waits for Kafka."""
    unready_after_s: float = 10.0
    """A bridge is not ready while a record has waited for Kafka for longer than this."""
    producer_settings: Mapping[str, Any] = field(default_factory=dict)

    def addresses(self) -> list[ListenAddress]:
        """Return where to listen. Raises `ConfigError`."""
        return [listen_address(text) for text in self.listen]

    def mapping(self) -> MappingFile:
        """Return the rules of the file, then those that were given. Raises `ConfigError`."""
        found = MappingFile(rules=())
        if self.mapping_file is not None:
            found = read_mapping(self.mapping_file, self.find_serde)
        return MappingFile(
            rules=(*self.rules, *found.rules),
            dead_letter_topic=self.dead_letter_topic or found.dead_letter_topic,
        )

    def checked_mapping(self) -> MappingFile:
        """Return the mapping. Raises `ConfigError` for settings that cannot work or contradict each other."""
        if isinstance(self.listen, str):
            raise ConfigError(f"BridgeSettings: listen: found {shown(self.listen)}, wanted a list: [{self.listen!r}]")
        if not isinstance(self.limits, ListenerLimits):
            raise ConfigError(f"BridgeSettings: limits: found {shown(self.limits)}, wanted ListenerLimits(...)")
        place = "BridgeSettings"
        count(place, "max_connections", self.max_connections)
        count(place, "max_in_flight", self.max_in_flight)
        count(place, "max_in_flight_bytes", self.max_in_flight_bytes, most=_MOST_IN_FLIGHT_BYTES)
        seconds(place, "drain_s", self.drain_s)
        seconds(place, "unready_after_s", self.unready_after_s)
        if not self.listen and not self.sources and not self.queues:
            raise ConfigError("a bridge needs an address to listen at, or a broker to connect to")
        self.addresses()
        found = self.mapping()
        if not found.rules:
            raise ConfigError("the mapping has no rule, wanted --map 'sensors/#=sensors' or --mapping FILE")
        if (self.sources or self.queues) and found.dead_letter_topic is None:
            raise ConfigError(
                "dead-letter-topic: wanted one: a broker delivers a message that Kafka refuses again and again"
            )
        return found


def _no_serde(name: str) -> Callable[..., Any]:
    raise ConfigError(f"{name}: pass find_serde= to name serdes in a mapping file")
