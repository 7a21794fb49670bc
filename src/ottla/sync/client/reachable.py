"""Whether anything listens at an address, and what a cluster says of itself."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from ottla.config import Address, BadAddress, Settings, parse_addresses
from ottla.consumer.member.broker_wait import START_AGAIN_S, BrokerWait
from ottla.errors import BrokerUnavailable, ConfigError
from ottla.telemetry import log_event
from ottla.wire_client.greeting import greet

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
    found = _first_listening(addresses, timeout_s)
    return found if isinstance(found, str) else None


def first_answering(addresses: Sequence[Address], settings: Mapping[str, Any], *, timeout_s: float) -> str | None:
    """As `first_listening`, and what listens is greeted: `AuthenticationError` or `ConfigError` for what is wrong there
    for good (`wire_client.greeting`)."""
    found = _first_listening(addresses, timeout_s)
    if isinstance(found, str):
        return found
    greet(found, settings)
    return None


def check_answering(servers: str, settings: Mapping[str, Any], *, timeout_s: float) -> None:
    """Raise what is wrong at the address: `BrokerUnavailable`, or what `first_answering` raises."""
    problem = first_answering(addresses_of(servers), settings, timeout_s=timeout_s)
    if problem is not None:
        raise BrokerUnavailable(f"no Kafka broker answered at {problem}")


def addresses_of(servers: str) -> tuple[Address, ...]:
    """The addresses, or ConfigError. librdkafka passes over what it cannot read, and waits."""
    try:
        return parse_addresses(servers)
    except BadAddress as error:
        raise ConfigError(f"bootstrap servers: found {servers!r}, wanted {error}") from None


def _first_listening(addresses: Sequence[Address], timeout_s: float) -> Address | str:
    problems = []
    for address in addresses:
        try:
            socket.create_connection((address.host, address.port), timeout=timeout_s / len(addresses)).close()
            return address
        except (OSError, UnicodeError) as error:  # the latter from a name that no resolver can be asked for
            problems.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    return "; ".join(problems)


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
