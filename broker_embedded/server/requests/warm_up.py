"""Loads what clients usually ask for first, when the broker is ready and while nobody waits.

A start loads no handler and no state machine of a coordinator (`requests.registry`, `coordinator.group.coordinator`),
so the first group would wait for some forty modules. They are loaded here a few at a time, with turns of the loop
between: a request that arrives meanwhile is late by one of these steps, a few milliseconds, at most. It begins late
enough to leave the first moments to a client that was waiting for the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from importlib import import_module

from broker_embedded.common.clock import client_timer
from broker_embedded.server.requests.registry import TABLE
from ottla_wire.protocol import ApiKey

BEGIN_AFTER_S = 0.1
PAUSE_S = 0.002

FIRST_ASKED_FOR = (
    ApiKey.API_VERSIONS,
    ApiKey.METADATA,
    ApiKey.CREATE_TOPICS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_COMMIT,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
)
STATE_MACHINES = (
    "coordinator.group.classic.group",
    "coordinator.group.consumer.group",
    "coordinator.group.consumer.heartbeat",
    "coordinator.group.shard",
)
"""As they import each other, so that each is a small step."""


def warm_up(loop: asyncio.AbstractEventLoop, *, on_done: Callable[[], None]) -> None:
    """Begin; `on_done` is called at the end."""
    steps = _steps()
    call_later = client_timer(loop)  # the cluster's own time may stand still

    def go_on() -> None:
        if next(steps, False):
            call_later(PAUSE_S, go_on)
        else:
            on_done()

    call_later(BEGIN_AFTER_S, go_on)


def _steps() -> Iterator[bool]:
    for key in FIRST_ASKED_FOR:
        _ = TABLE[key].handler
        yield True
        if key == ApiKey.FIND_COORDINATOR:
            for name in STATE_MACHINES:
                import_module(f"broker_embedded.{name}")
                yield True
