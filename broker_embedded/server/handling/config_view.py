"""Settings as clients see them: the value in force, where it comes from, and what would be in force without that
(synonyms).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.broker_settings import BROKER_SETTINGS
from broker_embedded.common.config_definition import ConfigType, Definition, InvalidConfig, UpdateMode
from broker_embedded.common.group_settings import GROUP_SETTINGS, INTERNAL_GROUP_SETTINGS
from broker_embedded.common.topic_settings import TOPIC_SETTINGS
from broker_embedded.metadata.records import ResourceType
from ottla_wire.facts import fact

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasLogs, HasMetadata, HasNodeId, HasStaticConfig

    class ConfigPlaces(HasNodeId, HasMetadata, HasStaticConfig, HasLogs, Protocol):
        """A broker's settings, and state that they depend on."""


class ConfigSource(IntEnum):
    """Origin of a value, numbered as in DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


Synonym = tuple[str, str | None, ConfigSource]


@fact
class SettingView:
    """One setting of one resource."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    type: ConfigType
    doc: str
    synonyms: list[Synonym]
    """Every place that has a value, the one in force first."""
    is_sensitive: bool = False


_DEFAULT_ELSEWHERE = frozenset({"log.flush.interval.ms", "log.retention.ms", "log.roll.jitter.ms", "log.roll.ms"})
"""Settings without a value of their own in Kafka: the default comes from the same setting in hours, or from the
scheduler's setting."""
_BROKER_NAMES = {
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.decompressed.message.bytes": "max.decompressed.message.bytes",
    "remote.copy.lag.bytes": "log.remote.copy.lag.bytes",
    "remote.copy.lag.ms": "log.remote.copy.lag.ms",
}
"""Where a topic's default comes from in Kafka, for settings that this broker does not have itself."""
_IN_HOURS = [
    SettingView(
        name=name,
        value=value,
        source=ConfigSource.DEFAULT,
        read_only=True,
        type=ConfigType.INT,
        doc="counts where the same setting in milliseconds has no value",
        synonyms=[] if value is None else [(name, value, ConfigSource.DEFAULT)],
    )
    for name, value in (
        ("log.retention.hours", "168"),
        ("log.retention.minutes", None),
        ("log.roll.hours", "168"),
        ("log.roll.jitter.hours", "0"),
    )
]


def topic_settings(broker: ConfigPlaces, overrides: Mapping[str, str], *, as_given: bool = False) -> list[SettingView]:
    """Return the settings of a topic with `overrides`: as given, or normalized without blanks."""
    views = []
    for name, definition in TOPIC_SETTINGS.items():
        places: list[Synonym] = []
        if name in overrides:
            value = overrides[name] if as_given else _meaning(definition, overrides[name])
            places.append((name, value, ConfigSource.TOPIC))
        if definition.synonym is not None:
            places += _broker_places(broker, definition.synonym)
        elif name in _BROKER_NAMES:
            places.append((_BROKER_NAMES[name], definition.format(definition.default), ConfigSource.DEFAULT))
        views.append(_view(definition, places, without_places=definition.format(definition.default)))
    return views


def _view(
    definition: Definition, places: list[Synonym], *, without_places: str | None = None, read_only: bool = False
) -> SettingView:
    """Return the view of a setting. Its value comes from the first of `places`."""
    _, value, source = places[0] if places else ("", without_places, ConfigSource.DEFAULT)
    return SettingView(
        name=definition.name,
        value=value,
        source=source,
        read_only=read_only,
        type=definition.type,
        doc=definition.doc,
        synonyms=places,
    )


def _meaning(definition: Definition, value: str) -> str | None:
    try:
        return definition.format(definition.parse(value))
    except InvalidConfig:  # kept by an earlier version
        return value


