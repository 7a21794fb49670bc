"""Dynamic configuration: which settings may change, to which values, and the records for it."""

from __future__ import annotations

from broker_embedded.common.broker_settings import BROKER_SETTINGS, BrokerConfig
from broker_embedded.common.config_definition import ConfigType, Definition, InvalidConfig, UpdateMode
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.group_bounds import check_group_settings
from broker_embedded.common.group_settings import GROUP_SETTINGS
from broker_embedded.common.topic_settings import TOPIC_SETTINGS
from broker_embedded.controller.features import CORDONED_LOG_DIRS, has_cordoned_log_dirs
from broker_embedded.controller.requests import ConfigChange, ConfigOperation
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import MetadataRecord, ResourceType, SetConfig
from ottla_wire.protocol import ErrorCode


def change_configs(image: ClusterImage, change: ConfigChange, *, config: BrokerConfig) -> list[MetadataRecord]:
    """Return the records of one resource's change. Raises BrokerError if any part is invalid; then nothing changes.

    `config` has the bounds of what groups may be given.
    """
    definitions = _definitions(image, change)
    before = dict(image.config_overrides(change.resource_type, change.resource_name))
    after: dict[str, str] = {} if change.replaces_all else dict(before)
    seen: set[str] = set()
    for name, operation, value in change.operations:
        if name in seen:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {name} is named twice in one request"
            )
        seen.add(name)
        if operation is not ConfigOperation.DELETE and value is None:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
        definition = definitions.get(name)
        if definition is None and operation in _ON_LISTS and change.resource_type is ResourceType.TOPIC:
            raise _no_list(name, operation)
        if definition is None and not _may_be_unknown(change, operation):
            raise BrokerError(
                ErrorCode.INVALID_CONFIG,
                f"Unknown {_OF_KIND[change.resource_type]}config name: {name}",
            )
        if operation in _ON_LISTS and change.resource_type is ResourceType.GROUP:
            raise _no_list(name, operation)  # as Kafka, which knows no list among a group's settings
        if definition is not None:
            _apply(after, definition, operation, value, wrong_value=_WRONG_VALUE[change.resource_type])
        elif value is None or operation is ConfigOperation.DELETE:
            after.pop(name, None)
        else:
            after[name] = value
    if change.resource_type is ResourceType.GROUP:
        try:
            check_group_settings(config, after)
        except InvalidConfig as error:
            raise BrokerError(ErrorCode.INVALID_CONFIG, error.told()) from None
    return [
        SetConfig(
            resource_type=change.resource_type, resource_name=change.resource_name, name=name, value=after.get(name)
        )
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _may_be_unknown(change: ConfigChange, operation: ConfigOperation) -> bool:
    """Return whether an unknown setting is accepted: Kafka keeps unknown broker settings for plugins, and deletes of
    missing settings succeed.
    """
    if operation is ConfigOperation.DELETE:
        return True
    return change.resource_type is ResourceType.BROKER and operation is ConfigOperation.SET


_OF_KIND = {ResourceType.TOPIC: "topic ", ResourceType.BROKER: "", ResourceType.GROUP: "group "}
_WRONG_VALUE = {
    ResourceType.TOPIC: ErrorCode.INVALID_CONFIG,
    ResourceType.BROKER: ErrorCode.INVALID_REQUEST,
    ResourceType.GROUP: ErrorCode.INVALID_CONFIG,
}
"""Kafka's error code for an invalid value."""
CORDONED = "cordoned.log.dirs"
_OF_THE_NODE = frozenset({"node.id", "broker.id", "process.roles", "listeners", "advertised.listeners", "log.dirs"})
"""Settings decided at the start of a node, without a definition of their own."""


def _definitions(image: ClusterImage, change: ConfigChange) -> dict[str, Definition]:
    """Return the settings that may be changed on this resource."""
    name = change.resource_name
    if change.resource_type is ResourceType.TOPIC:
        if name not in image.topics:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return TOPIC_SETTINGS
    if change.resource_type is ResourceType.BROKER:
        if name and (not name.isdecimal() or int(name) not in image.brokers):
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"there is no broker {name!r}")
        if not has_cordoned_log_dirs(image) and any(each == CORDONED for each, _, _ in change.operations):
            raise BrokerError(
                ErrorCode.INVALID_CONFIG,
                f"{CORDONED} can be set from metadata.version {CORDONED_LOG_DIRS} (4.3-IV0) on",
            )
        fixed = [setting for setting, _, _ in change.operations if _is_fixed(setting)]
        if fixed:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
            )
        return BROKER_SETTINGS
    if change.resource_type is ResourceType.GROUP:
        if not name:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        return GROUP_SETTINGS
    raise BrokerError(
        ErrorCode.INVALID_REQUEST, f"settings of a {change.resource_type.name.lower()} cannot be changed here"
    )


_ON_LISTS = (ConfigOperation.APPEND, ConfigOperation.SUBTRACT)


def _no_list(name: str, operation: ConfigOperation) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_CONFIG, f"Can't {operation.name} to key {name} because its type is not LIST.")


def _is_fixed(name: str) -> bool:
    definition = BROKER_SETTINGS.get(name)
    return name in _OF_THE_NODE or (definition is not None and definition.update_mode is UpdateMode.READ_ONLY)


def _apply(
    values: dict[str, str],
    definition: Definition,
    operation: ConfigOperation,
    value: str | None,
    *,
    wrong_value: ErrorCode,
) -> None:
    name = definition.name
    if operation is ConfigOperation.DELETE:
        values.pop(name, None)
        return
    if value is None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{name}: the value is null")
    if operation is not ConfigOperation.SET:
        if definition.type is not ConfigType.LIST:
            raise _no_list(name, operation)
        current = values.get(name, definition.format(definition.default) or "")
        items = [item for each in current.split(",") if (item := each.strip())]
        named = [item.strip() for item in value.split(",") if item.strip()]
        if operation is ConfigOperation.APPEND:
            items += [item for item in named if item not in items]
        else:
            items = [item for item in items if item not in named]
        value = ",".join(items)
    try:
        definition.parse(value)
    except InvalidConfig as error:
        raise BrokerError(wrong_value, error.told()) from None
    values[name] = value
