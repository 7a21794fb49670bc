"""Events of the quorum's state machine. Time is an argument of `step`."""

from __future__ import annotations

from broker_embedded.controller.raft.messages import EpochResponse, FetchResponse, Request, VoteResponse
from ottla_wire.facts import fact


@fact
class Started:
    """The node takes part from now on."""


@fact
class TimerFired:
    """`next_deadline_ms` has passed. `late_ms` is how much later than wanted the timer ran."""

    late_ms: int = 0


@fact
class Requested:
    """Another node asks; exactly one `Reply` is among the effects."""

    request: Request


@fact
class Answered:
    """`sender` answered `request`."""

    sender: int
    request: Request
    response: VoteResponse | EpochResponse | FetchResponse


@fact
class NotAnswered:
    """No usable answer to `request` will come from `peer`. `is_dead`: its process has ended."""

    peer: int
    request: Request
    is_dead: bool = False


@fact
class LogChanged:
    """An append is durable, or a truncation is complete."""


@fact
class ResignRequested:
    """The node is about to stop: another may lead."""


Event = Started | TimerFired | Requested | Answered | NotAnswered | LogChanged | ResignRequested
