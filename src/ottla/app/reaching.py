"""Waiting, in a thread, for a broker that is not there yet."""

from __future__ import annotations

import time
from collections.abc import Callable

from ottla.config import Settings
from ottla.consumer.member.broker_wait import BrokerWait
from ottla.telemetry import log_event
from ottla.wire_client.listening import first_answering


def await_broker(settings: Settings, timeout_s: float, should_give_up: Callable[[], bool]) -> None:
    """Wait until a broker listens at the address. Raises `BrokerUnavailable` with what was found there, and what
    `first_answering` raises."""
    wait = BrokerWait(settings, timeout_s, time.monotonic())
    while wait.addresses:
        problem = first_answering(wait.addresses, settings, timeout_s=wait.connect_s(time.monotonic()))
        again = wait.after(problem, time.monotonic(), gives_up=should_give_up())
        if again is None:
            return
        if again.warning is not None:
            log_event("broker_awaited", "warning", again.warning)
        time.sleep(again.in_s)
