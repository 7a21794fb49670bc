"""Waiting, in a thread, for a broker that is not there yet."""

from __future__ import annotations

import time
from collections.abc import Callable

from ottla.config import Settings
from ottla.consumer.member.broker_wait import BROKER_LONGEST_S, BrokerWait
from ottla.retrying import try_again
from ottla.wire_client.net.reachability import first_reachable


def await_broker(settings: Settings, timeout_s: float, should_give_up: Callable[[], bool]) -> None:
    """Wait until a broker listens at the address. Raises `BrokerUnavailable` with what was found there, and what
    `first_reachable` raises."""
    wait = BrokerWait(settings, timeout_s, time.monotonic())

    def attempt() -> None:
        problem = first_reachable(wait.addresses, settings, timeout_s=wait.connect_s(time.monotonic()))
        wait.check(problem, time.monotonic(), gives_up=should_give_up())

    if wait.addresses:
        try_again(attempt, what="broker", longest_s=BROKER_LONGEST_S, until_s=wait.until_s)
