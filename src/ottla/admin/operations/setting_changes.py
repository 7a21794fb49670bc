"""Incremental changes to settings of topics, groups and brokers (IncrementalAlterConfigs): others are unchanged."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from ottla.admin.facts.admin_operation import AdminOperation, changing, problem_of, raise_problem, reading, until_seen
from ottla.admin.facts.cluster_facts import SettingInfo, whole_number
from ottla.admin.facts.protocol_names import BROKER, GROUP, SOURCES, TOPIC
from ottla.admin.facts.response_facts import settings_of
from ottla.admin.facts.setting_requests import change_settings, describe_settings
from ottla.errors import InputError, UnknownTopic
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

_GROUPS_AT_ONCE: Final = 100

ALL_BROKERS: Final = ""
"""Kafka's name for the defaults of all brokers of a cluster."""


@fact
class SettingChange:
    """One setting before and after. `new_source` is Kafka's name of the new value's origin. A value is None if Kafka
    does not return it, or the setting has none."""

    name: str
    """The setting's name."""
    old: str | None
    """The value before."""
    old_source: str
    """Kafka's name for where the old value came from."""
    new: str | None
    """The value after."""
    new_source: str

    @property
    def is_change(self) -> bool:
        """Return whether value or source differ."""
        return (self.old, self.old_source) != (self.new, self.new_source)


def topic_settings(topic: str) -> AdminOperation[dict[str, SettingInfo]]:
    """Return all settings of a topic."""
    return settings_of((yield from _describe(TOPIC, topic, None)))


def broker_settings(broker: int | None) -> AdminOperation[dict[str, SettingInfo]]:
    """Return all settings of a broker; of None what was set for all brokers of the cluster."""
    return settings_of((yield from _describe(BROKER, _broker_name(broker), None)))


def group_settings(groups: Collection[str]) -> AdminOperation[dict[str, dict[str, SettingInfo]]]:
    """Return all settings of groups by name, whether the groups exist or not."""
    found: dict[str, dict[str, SettingInfo]] = {}
    names = list(dict.fromkeys(groups))
    for start in range(0, len(names), _GROUPS_AT_ONCE):
        ask = describe_settings(GROUP, names[start : start + _GROUPS_AT_ONCE], None)
        for result in (yield from reading(ask)).results:
            _check(GROUP, result.resource_name, result)
            found[result.resource_name] = settings_of(result)
    return found


def alter_group_settings(
    group: str, values: Mapping[str, object | None], *, dry_run: bool = False
) -> AdminOperation[tuple[SettingChange, ...]]:
    """Set settings of a group; None unsets one. The group need not exist. Returns as `alter_topic_settings`."""
    return (yield from _alter(GROUP, group, values, dry_run))


def alter_topic_settings(
    topic: str, values: Mapping[str, object | None], *, dry_run: bool = False
) -> AdminOperation[tuple[SettingChange, ...]]:
    """Set settings of a topic; None unsets one. Returns the values before and after, with `dry_run` the planned ones.
    Waits for a few seconds at most until brokers describe the new values."""
    return (yield from _alter(TOPIC, topic, values, dry_run))


def alter_broker_settings(
    broker: int | None, values: Mapping[str, object | None], *, dry_run: bool = False
) -> AdminOperation[tuple[SettingChange, ...]]:
    """Set settings of one broker, or with None of all; None as a value unsets one."""
    return (yield from _alter(BROKER, _broker_name(broker), values, dry_run))


