"""How long a member that starts waits for a broker to listen: it may be starting too. For both shells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ottla.config import Address, Settings, parse_addresses
from ottla.errors import BrokerUnavailable
from ottla.stepping import Steps
from ottla.telemetry import log_event

START_AGAIN_S: Final = (0.1, 0.4)
"""When a client is asked again to start, because a connection was cut in that moment, by a broker that has just come
up, or a proxy before it. Clients give up at the first or second such connection, which must not end a service."""

_AGAIN_S: Final = 0.2
_CONNECT_S: Final = 1.0
"""What one round of connecting has at least: a wait of 0 seconds still asks once."""


@dataclass(frozen=True, slots=True)
class Again:
    """Look again after so many seconds. `warning`: the fields of `broker_awaited`, the first time only."""

    in_s: float
    warning: Mapping[str, object] | None


class BrokerWait:
    """Ask `addresses` until `after` gives None. Without addresses there is nobody to ask: librdkafka's mock cluster."""

    def __init__(self, settings: Settings, timeout_s: float, now_s: float) -> None:
        self._servers = settings.get("bootstrap.servers")
        self.addresses: Sequence[Address] = () if self._servers is None else parse_addresses(self._servers)
        self._timeout_s = timeout_s
        self._deadline_s = now_s + timeout_s
        self._is_told = False

    def connect_s(self, now_s: float) -> float:
        """How long one round of connecting may take."""
        return max(_CONNECT_S, self._deadline_s - now_s)

    def after(self, problem: str | None, now_s: float, *, gives_up: bool) -> Again | None:
        """What a round has found. Raises `BrokerUnavailable` with that when there is no time for another."""
        if problem is None:
            return None
        left_s = self._deadline_s - now_s
        if left_s <= 0 or gives_up:
            raise BrokerUnavailable(
                f"no Kafka broker answered at {self._servers} within {self._timeout_s:g} s ({problem}); check "
                "bootstrap.servers and that the broker runs; a broker that takes longer to start needs a longer "
                "start_timeout_s"
            )
        warning = None if self._is_told else {"problem": problem, "for_s": round(left_s, 1)}
        self._is_told = True
        return Again(min(_AGAIN_S, left_s), warning)


def awaiting_broker(
    settings: Settings,
    timeout_s: float,
    should_give_up: Callable[[], bool],
    *,
    ask: Callable[..., Any],
    now_s: Callable[[], float],
    sleep: Callable[[float], Any],
) -> Steps[None]:
    """Wait until a broker listens at the address. Raises `BrokerUnavailable` with what was found there, and what `ask`
    raises."""
    wait = BrokerWait(settings, timeout_s, now_s())
    while wait.addresses:
        problem = yield partial(ask, wait.addresses, settings, timeout_s=wait.connect_s(now_s()))
        again = wait.after(problem, now_s(), gives_up=should_give_up())
        if again is None:
            return
        if again.warning is not None:
            log_event("broker_awaited", "warning", again.warning)
        yield partial(sleep, again.in_s)
