"""A broker's questions about injected faults, and the answers without faults.

`cluster.faults` has the model; here is the part that the dispatcher and the handlers see. A broker without faults pays
one look at `is_armed` per request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ottla_wire.protocol import ApiKey
from ottla_wire.protocol.message import Message

H = TypeVar("H", bound=Callable[..., Any])


class FaultHook:
    """One broker's view of the faults. This one has no faults."""

    __slots__ = ("is_armed",)

    def __init__(self) -> None:
        self.is_armed = False
        """Whether any fault may concern a request to this broker. Check it before any call below."""

    def around(self, api: Any, handler: H) -> H:
        """Return the handler, wrapped so that faults of whole requests and of responses happen."""
        return handler

    def check_partition(
        self, api: ApiKey, client_id: str | None, request: Message, topic: str | None, partition: int
    ) -> None:
        """Raise the BrokerError that was injected for one partition of a request, at the place where a real one would
        arise; the request's other partitions go on.
        """


NO_FAULTS = FaultHook()