def group_settings(broker: ConfigPlaces, overrides: Mapping[str, str]) -> list[SettingView]:
    """Return the settings of a group that has `overrides`; the group need not exist."""
    views = []
    for name, definition in GROUP_SETTINGS.items():
        if name in INTERNAL_GROUP_SETTINGS and name not in overrides:
            continue
        places: list[Synonym] = []
        if name in overrides:
            places.append((name, _meaning(definition, overrides[name]), ConfigSource.GROUP))
        if definition.synonym in BROKER_SETTINGS:
            places += _broker_places(broker, definition.synonym)
        else:
            default = definition.format(definition.default)
            places.append((definition.synonym or name, default, ConfigSource.DEFAULT))
        views.append(_view(definition, places))
    return views


def broker_settings(broker: ConfigPlaces, *, cluster_wide: bool) -> list[SettingView]:
    """Return the settings of this broker, or only the dynamic ones that hold for all brokers (resource name "")."""
    views = []
    for name, definition in BROKER_SETTINGS.items():
        places = _broker_places(broker, name)
        if cluster_wide:
            places = [place for place in places if place[2] is ConfigSource.DYNAMIC_DEFAULT_BROKER]
            if not places:
                continue
        views.append(_view(definition, places, read_only=definition.update_mode is UpdateMode.READ_ONLY))
    views += _unknown_settings(broker, cluster_wide=cluster_wide)
    return views if cluster_wide else _node_settings(broker) + _IN_HOURS + views


def _unknown_settings(broker: ConfigPlaces, *, cluster_wide: bool) -> list[SettingView]:
    """Return settings without a definition. Their values are hidden, as one may be a plugin's secret."""
    views: list[SettingView] = []
    image = broker.metadata.image
    places = [(str(broker.node_id), ConfigSource.DYNAMIC_BROKER), ("", ConfigSource.DYNAMIC_DEFAULT_BROKER)]
    for resource, source in places[1:] if cluster_wide else places:
        for name in image.config_overrides(ResourceType.BROKER, resource):
            if name in BROKER_SETTINGS or any(view.name == name for view in views):
                continue
            views.append(
                SettingView(
                    name=name,
                    value=None,
                    source=source,
                    read_only=True,
                    type=ConfigType.UNKNOWN,
                    doc="",
                    synonyms=[(name, None, source)],
                    is_sensitive=True,
                )
            )
    return views


def _node_settings(broker: ConfigPlaces) -> list[SettingView]:
    """Return settings that the cluster decided for this node, by Kafka's names: admin tools look up a broker's address
    here.
    """
    registered = broker.metadata.image.brokers[broker.node_id]
    protocol = "PLAINTEXT" if broker.security is None else broker.security.protocol
    address = f"{protocol}://{registered.host}:{registered.port}"
    number, text = ConfigType.INT, ConfigType.STRING
    return [
        SettingView(
            name=name,
            value=value,
            source=ConfigSource.STATIC_BROKER,
            read_only=True,
            type=type_,
            doc=doc,
            synonyms=[(name, value, ConfigSource.STATIC_BROKER)],
        )
        for name, type_, value, doc in (
            ("node.id", number, str(broker.node_id), "number of this node"),
            ("broker.id", number, str(broker.node_id), "number of this broker, the same as its node's"),
            ("process.roles", ConfigType.LIST, "broker,controller", "what this process does"),
            ("listeners", text, address, "where this broker accepts connections"),
            ("advertised.listeners", text, address, "the address of this broker that clients get"),
            ("log.dirs", text, ",".join(broker.logs.directories.paths), "directories of its logs"),
        )
    ]


def _broker_places(broker: ConfigPlaces, name: str) -> list[Synonym]:
    image = broker.metadata.image
    definition = BROKER_SETTINGS[name]
    places: list[Synonym] = []
    for resource, source in (
        (str(broker.node_id), ConfigSource.DYNAMIC_BROKER),
        ("", ConfigSource.DYNAMIC_DEFAULT_BROKER),
    ):
        value = image.config_overrides(ResourceType.BROKER, resource).get(name)
        if value is not None:
            places.append((name, _meaning(definition, value), source))
    if name in broker.static_settings:
        static = getattr(broker.static_config, name.replace(".", "_"))
        places.append((name, definition.format(static), ConfigSource.STATIC_BROKER))
    if name not in _DEFAULT_ELSEWHERE:
        places.append((name, definition.format(definition.default), ConfigSource.DEFAULT))
    return places
