"""Goals of the bridge, and the names of what `bridge.py` measures."""

from __future__ import annotations

from judging import Wanted

ALONE = "mosquitto, keeps nothing"
FASTSTREAM = "FastStream (zmqtt)"
PIKA = "pika, keeps nothing"
SHOVEL = "RabbitMQ's shovel, to another queue"
PUBACKS = "PUBACKs, 1,000 connections, per CPU second"
WAIT = "PUBACKs at 20,000 a second, or half of what it does: p99"
IDLE = "{:,} idle connections: memory"
FROM_MOSQUITTO = "messages from mosquitto, per CPU second"
FROM_RABBITMQ = "messages from RabbitMQ, per CPU second"
RABBITMQ_BY_CLOCK = "messages from RabbitMQ, by the clock"

_WAITS_FOR_CPU = (
    "Publishers, bridge and broker share two CPUs here, with whatever else the machine does: a PUBACK waits for three "
    "processes to run in turn. Scheduled before all else it was 10 to 13 ms; `linger.ms` accounts for 5 of them."
)


def _bridge(what: str, figure: float, unit: str, *, peer: str = "", why: str = "") -> Wanted:
    return Wanted(area="bridge", part="bridge", what=what, figure=figure, unit=unit, peer=peer, why=why)


BRIDGE: tuple[Wanted, ...] = (
    _bridge(PUBACKS, 40_000, "messages/s"),
    _bridge(WAIT, 50, "ms", why=_WAITS_FOR_CPU),
    _bridge(IDLE.format(10_000), 400, "MB"),
    _bridge(FROM_MOSQUITTO, 15_000, "messages/s"),
    _bridge(FROM_RABBITMQ, 0.8, "messages/s", peer=PIKA),
)
