"""How many messages a client of 5.0 has sent without a final acknowledgement (MQTT-3.3.4-9)."""

from __future__ import annotations

from ottla.bridge.mqtt.codes import Reason
from ottla.bridge.mqtt.packets import Publish
from ottla.bridge.mqtt.primitives import PacketError


class ReceiveQuota:
    """QoS 1 messages until their PUBACK, and QoS 2 messages until their release or refusal."""

    __slots__ = ("_qos1", "_qos2", "_receive_maximum")

    def __init__(self, receive_maximum: int) -> None:
        self._receive_maximum = receive_maximum
        self._qos1 = 0
        self._qos2: set[int] = set()

    def use(self, publish: Publish) -> None:
        """Count a message. Raises `PacketError` where it is one too many."""
        if publish.qos == 1:
            self._qos1 += 1
        else:
            self._qos2.add(publish.packet_id)
        if self._qos1 + len(self._qos2) > self._receive_maximum:
            raise PacketError(
                Reason.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {self._receive_maximum} messages without an acknowledgement",
            )

    def acknowledged_one(self) -> None:
        """Count the PUBACK of a QoS 1 message."""
        self._qos1 -= 1

    def released(self, packet_id: int) -> None:
        """Forget a QoS 2 message."""
        self._qos2.discard(packet_id)
