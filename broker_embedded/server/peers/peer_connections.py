"""Requests of this node to the others, over connections of its own, and to itself without one.

One connection per node and channel, made when it is first needed and again after it was lost. Whatever was under way
when a connection ends fails with PeerUnavailable: who asked knows best whether to ask again. Before anything leaves,
the links between the nodes are asked, so that a test can cut or slow them.

A connection that is refused says more than silence: a process listens before it joins the cluster and until it ends, so
it has ended. Where deaths are to be detected (`peer.death.detection.enable`) the refusal is told as that.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from broker_embedded.common.peers import DEFAULT_TIMEOUT_MS, PeerDead, PeerUnavailable
from broker_embedded.common.promises import Promise, look_at, settle
from broker_embedded.server.net.connection import ClientConnection, RequestHandler
from broker_embedded.server.net.network import Network
from broker_embedded.server.net.rate_limited_log import RateLimitedLog
from broker_embedded.server.net.response_writer import Parts
from ottla_wire.protocol import ApiKey, codec, headers
from ottla_wire.protocol.message import Message
from ottla_wire.protocol.region import Region

log = logging.getLogger(__name__)

SCRATCH_BYTES = 64 * 1024
"""Answers up to this size are received together; a larger one gets a buffer of its own."""

Address = tuple[str, int]


class PeerLinks(Protocol):
    """The state of the cables between nodes."""

    def problem(self, source: int, target: int) -> str | None:
        """Return why no request gets from `source` to `target`, or None."""
        ...

    def delay_ms(self, source: int, target: int) -> int:
        """Return the additional delay."""
        ...


class NoFaults:
    """Nothing is cut and nothing is slow."""

    def problem(self, source: int, target: int) -> str | None:
        return None

    def delay_ms(self, source: int, target: int) -> int:
        return 0


class PeerConnections:
    """Implements `Peers` for one node."""

    def __init__(
        self,
        *,
        node_id: int,
        network: Network,
        addresses: Mapping[int, Address],
        loop: asyncio.AbstractEventLoop,
        links: PeerLinks | None = None,
        detects_deaths: bool = False,
    ) -> None:
        """`addresses`: where each node listens for the others; read at every connect, so it may grow."""
        self.node_id = node_id
        self.loop = loop
        self.links: PeerLinks = links or NoFaults()
        self.detects_deaths = detects_deaths
        self.on_loss: Callable[[int], None] | None = None
        """Called when a connection ends that was not ended here, where deaths are detected."""
        self._network = network
        self._addresses = addresses
        self._dispatcher: RequestHandler | None = None
        self._local = _LocalConnection(RateLimitedLog(log, now_ms=lambda: int(loop.time() * 1000)))
        self._lines: dict[tuple[int, str], _PeerConnection] = {}
        self._knocks: set[asyncio.Task[bool]] = set()
        self._is_closed = False
        self._held: list[Callable[[], None]] | None = None
        self._correlation_id = 0

    def serve_locally(self, dispatcher: RequestHandler) -> None:
        """Serve requests to this node by `dispatcher`; they fail before this call."""
        self._dispatcher = dispatcher

    # --- asking

    def send(
        self,
        node: int,
        api: ApiKey,
        version: int,
        body: Mapping[str, Any],
        *,
        channel: str = "",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> asyncio.Future[Message]:
        answer: asyncio.Future[Message] = self._new_future()
        frame = headers.encode_request_frame(api, version, self._next_id(), self._client_id, body)
        self._ask(node, api, version, frame, channel, timeout_ms, answer, codec.decode_response)
        return answer

    def send_encoded(
        self,
        node: int,
        api: ApiKey,
        version: int,
        body: bytes,
        *,
        channel: str = "",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        on_behalf_of: str = "",
    ) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = self._new_future()
        name = self._client_id + on_behalf_of
        frame = headers.encode_request_frame(api, version, self._next_id(), name, body)
        self._ask(node, api, version, frame, channel, timeout_ms, answer, _keep_encoded)
        return answer

    def is_dead(self, node: int) -> asyncio.Future[bool]:
        """Return whether the node is dead: its connection is closed as soon as it is made (`DeathProbe`)."""
        answer: asyncio.Future[bool] = self.loop.create_future()
        if self._held is not None:
            self._held.append(lambda: self._knock(node, answer))
        else:
            self._knock(node, answer)
        return answer

    def close(self) -> None:
        """Close every connection; pending requests fail."""
        self._is_closed = True
        for knock in list(self._knocks):
            knock.cancel()
        for line in list(self._lines.values()):
            line.end("this node stopped")
        self._lines.clear()

    def links_changed(self) -> None:
        """Close connections over links that are cut now."""
        for (node, _), line in list(self._lines.items()):
            problem = self.links.problem(self.node_id, node)
            if problem is not None:
                line.end(problem)

    def pause(self) -> None:
        """Send and read nothing until `resume`; new requests wait, and may time out."""
        if self._held is None:
            self._held = []
            for line in self._lines.values():
                line.pause()

    def resume(self) -> None:
        """Send waiting requests, and read again."""
        held, self._held = self._held or [], None
        for line in self._lines.values():
            line.resume()
        for ask in held:
            ask()

    # --- how

    @property
    def _client_id(self) -> str:
        return f"broker-{self.node_id}"

    def _next_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def _new_future(self) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.loop.create_future()
        future.add_done_callback(look_at)  # who lost interest does not leave a complaint behind
        return future

    def _ask(
        self,
        node: int,
        api: ApiKey,
        version: int,
        frame: bytes,
        channel: str,
        timeout_ms: int,
        answer: asyncio.Future[Any],
        decode: Callable[[ApiKey, int, memoryview, int], Any],
    ) -> None:
        if self._is_closed:
            answer.set_exception(PeerUnavailable(f"node {self.node_id} is stopped"))
            return
        asked = _Asked(api, version, frame, answer, decode)
        if self._held is not None:
            self._held.append(lambda: self._put(asked, node, channel))
        else:
            self._put(asked, node, channel)
        if not answer.done():
            timer = self.loop.call_later(timeout_ms / 1000, self._expire, asked, node, timeout_ms)
            answer.add_done_callback(lambda _: timer.cancel())

    def _put(self, asked: _Asked, node: int, channel: str) -> None:
        if asked.answer.done() or self._is_closed:
            return
        if node == self.node_id:
            self._ask_self(asked)
            return
        problem = self.links.problem(self.node_id, node)
        if problem is not None:
            asked.fail(problem)
            return
        self._line(node, channel).ask(asked, delay_ms=self.links.delay_ms(self.node_id, node))

    def _expire(self, asked: _Asked, node: int, timeout_ms: int) -> None:
        asked.fail(f"node {node} did not answer {asked.api.name} within {timeout_ms} ms")

    # When a test moves the time by days, an answer under way is not late (cluster/time/advance.py).
    _expire.keeps_time_left = True  # type: ignore[attr-defined]

    def _ask_self(self, asked: _Asked) -> None:
        if self._dispatcher is None:
            asked.fail(f"node {self.node_id} is starting")
            return
        # Produce writes offsets into the batches that it gets, as into the buffer of a socket.
        frame = bytearray(asked.frame) if asked.api is ApiKey.PRODUCE else asked.frame
        result = self._dispatcher.dispatch(self._local, memoryview(frame)[4:])
        if isinstance(result, Promise):
            result.add_done_callback(lambda done: asked.answer_with_parts(None if done.cancelled() else done.result()))
        else:
            asked.answer_with_parts(result)

    def _line(self, node: int, channel: str) -> _PeerConnection:
        line = self._lines.get((node, channel))
        if line is None:
            line = self._lines[node, channel] = _PeerConnection(self, node, channel)
            task = self.loop.create_task(self._connect(line))
            line.connecting = task
        return line

    async def _connect(self, line: _PeerConnection) -> None:
        address = self._addresses.get(line.node)
        if address is None:
            line.end(f"node {line.node} is not known")
            return
        try:
            await self._network.connect(*address, lambda: line)
        except OSError as error:
            is_dead = self.detects_deaths and isinstance(error, ConnectionRefusedError)
            line.end(f"node {line.node} cannot be reached: {error.strerror or error}", is_dead=is_dead)

    def _knock(self, node: int, answer: asyncio.Future[bool]) -> None:
        if self._is_closed or not self.detects_deaths or self.links.problem(self.node_id, node) is not None:
            answer.set_result(False)
            return
        knock = self.loop.create_task(self._is_refused(node))
        self._knocks.add(knock)
        knock.add_done_callback(self._knocks.discard)
        knock.add_done_callback(lambda done: settle(answer, not done.cancelled() and done.result()))

    async def _is_refused(self, node: int) -> bool:
        address = self._addresses.get(node)
        if address is None:
            return False
        try:
            await self._network.connect(*address, _Knock)
        except ConnectionRefusedError:
            return self.detects_deaths  # it may have been switched off meanwhile
        except OSError:
            return False
        return False

    def peer_connection_lost(self, line: _PeerConnection) -> None:
        if self.on_loss is not None and self.detects_deaths and not self._is_closed:
            self.on_loss(line.node)

    def peer_connection_ended(self, line: _PeerConnection) -> None:
        if self._lines.get((line.node, line.channel)) is line:
            del self._lines[line.node, line.channel]


class _Asked:
    """A pending request."""

    __slots__ = ("_decode", "answer", "api", "correlation_id", "frame", "version")

    def __init__(
        self,
        api: ApiKey,
        version: int,
        frame: bytes,
        answer: asyncio.Future[Any],
        decode: Callable[[ApiKey, int, memoryview, int], Any],
    ) -> None:
        self.api = api
        self.version = version
        self.frame = frame
        self.answer = answer
        self.correlation_id = int.from_bytes(frame[8:12], "big")
        self._decode = decode

    def fail(self, reason: str, *, is_dead: bool = False) -> None:
        if not self.answer.done():
            self.answer.set_exception(PeerDead(reason) if is_dead else PeerUnavailable(reason))

    def answer_with_parts(self, parts: Parts | None) -> None:
        if parts is None:
            self.fail(f"{self.api.name} was not answered")
        else:
            self.answer_with(memoryview(b"".join(_bytes_of(parts)))[4:])

    def answer_with(self, frame: memoryview) -> None:
        if self.answer.done():
            return
        try:
            correlation_id, position = headers.decode_response_header(self.api, self.version, frame)
            if correlation_id != self.correlation_id:
                raise ValueError(f"answers are out of order: found {correlation_id}, wanted {self.correlation_id}")
            decoded = self._decode(self.api, self.version, frame, position)
        except Exception as error:
            log.exception("%s v%d: the answer cannot be read", self.api.name, self.version)
            self.answer.set_exception(PeerUnavailable(f"the answer to {self.api.name} cannot be read: {error}"))
        else:
            self.answer.set_result(decoded)


class _PeerConnection(asyncio.BufferedProtocol):
    """One connection to a peer: requests leave in order and are answered in order."""

    def __init__(self, peers: PeerConnections, node: int, channel: str) -> None:
        self.node = node
        self.channel = channel
        self.connecting: asyncio.Task[None] | None = None
        self._peers = peers
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[_Asked] = deque()
        self._is_ended = False
        self._last_due = 0.0
        self._unsent: list[bytes] = []
        self._scratch = bytearray(SCRATCH_BYTES)
        self._kept = 0
        self._frame: bytearray | None = None
        self._filled = 0

    # --- sending

    def ask(self, asked: _Asked, *, delay_ms: int) -> None:
        self._waiting.append(asked)
        loop = self._peers.loop
        due = max(loop.time() + delay_ms / 1000, self._last_due)  # a link that gets faster does not change the order
        if due > loop.time():
            self._last_due = due
            loop.call_at(due, self._send, asked.frame)
        else:
            self._send(asked.frame)

    def _send(self, frame: bytes) -> None:
        if self._is_ended:
            return
        if self._transport is None:
            self._unsent.append(frame)
        else:
            self._transport.write(frame)

    def pause(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing() and not self._transport.is_reading():
            self._transport.resume_reading()

    def end(self, reason: str, *, is_dead: bool = False) -> None:
        """Fail all pending requests after the end of the connection. `is_dead`: it was refused."""
        if self._is_ended:
            return
        self._is_ended = True
        self._peers.peer_connection_ended(self)
        if self._transport is not None:
            self._transport.abort()
        if self.connecting is not None and not self.connecting.done():
            self.connecting.cancel()
        waiting, self._waiting = self._waiting, deque()
        for asked in waiting:
            asked.fail(reason, is_dead=is_dead)

    # --- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._is_ended:
            transport.abort()
            return
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        unsent, self._unsent = self._unsent, []
        for frame in unsent:
            transport.write(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_ended:
            self._peers.peer_connection_lost(self)
        self.end(f"the connection to node {self.node} was closed")

    # --- receiving

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return memoryview(self._scratch)[self._kept :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._frame is not None:
            self._filled += nbytes
            if self._filled == len(self._frame):
                frame, self._frame = self._frame, None
                self._answer(memoryview(frame))
            return
        size, position = self._kept + nbytes, 0
        while size - position >= 4:
            length = int.from_bytes(self._scratch[position : position + 4], "big")
            if size - position - 4 < length:
                break
            self._answer(memoryview(bytes(memoryview(self._scratch)[position + 4 : position + 4 + length])))
            position += 4 + length
        rest = self._scratch[position:size]
        if len(rest) >= 4 and int.from_bytes(rest[:4], "big") + 4 > SCRATCH_BYTES:
            self._frame = bytearray(int.from_bytes(rest[:4], "big"))
            self._filled = len(rest) - 4
            self._frame[: self._filled] = rest[4:]
            self._kept = 0
        else:
            self._scratch[: len(rest)] = rest
            self._kept = len(rest)

    def eof_received(self) -> bool:
        if not self._is_ended:
            # Now, not in the loop's next turn: what clients ask meanwhile waits for what comes of it.
            self._peers.peer_connection_lost(self)
        return False

    def _answer(self, frame: memoryview) -> None:
        if self._waiting:
            self._waiting.popleft().answer_with(frame)


class _Knock(asyncio.Protocol):
    """A connection that only shows that a process listens."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class _LocalConnection(ClientConnection):
    """Stands for the connection in requests that a node makes to itself."""

    def __init__(self, log_limited: RateLimitedLog) -> None:
        self.client_host = "127.0.0.1"
        self._log_limited = log_limited

    @property
    def log_limited(self) -> RateLimitedLog:
        return self._log_limited

    @property
    def is_of_peer(self) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: the request stays unanswered, which its sender notices."""

    def abort(self) -> None:
        """Do nothing, as `close`."""


def _keep_encoded(api: ApiKey, version: int, frame: memoryview, position: int) -> bytes:
    return bytes(frame[position:])


def _bytes_of(parts: Parts) -> list[Any]:
    """Return the parts as bytes; file ranges are read, as they cannot be forwarded."""
    found: list[Any] = []
    for part in parts:
        found += part.buffers() if isinstance(part, Region) else [part]
    return found
