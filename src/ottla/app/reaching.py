"""Waiting, in a thread, for a broker that is not there yet."""

from __future__ import annotations

import time
from collections.abc import Callable

from ottla.config import Settings
from ottla.consumer.member.broker_wait import awaiting_broker
from ottla.stepping import run
from ottla.wire_client.net.reachability import first_reachable


def await_broker(settings: Settings, timeout_s: float, should_give_up: Callable[[], bool]) -> None:
    """Wait until a broker listens at the address. Raises `BrokerUnavailable` with what was found there, and what
    `first_reachable` raises."""
    run(
        awaiting_broker(
            settings, timeout_s, should_give_up, ask=first_reachable, now_s=time.monotonic, sleep=time.sleep
        )
    )
