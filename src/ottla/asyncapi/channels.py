"""The channels and operations of an AsyncAPI document while it is built."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.asyncapi.messages import BINDING
from ottla.config import TopicSpec

_WHOLE_NUMBERS: Final = ("delete.retention.ms", "max.message.bytes", "retention.bytes", "retention.ms")


class Channels:
    """Channels by topic, and the operations on them. `specs` are the topics that the app declares how to create."""

    def __init__(self, specs: Mapping[str, TopicSpec]) -> None:
        self._specs = specs
        self._channels: dict[str, dict[str, Any]] = {}
        self._operations: dict[str, dict[str, Any]] = {}

    @property
    def channels(self) -> dict[str, Any]:
        """The Channel Objects, sorted by name."""
        return {
            name: {**channel, "messages": dict(sorted(channel["messages"].items()))}
            for name, channel in sorted(self._channels.items())
        }

    @property
    def operations(self) -> dict[str, Any]:
        """The Operation Objects, sorted by name."""
        return dict(sorted(self._operations.items()))

    def topic(self, topic: str, **extensions: Any) -> str:
        """Add the channel of a topic, if it is new, and return its name. Extensions are written as `x-ottla-…`."""
        name = _key(topic)  # a retry topic has the name of its group, which may be any text
        channel = self._channels.setdefault(name, {"address": topic, "messages": {}})
        channel |= _extensions(extensions)
        spec = self._specs.get(topic)
        binding = {} if spec is None else _binding(spec)
        channel["bindings"] = {"kafka": {"topic": topic, **binding, "bindingVersion": BINDING}}
        return name

    def unknown(self, name: str, description: str) -> str:
        """Add a channel whose topic is known only at run time, and return its name."""
        name = _free(name, self._channels)
        self._channels[name] = {"address": None, "description": description, "messages": {}}
        return name

    def message(self, channel: str, message: Mapping[str, Any]) -> dict[str, str]:
        """Add a message to a channel, if it is new, and return the reference to it."""
        messages = self._channels[channel]["messages"]
        plain = _key(str(message["name"]))
        name, number = plain, 1
        while messages.get(name, message) != message:
            number += 1
            name = f"{plain}_{number}"
        messages[name] = dict(message)
        return {"$ref": f"#/channels/{channel}/messages/{name}"}

    def operation(
        self,
        name: str,
        action: str,
        channel: str,
        messages: Sequence[Mapping[str, str]],
        *,
        description: str | None = None,
        group: str | None = None,
        **extensions: Any,
    ) -> None:
        """Add an operation. Extensions are written as `x-ottla-…`; None is left out."""
        operation: dict[str, Any] = {"action": action, "channel": {"$ref": f"#/channels/{channel}"}}
        if description:
            operation["description"] = description
        unique = {each["$ref"]: dict(each) for each in messages}
        operation["messages"] = [unique[reference] for reference in sorted(unique)]
        if group is not None:
            group_id = {"type": "string", "enum": [group]}
            operation["bindings"] = {"kafka": {"groupId": group_id, "bindingVersion": BINDING}}
        self._operations[_free(_key(name), self._operations)] = operation | _extensions(extensions)


def _binding(spec: TopicSpec) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if spec.partitions is not None:
        found["partitions"] = spec.partitions
    if spec.replication_factor is not None:
        found["replicas"] = spec.replication_factor
    if spec.config:
        texts = spec.config_texts
        found["topicConfiguration"] = {name: _setting(name, texts[name]) for name in sorted(texts)}
    return found


def _setting(name: str, text: str) -> Any:
    """Return the value of a topic's setting as the binding has it: whole numbers, and a list of clean-up policies."""
    if name == "cleanup.policy":
        return [policy.strip() for policy in text.split(",")]
    return int(text) if name in _WHOLE_NUMBERS and re.fullmatch("-?[0-9]+", text) else text


def _extensions(given: Mapping[str, Any]) -> dict[str, Any]:
    return {f"x-ottla-{name.replace('_', '-')}": value for name, value in given.items() if value is not None}


def _key(text: str) -> str:
    """Return a text as the name of a part of the document: a reference to it needs no escapes."""
    return re.sub(r"[^\w.-]", "_", text, flags=re.ASCII) or "_"


def _free(name: str, taken: Mapping[str, Any]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free
