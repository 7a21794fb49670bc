"""A TCP proxy between one client and the brokers, whose connections can be cut, stalled, or made deaf.

Clients learn the brokers' addresses from answers, so the proxy puts its own ports into those (Metadata, FindCoordinator
and DescribeCluster). Everything else passes byte for byte. One `Proxies` serves all links of a round on one event loop
in a thread of its own; its methods may be called from any thread.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from frame_reader import FrameReader

from ottla_wire.protocol import ApiKey
from ottla_wire.protocol.codec import decode_response
from ottla_wire.protocol.headers import decode_request_header, decode_response_header, encode_response_frame

T = TypeVar("T")

_NAMING = frozenset({ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER})
_CHUNK = 65_536
_LARGEST_FRAME = 256 * 1024 * 1024


class Proxies:
    """All links, and the thread they live in."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._brokers = [int(server.rpartition(":")[2]) for server in bootstrap_servers.split(",")]
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()
        self._links: list[Link] = []

    def link(self, name: str) -> Link:
        """A new way to the brokers."""
        link = Link(name, self)
        self.call(link.open(self._brokers))
        self._links.append(link)
        return link

    def close(self) -> None:
        for link in self._links:
            self.call(link.close())
        self.call(self._settle())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _settle(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Link:
    """One client's way to the brokers: a listening port for each of them."""

    def __init__(self, name: str, proxies: Proxies) -> None:
        self.name = name
        self._proxies = proxies
        self._ports: dict[int, int] = {}
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_open: asyncio.Event | None = None
        self._is_deaf = False

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    # Faults, from any thread

    def cut(self) -> int:
        """Reset all connections. Returns how many there were."""
        return self._proxies.call(self._cut())

    def go_deaf(self) -> None:
        """From now on the brokers' answers are swallowed. End it with `cut`."""
        self._proxies.call(self._set_deaf())

    def stall(self) -> None:
        """From now on nothing passes, in either direction; connections stay open. End it with `resume`."""
        self._proxies.call(self._set_open(False))

    def resume(self) -> None:
        self._proxies.call(self._set_open(True))

    # On the loop

    async def open(self, brokers: list[int]) -> None:
        self._is_open = asyncio.Event()
        self._is_open.set()
        for broker in brokers:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, broker: int = broker) -> None:
                await self._serve(broker, reader, writer)

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self._servers.append(server)
            self._ports[broker] = server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        await self._cut()

    async def _cut(self) -> int:
        self._is_deaf = False
        writers = list(self._writers)
        self._writers.clear()
        for writer in writers:
            writer.transport.abort()
        return len(writers) // 2

    async def _set_deaf(self) -> None:
        self._is_deaf = True

    async def _set_open(self, is_open: bool) -> None:
        assert self._is_open is not None
        if is_open:
            self._is_open.set()
        else:
            self._is_open.clear()

    async def _serve(self, broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._is_open is not None
        self._writers.add(writer)
        to_broker: asyncio.StreamWriter | None = None
        try:
            await self._is_open.wait()
            from_broker, to_broker = await asyncio.open_connection("127.0.0.1", broker)
            self._writers.add(to_broker)
            if writer.transport.is_closing():
                return
            asked: dict[int, tuple[ApiKey, int]] = {}
            ways = [
                asyncio.create_task(self._requests(reader, to_broker, asked)),
                asyncio.create_task(self._answers(from_broker, writer, asked)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # A broker or a client that is gone: its other side is closed below.
        finally:
            for one in (writer, to_broker):
                if one is not None:
                    self._writers.discard(one)
                    one.transport.abort()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, tuple[ApiKey, int]]
    ) -> None:
        assert self._is_open is not None
        frames = FrameReader(_LARGEST_FRAME)
        while data := await reader.read(_CHUNK):
            await self._is_open.wait()
            for frame in frames.feed(data):
                header = decode_request_header(frame)
                if header.api_key in _NAMING:
                    asked[header.correlation_id] = ApiKey(header.api_key), header.api_version
            writer.write(data)
            await writer.drain()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, tuple[ApiKey, int]]
    ) -> None:
        assert self._is_open is not None
        frames = FrameReader(_LARGEST_FRAME)
        while data := await reader.read(_CHUNK):
            await self._is_open.wait()
            for frame in frames.feed(data):
                if not self._is_deaf:
                    for part in self._own_ports(frame, asked):
                        writer.write(part)
            await writer.drain()

    def _own_ports(self, frame: bytes, asked: dict[int, tuple[ApiKey, int]]) -> list[Any]:
        (correlation_id,) = struct.unpack_from(">i", frame)
        question = asked.pop(correlation_id, None)
        if question is None:
            return [struct.pack(">i", len(frame)), frame]
        api_key, version = question
        _, body_at = decode_response_header(api_key, version, frame)
        body = decode_response(api_key, version, frame, body_at).to_dict()
        for named in (body, *body.get("brokers", ()), *body.get("coordinators", ())):
            if named.get("port") in self._ports:
                named["port"] = self._ports[named["port"]]
        return encode_response_frame(api_key, version, correlation_id, body)
