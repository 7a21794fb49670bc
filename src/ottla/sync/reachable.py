"""Whether anything listens at an address, and what a cluster says of itself."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from ottla.config import Address, Settings
from ottla.consumer.broker_wait import START_AGAIN_S, BrokerWait
from ottla.telemetry import log_event

_CUT: Final = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


def metadata_of(client: Any, timeout_s: float) -> Any:
    """What the cluster says of itself to this client of librdkafka. Raises `KafkaException` when nobody answers."""
    deadline_s = time.monotonic() + timeout_s
    for again_s in START_AGAIN_S:
        left_s = deadline_s - time.monotonic()
        try:
            return client.list_topics(timeout=max(0.1, left_s))
        except KafkaException as error:
            if error.args[0].code() not in _CUT or time.monotonic() + again_s >= deadline_s:
                raise
            time.sleep(again_s)
    return client.list_topics(timeout=max(0.1, deadline_s - time.monotonic()))


def first_listening(addresses: Sequence[Address], *, timeout_s: float) -> str | None:
    """None when something accepts a connection at one of the addresses, else what was found at each of them."""
    problems = []
    for address in addresses:
        try:
            socket.create_connection((address.host, address.port), timeout=timeout_s / len(addresses)).close()
            return None
        except (OSError, UnicodeError) as error:  # the latter from a name that no resolver can be asked for
            problems.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    return "; ".join(problems)


def await_broker(settings: Settings, timeout_s: float, should_give_up: Callable[[], bool]) -> None:
    """Wait until something listens at the address, or raise `BrokerUnavailable` with what was found there."""
    wait = BrokerWait(settings, timeout_s, time.monotonic())
    while wait.addresses:
        problem = first_listening(wait.addresses, timeout_s=wait.connect_s(time.monotonic()))
        again = wait.after(problem, time.monotonic(), gives_up=should_give_up())
        if again is None:
            return
        if again.warning is not None:
            log_event("broker_awaited", "warning", again.warning)
        time.sleep(again.in_s)
