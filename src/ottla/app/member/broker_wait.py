"""Waits for a broker to listen while a member starts, as the broker may be starting too. For both shells."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ottla.config import Address, Settings, parse_addresses
from ottla.errors import BrokerUnavailable
from ottla.processes import green_threads
from ottla.retrying import Awaited, NotYet, try_again
from ottla.stepping import Steps, run
from ottla.wire_client.net.connection_check import greet
from ottla.wire_client.net.reachability import Connect, connect, first_reachable

START_ATTEMPTS: Final = 3
"""How often a client is started again because its connection was cut, by a broker that has just started or a proxy in
front of it. Clients give up at the first or second such connection, which must not end a service."""
START_LONGEST_S: Final = 0.4

BROKER_LONGEST_S: Final = 0.2
"""The longest pause between two rounds of connecting."""
_CONNECT_S: Final = 1.0
"""Minimum of one round of connecting: a wait of 0 seconds still tries once."""


class BrokerWait:
    """Ask `addresses` while `check` raises `NotYet`. Without addresses it returns at once: librdkafka's mock
    cluster."""

    def __init__(self, settings: Settings, timeout_s: float, now_s: float) -> None:
        self._servers = settings.get("bootstrap.servers")
        self.addresses: Sequence[Address] = () if self._servers is None else parse_addresses(self._servers)
        self._timeout_s = timeout_s
        self.until_s = now_s + timeout_s
        self._is_logged = False

    def connect_s(self, now_s: float) -> float:
        """Return how long one round of connecting may take."""
        return max(_CONNECT_S, self.until_s - now_s)

    def check(self, problem: str | None, now_s: float, *, gives_up: bool) -> None:
        """Return if a round found no problem. Raises `NotYet` while there is time for another round, with the fields of
        `broker_awaited` the first time; then `BrokerUnavailable` with what was found."""
        if problem is None:
            return
        left_s = self.until_s - now_s
        if left_s <= 0:
            raise BrokerUnavailable(
                f"no Kafka broker answered at {self._servers} within {self._timeout_s:g} s ({problem}); check "
                "bootstrap.servers and that the broker runs; a broker that takes longer to start needs a longer "
                "start_timeout_s"
            )
        if gives_up:
            raise BrokerUnavailable(
                f"no Kafka broker had answered at {self._servers} when the wait for it was stopped ({problem}); check "
                "bootstrap.servers and that the broker runs"
            )
        if self._is_logged:
            raise NotYet(problem)
        self._is_logged = True
        raise Awaited("broker_awaited", {"problem": problem, "for_s": round(left_s, 1)})


def wait_for_broker(settings: Settings, timeout_s: float, should_give_up: Callable[[], bool]) -> None:
    """Wait until a broker listens at the address. Raises `BrokerUnavailable` with what was found there, and what
    `first_reachable` raises."""
    green_threads.check()
    wait = BrokerWait(settings, timeout_s, time.monotonic())

    def attempt() -> None:
        run(one_round(wait, settings, should_give_up, connect=connect))

    if wait.addresses:
        try_again(attempt, what="broker", longest_s=BROKER_LONGEST_S, until_s=wait.until_s)


def one_round(
    wait: BrokerWait,
    settings: Settings,
    should_give_up: Callable[[], bool],
    *,
    connect: Connect,
    greet: Callable[[Address, Mapping[str, Any]], Any] = greet,
) -> Steps[None]:
    """Connect to each address until one listens. Raises what `BrokerWait.check` and `first_reachable` raise."""
    timeout_s = wait.connect_s(time.monotonic())
    problem = yield from first_reachable(wait.addresses, settings, timeout_s=timeout_s, connect=connect, greet=greet)
    wait.check(problem, time.monotonic(), gives_up=should_give_up())
