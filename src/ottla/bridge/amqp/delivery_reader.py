"""Deliveries in the bytes of an AMQP 0-9-1 connection, read in one pass.

pika makes three frames, a method and properties of each delivery, and copies its buffer three times: 7 µs, more than
the rest of the way into Kafka. Here a delivery is read at once where it is in one piece, as RabbitMQ sends it:
`basic.deliver`, a content header and the body's frames. Everything else is passed on as it came and in its order, whole
frames at a time: other methods, other channels, deliveries with a frame of another channel in between, and bytes that
are no AMQP.

Deliveries whose exchange, routing key and properties have the same bytes share one decoded envelope.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, Generic, TypeVar

CONSUMER_TAG: Final = "ottla"
"""The consumer whose deliveries are read. It belongs to the channel, so each has the same."""

MOST_FRAME_BYTES: Final = 131_072
"""The largest frame that pika accepts by default."""

MOST_BODY_BYTES: Final = 128 << 20
"""The largest body that RabbitMQ accepts by default before version 4; larger bodies are left to pika."""

_Envelope = TypeVar("_Envelope")

_METHOD, _HEADER, _BODY = 1, 2, 3
_KINDS: Final = frozenset({_METHOD, _HEADER, _BODY, 8})
_END: Final = 0xCE
_FRAME: Final = struct.Struct(">BHI")
_END_AND_HEADER: Final = struct.Struct(">BBHIIQ")
_END_AND_BODY: Final = struct.Struct(">BBHI")
_NUMBER: Final = struct.Struct(">Q")
_BASIC: Final = 60 << 16
"""The class of a content header, and its weight of 0."""
_DELIVER: Final = struct.pack(">HHB", 60, 60, len(CONSUMER_TAG)) + CONSUMER_TAG.encode()
_NUMBER_AT: Final = _FRAME.size + len(_DELIVER)
_ADDRESS_AT: Final = _NUMBER_AT + _NUMBER.size + 1
"""Where exchange and routing key begin, behind the delivery tag and the flag of a redelivery."""
_PROPERTIES_AT: Final = _FRAME.size + 12
_FEWEST_HEADER_BYTES: Final = 14
_MOST_CACHED: Final = 1_000
_LONGEST_CACHED: Final = 1_024


class DeliveryReader(Generic[_Envelope]):
    """The bytes of one connection. `channel` is the channel of the consumer, 0 while there is none."""

    def __init__(
        self,
        *,
        envelope_of: Callable[[bytes, bytes, bytes], _Envelope],
        deliver: Callable[[int, _Envelope, bytes], object],
        pass_on: Callable[[bytes], object],
    ) -> None:
        """`envelope_of` decodes exchange, routing key and properties. `deliver` takes a delivery tag, its envelope and
        the body; `pass_on` takes all other bytes."""
        self.channel = 0
        self._envelope_of = envelope_of
        self._deliver = deliver
        self._pass_on = pass_on
        self._envelopes: dict[tuple[bytes, bytes], _Envelope] = {}
        self._waiting: list[bytes] = []
        """Bytes of an incomplete frame or delivery."""
        self._size = 0
        self._wanted = 0
        self._is_amqp = True

    def feed(self, data: bytes) -> None:
        """Read what came."""
        if not self._is_amqp:
            self._pass_on(data)
            return
        self._waiting.append(data)
        self._size += len(data)
        if self._size < self._wanted:
            return
        if len(self._waiting) > 1:
            data = b"".join(self._waiting)
        self._waiting.clear()
        at = 0
        left = self._size
        while left >= _FRAME.size:
            kind, channel, size = _FRAME.unpack_from(data, at)
            if kind not in _KINDS or size > MOST_FRAME_BYTES:
                self._is_amqp = False  # pika says what is wrong with it
                self._pass_on(data[at:])
                return
            is_ours = kind == _METHOD and channel == self.channel and data.startswith(_DELIVER, at + _FRAME.size)
            length = self._delivery(data, at, size) if is_ours else 0
            if length:
                if length > left:
                    break
            else:
                length = size + 8
                if length > left:
                    break
                self._pass_on(data[at : at + length])
            at += length
            left -= length
        else:
            length = _FRAME.size
        self._wanted = length
        self._size = left
        if left:
            self._waiting.append(data[at:])

    def _delivery(self, data: bytes, at: int, size: int) -> int:
        """Return the length of the delivery that begins at `at`; 0 if it is not one to be read here. One whose length
        is more than there is was not delivered yet."""
        header: int = at + size + 8
        have = len(data)
        if have < header + _PROPERTIES_AT:
            return size + 8 + _PROPERTIES_AT
        end, kind, channel, header_size, basic, body_size = _END_AND_HEADER.unpack_from(data, header - 1)
        if (end, kind, channel, basic) != (_END, _HEADER, self.channel, _BASIC):
            return 0
        if not _FEWEST_HEADER_BYTES <= header_size <= MOST_FRAME_BYTES or body_size > MOST_BODY_BYTES:
            return 0
        body: int = header + header_size + 8
        content: bytes | None
        if body_size:
            after: int = body + body_size + 8
            if have < after:
                return after - at
            if _END_AND_BODY.unpack_from(data, body - 1) == (_END, _BODY, self.channel, body_size):
                content = data[body + _FRAME.size : after - 1]
            else:
                content, after = self._long_body(data, body, body_size)
                if after > have:
                    return after - at
        else:
            content, after = b"", body
            if have < after:
                return after - at
        if content is None or data[after - 1] != _END:
            return 0
        address = data[at + _ADDRESS_AT : header - 1]
        properties = data[header + _PROPERTIES_AT : body - 1]
        envelope = self._envelopes.get((address, properties))
        if envelope is None:
            split = 1 + address[0] if address else 0
            exchange, routing_key = address[1:split], address[split + 1 :]
            if len(address) <= split or len(routing_key) != address[split]:
                return 0
            envelope = self._envelope_of(exchange, routing_key, properties)
            if len(address) + len(properties) <= _LONGEST_CACHED:
                if len(self._envelopes) >= _MOST_CACHED:
                    self._envelopes.clear()
                self._envelopes[address, properties] = envelope
        (number,) = _NUMBER.unpack_from(data, at + _NUMBER_AT)
        self._deliver(number, envelope, content)
        return after - at

    def _long_body(self, data: bytes, at: int, size: int) -> tuple[bytes | None, int]:
        """Return the body in the frames from `at` on, and where they end. None where there is another frame."""
        parts = []
        while size:
            if len(data) < at + _FRAME.size:
                return None, at + size + 8
            end, kind, channel, part_size = _END_AND_BODY.unpack_from(data, at - 1)
            if (end, kind, channel) != (_END, _BODY, self.channel) or not 0 < part_size <= size:
                return None, 0
            parts.append(data[at + _FRAME.size : at + _FRAME.size + part_size])
            at += part_size + 8
            size -= part_size
        return b"".join(parts), at
