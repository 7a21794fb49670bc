"""Effect of a heartbeat on a broker's state, as one table.

FENCED              -> UNFENCED             it has seen its own registration in the metadata, and wants in
                    -> SHUTDOWN_NOW         it wants to shut down: it leads nothing
UNFENCED            -> FENCED               it asks for it
                    -> CONTROLLED_SHUTDOWN  it wants to shut down and leads partitions
                    -> SHUTDOWN_NOW         it wants to shut down and leads nothing
CONTROLLED_SHUTDOWN -> SHUTDOWN_NOW         it leads nothing, and every active broker has seen who leads instead
"""

from __future__ import annotations

from enum import Enum

from broker_embedded.metadata.image import BrokerImage
from ottla_wire.facts import fact


class ControlState(Enum):
    """A broker as the controller treats it."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


@fact
class BrokerHeartbeat:
    """A broker's heartbeat: it is alive, the metadata offset it has replayed, and its request."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    """Log directories that take no new replicas; None if not given."""


@fact
class HeartbeatReply:
    """The response to a heartbeat."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


def state_of(broker: BrokerImage) -> ControlState:
    if broker.fenced:
        return ControlState.FENCED
    return ControlState.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else ControlState.UNFENCED


def next_state(
    state: ControlState, heartbeat: BrokerHeartbeat, *, is_caught_up: bool, leads: bool, others_have_seen: bool
) -> ControlState:
    """Return the table above. `others_have_seen`: every active broker has read the metadata up to the shutdown's
    records."""
    if state is ControlState.FENCED:
        if heartbeat.want_shut_down:
            return ControlState.SHUTDOWN_NOW
        wants_in = is_caught_up and not heartbeat.want_fence
        return ControlState.UNFENCED if wants_in else ControlState.FENCED
    if state is ControlState.UNFENCED:
        if heartbeat.want_fence:
            return ControlState.SHUTDOWN_NOW if heartbeat.want_shut_down else ControlState.FENCED
        if heartbeat.want_shut_down:
            return ControlState.CONTROLLED_SHUTDOWN if leads else ControlState.SHUTDOWN_NOW
        return ControlState.UNFENCED
    may_go = not leads and others_have_seen
    return ControlState.SHUTDOWN_NOW if may_go else ControlState.CONTROLLED_SHUTDOWN
