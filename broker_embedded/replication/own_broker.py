"""The facts about this broker that the modules of replication use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.clock import Clock
from ottla_wire.facts import fact


@fact
class OwnBroker:
    node_id: int
    config: Callable[[], BrokerConfig]
    """The settings as they are now."""
    clock: Clock
    loop: asyncio.AbstractEventLoop
    epoch: Callable[[], int]
    """The epoch of its registration, -1 before it."""