def _alter(
    kind: int, name: str, values: Mapping[str, object | None], dry_run: bool
) -> AdminOperation[tuple[SettingChange, ...]]:
    if not values:
        raise InputError("found no setting to change, wanted NAME=VALUE")
    before = {entry.name: entry for entry in (yield from _describe(kind, name, list(values))).configs}
    texts = {setting: None if value is None else setting_text(value) for setting, value in values.items()}
    for result in (yield from changing(change_settings(kind, name, texts, dry_run=dry_run))).responses:
        _check(kind, name, result)
    own = _own_source(kind, name)
    if not dry_run:

        def is_seen() -> AdminOperation[bool]:
            shown = {entry.name: entry for entry in (yield from _describe(kind, name, list(values))).configs}
            return all(_is_seen(shown.get(each), value, before.get(each), own) for each, value in values.items())

        yield from until_seen(is_seen, what=_subject(kind, name))
    return tuple(_change(setting, before.get(setting), value, own) for setting, value in values.items())


def _is_seen(shown: Any, value: object | None, before: Any, own: str) -> bool:
    is_own = shown is not None and SOURCES.get(shown.config_source) == own
    if value is None or not is_own:
        return is_own is (value is not None)
    return shown.is_sensitive or shown.value == setting_text(value) or before is None or shown.value != before.value


def _change(name: str, before: Any, value: object | None, own: str) -> SettingChange:
    """Return the change of one setting. What shows through when it is unset is the next of its synonyms."""
    old, old_source = (None, "") if before is None else (before.value, SOURCES.get(before.config_source, "UNKNOWN"))
    if value is not None:
        text = None if before is not None and before.is_sensitive else setting_text(value)
        return SettingChange(name=name, old=old, old_source=old_source, new=text, new_source=own)
    below = [] if before is None else [each for each in before.synonyms if SOURCES.get(each.source) != own]
    rest = [(_in_unit_of(name, each), each.source) for each in below if each.value is not None]
    new, new_source = (rest[0][0], SOURCES.get(rest[0][1], "UNKNOWN")) if rest else (None, "DEFAULT_CONFIG")
    if old_source != own:  # it was not set here, so nothing changes
        new, new_source = old, old_source
    return SettingChange(name=name, old=old, old_source=old_source, new=new, new_source=new_source)


def _in_unit_of(name: str, synonym: Any) -> str | None:
    """Return the value of a synonym as the setting has it: `log.retention.hours` is one of `retention.ms`."""
    unit_ms = next((size for ending, size in _LARGER_UNITS.items() if synonym.name.endswith(ending)), None)
    if unit_ms is None or not name.endswith(".ms"):
        return str(synonym.value)
    number = whole_number(SettingInfo(value=synonym.value, source=""))
    return None if number is None else str(number if number < 0 else number * unit_ms)


_LARGER_UNITS: Final = {".minutes": 60_000, ".hours": 3_600_000}


def _describe(kind: int, name: str, settings: list[str] | None) -> AdminOperation[Any]:
    answer = yield from reading(describe_settings(kind, [name], settings, synonyms=True))
    for result in answer.results:
        _check(kind, name, result)
        return result
    raise (
        problem_of(_subject(kind, name), ErrorCode.UNKNOWN_SERVER_ERROR, "the broker returned no settings")
        or InputError
    )


def setting_text(value: object) -> str:
    """Return a setting's value as the text that Kafka accepts."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check(kind: int, name: str, result: Any) -> None:
    if kind == TOPIC and result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopic(f"{name}: the cluster has no such topic")
    raise_problem(_subject(kind, name), result.error_code, result.error_message)


def _subject(kind: int, name: str) -> str:
    if kind == BROKER:
        return f"settings of {f'broker {name}' if name else 'all brokers'}"
    return f"settings of {'group ' if kind == GROUP else ''}{name}"


def _broker_name(broker: int | None) -> str:
    return ALL_BROKERS if broker is None else str(broker)


def _own_source(kind: int, name: str) -> str:
    if kind in (TOPIC, GROUP):
        return "DYNAMIC_TOPIC_CONFIG" if kind == TOPIC else "DYNAMIC_GROUP_CONFIG"
    return "DYNAMIC_BROKER_CONFIG" if name else "DYNAMIC_DEFAULT_BROKER_CONFIG"
