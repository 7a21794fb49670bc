"""The default settings of the producer for dead letters and retry topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_NO_LIMIT: Final[Mapping[str, Any]] = {
    # librdkafka's largest. The record was in this process already, so nothing is gained by refusing it here.
    "max.request.size": 1_000_000_000,
    "buffer.memory": 1_073_741_824,
}
_UNLESS_CHOSEN: Final[Mapping[str, Any]] = {
    # The strongest codec that all clients have: what was compressed in its own topic must not be larger here.
    "compression.type": "zstd",
    # Small ones may share a batch, large ones go alone: a batch over the topic's limit fails all that is in it.
    "batch.size": 16_384,
}
_ALIASES: Final = {
    "max.request.size": ("message.max.bytes",),
    "buffer.memory": ("queue.buffering.max.kbytes",),
    "compression.type": ("compression.codec",),
    "batch.size": (),
}


def dead_letter_settings(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings, from those that were given for the app's producer."""
    settings = {
        name: value
        for name, value in chosen.items()
        if name not in _NO_LIMIT and not any(name in _ALIASES[limit] for limit in _NO_LIMIT)
    }
    for name, value in _UNLESS_CHOSEN.items():
        if not settings.keys() & {name, *_ALIASES[name]}:
            settings[name] = value
    return {**settings, **_NO_LIMIT}
