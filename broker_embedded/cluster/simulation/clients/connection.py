"""One connection of a simulated client: requests leave in order, answers come back in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any

from ottla_wire.protocol import ApiKey, codec, headers
from ottla_wire.protocol.message import Message


class NoAnswer(Exception):
    """The connection ended or the answer took too long: the request may or may not have been done."""


class SimulatedConnection(asyncio.Protocol):
    """A protocol for `Network.connect`."""

    def __init__(self, client_id: str) -> None:
        self.is_open = True
        self._client_id = client_id
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._asked: deque[tuple[ApiKey, int, asyncio.Future[Message]]] = deque()
        self._correlation_id = 0

    async def ask(self, api: ApiKey, version: int, body: Mapping[str, Any], *, timeout_s: float) -> Message:
        """Send a request; returns the decoded response. After NoAnswer the connection must not be used: responses would
        not match."""
        if self._transport is None or not self.is_open:
            raise NoAnswer("not connected")
        self._correlation_id += 1
        frame = headers.encode_request_frame(api, version, self._correlation_id, self._client_id, body)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._asked.append((api, version, answer))
        self._transport.write(frame)
        try:
            return await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            self.close()
            raise NoAnswer(f"{api.name}: no answer within {timeout_s:g} s") from None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end("closed")

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("the connection was lost")

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            frame = bytes(self._received[4:end])
            del self._received[:end]
            api, version, answer = self._asked.popleft()
            if not answer.done():
                _, position = headers.decode_response_header(api, version, frame)
                answer.set_result(codec.decode_response(api, version, frame, position))

    def _end(self, reason: str) -> None:
        self.is_open = False
        asked, self._asked = self._asked, deque()
        for _, _, answer in asked:
            if not answer.done():
                answer.set_exception(NoAnswer(reason))
