"""Sends requests to a coordinator, which is looked up once, and again when it has moved, for
`default.api.timeout.ms`."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from ottla.errors import BrokerUnavailable
from ottla.wire_client.cluster.cluster_client import Cluster, refused
from ottla.wire_client.errors import PartitionUnavailable
from ottla.wire_client.net.broker_connection import Connection
from ottla_wire.protocol import ApiKey, ErrorCode

MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Answers that mean: find the coordinator again, then ask it again."""


class Coordinates(IntEnum):
    """Kind of a coordinator; the numbers are the protocol's."""

    GROUP = 0
    TRANSACTION = 1


def with_coordinator(
    cluster: Cluster, kind: Coordinates, key: str, attempt: Callable[[Connection], str | None]
) -> None:
    """Run `attempt` on the coordinator until it answers None; anything else is why it must be tried again."""
    deadline = cluster.now() + cluster.settings.api_timeout_ms / 1000
    what = f"{kind.name.lower()} {key}"
    while True:
        try:
            address = cluster.coordinators.get((kind, key))
            if address is None:
                answer = cluster.any_broker().call(ApiKey.FIND_COORDINATOR, {"key": key, "key_type": int(kind)})
                code = ErrorCode.of(answer.error_code)
                if code is ErrorCode.NONE:
                    address = cluster.coordinators[kind, key] = answer.host, answer.port
                elif code in MOVED:
                    reason = code.name
                else:
                    raise refused(f"coordinator of {what}", code)
            if address is not None:
                again = attempt(cluster.ask(*address))
                if again is None:
                    return
                reason = again
        except BrokerUnavailable as error:
            reason = str(error)
        cluster.coordinators.pop((kind, key), None)
        if cluster.now() >= deadline:
            raise PartitionUnavailable(f"{what}: no response of its coordinator in time: {reason}")
        cluster.pause()
