"""A group's settings in force: its own within the bounds that the broker sets, else the broker's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_embedded.common.broker_settings import BROKER_SETTINGS, BrokerConfig, attribute_of
from broker_embedded.common.config_definition import InvalidConfig
from broker_embedded.common.group_settings import GROUP_SETTINGS, EffectiveGroupSettings


def _bounds_of(name: str) -> tuple[str, str]:
    kind, _, what = name.partition(".")
    return f"group.{kind}.min.{what}", f"group.{kind}.max.{what}"


BOUNDS = {name: _bounds_of(name) for name in GROUP_SETTINGS if _bounds_of(name)[0] in BROKER_SETTINGS}
"""The broker's settings that bound a group's."""
_BOUNDED: dict[str, tuple[int | None, int | None]] = {
    "streams.session.timeout.ms": (45_000, 60_000),
    "streams.heartbeat.interval.ms": (5_000, 15_000),
    "streams.assignment.interval.ms": (0, 15_000),
    "streams.num.standby.replicas": (None, 2),
    "streams.num.warmup.replicas": (None, 20),
    "streams.task.offset.interval.ms": (15_000, None),
}
"""The defaults of Kafka's bounds whose settings this broker does not have."""


class OutOfBounds(InvalidConfig):
    """A value that a group could have, if this broker's bounds were wider."""

    def told(self) -> str:
        return f"{self.name} must be {self.wanted}"


def group_settings(broker: BrokerConfig, overrides: Mapping[str, str]) -> EffectiveGroupSettings:
    """Return the settings of a group with `overrides`: its own, else the broker's.

    What lies outside of the broker's bounds, because they were wider when it was set, counts as the nearest bound.
    """
    values: dict[str, Any] = {}
    for name, definition in GROUP_SETTINGS.items():
        if name in overrides:
            values[attribute_of(name)] = _bounded(broker, name, definition.parse(overrides[name]))
        elif name in BOUNDS and definition.synonym is not None:
            values[attribute_of(name)] = getattr(broker, attribute_of(definition.synonym))
    return EffectiveGroupSettings(**values)


def check_group_settings(broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Raise InvalidConfig if a group cannot have these settings on this broker."""
    for name, text in overrides.items():
        value = GROUP_SETTINGS[name].parse(text)
        if _bounded(broker, name, value) != value:
            raise OutOfBounds(name, text, _format_bounds(*bounds(broker, name)))
    settings = group_settings(broker, overrides)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        is_asked = session in overrides or heartbeat in overrides
        if is_asked and getattr(settings, attribute_of(session)) <= getattr(settings, attribute_of(heartbeat)):
            raise OutOfBounds(session, overrides.get(session), f"greater than {heartbeat}")


def bounds(broker: BrokerConfig, name: str) -> tuple[int | None, int | None]:
    """Return the minimum and maximum of a group's setting on this broker; None without a bound."""
    if name in BOUNDS:
        low, high = BOUNDS[name]
        return getattr(broker, attribute_of(low)), getattr(broker, attribute_of(high))
    return _BOUNDED.get(name, (None, None))


def _bounded(broker: BrokerConfig, name: str, value: Any) -> Any:
    low, high = bounds(broker, name)
    if low is not None and value < low:
        return low
    return high if high is not None and value > high else value


def _format_bounds(low: int | None, high: int | None) -> str:
    if low is None:
        return f"less than or equal to {high}"
    if high is None:
        return f"greater than or equal to {low}"
    return f"in the range {low} to {high} inclusive."
