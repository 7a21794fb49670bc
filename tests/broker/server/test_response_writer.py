"""Large responses go from the file to the socket, whatever the client's pace, in order and unchanged."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker_embedded.common.os_filesystem import OsFileSystem
from broker_embedded.server.net.response_writer import REGION_PIECE, ResponseWriter
from broker_embedded.storage.file_pool import FilePool, PooledFile
from broker_embedded.storage.log_slice import LogSlice
from ottla_wire.protocol import ApiKey

CONTENT = Random(1).randbytes(3_000_000)


@pytest.fixture
def stored(tmp_path: Path) -> PooledFile:
    file = PooledFile(FilePool(OsFileSystem(fsync=False)), str(tmp_path / "0.log"))
    file.write_at(CONTENT, 0)
    return file


class Receiver(asyncio.Protocol):
    """The accepting side: only what the writer needs of a connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.writer = ResponseWriter(transport, transport.get_extra_info("socket").fileno())
        self.largest_buffer = 0

    def pause_writing(self) -> None:
        self.largest_buffer = max(self.largest_buffer, self.transport.get_write_buffer_size())
        self.writer.is_paused = True

    def resume_writing(self) -> None:
        self.writer.resume()


async def sent_to(reads: Callable[[socket.socket], Any], *responses: list[Any]) -> tuple[Any, Receiver]:
    """Write `responses` to a connection; returns what `reads` made of its other end."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(20)
    transport, protocol = await loop.create_connection(Receiver, sock=ours)
    with theirs:
        for response in responses:
            protocol.writer.write(response)
        try:
            return await asyncio.to_thread(reads, theirs), protocol
        finally:
            transport.abort()


def reader_of(size: int) -> Callable[[socket.socket], bytes]:
    def read(client: socket.socket) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += client.recv(100_000)
        return bytes(data)

    return read


async def test_buffers_and_file_ranges_arrive_in_order(stored: PooledFile) -> None:
    first = [b"head", LogSlice(stored, 100, 1_500_000, 0), bytearray(b"between"), LogSlice(stored, 0, 700_000, 0)]
    second = [b"x" * 50_000, LogSlice(stored, 2_000_000, 1_000_000, 0), memoryview(b"tail")]
    wanted = b"head" + CONTENT[100:1_500_100] + b"between" + CONTENT[:700_000]
    wanted += b"small" + b"x" * 50_000 + CONTENT[2_000_000:] + b"tail"
    received, _ = await sent_to(reader_of(len(wanted)), first, [b"small"], second)
    assert received == wanted


async def test_a_client_that_reads_slowly_costs_a_bounded_buffer(stored: PooledFile) -> None:
    response = [b"head", *(LogSlice(stored, 0, 3_000_000, 0) for _ in range(20))]
    received, protocol = await sent_to(reader_of(4 + 20 * 3_000_000), response)
    assert received == b"head" + CONTENT * 20
    assert 0 < protocol.largest_buffer <= 2 * REGION_PIECE


async def test_bytes_are_not_read_into_memory_while_the_socket_takes_them(
    stored: PooledFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    monkeypatch.setattr(PooledFile, "read_at", lambda self, size, position: reads.append(size))
    response = [b"head", LogSlice(stored, 0, 20_000, 0), b"x" * 20_000]
    received, _ = await sent_to(reader_of(40_004), response)
    assert received == b"head" + CONTENT[:20_000] + b"x" * 20_000
    assert reads == []


async def test_a_file_that_ends_too_early_is_an_error_and_not_a_response_with_a_hole(stored: PooledFile) -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        transport, protocol = await loop.create_connection(Receiver, sock=ours)
        with pytest.raises(OSError, match="ends at 3000000"):
            protocol.writer.write([b"x" * 40_000, LogSlice(stored, 3_000_000, 10, 0)])
        transport.abort()


@pytest.mark.skipif(not hasattr(os, "sendfile"), reason="the platform has no sendfile")
def test_a_large_fetch_is_sent_by_the_kernel_and_a_usual_one_is_read(
    client: Any, cluster: Any, make_batch: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    send = LogSlice.send_to
    monkeypatch.setattr(LogSlice, "send_to", lambda self, fd: (sizes.append(self.size), send(self, fd))[1])
    cluster.create_topic("t", partitions=2)
    large, usual = make_batch(b"x" * 1_000_000), make_batch(b"y" * 300_000)
    client.produce("t", large)
    client.produce("t", large)
    client.produce("t", usual, partition=1)
    assert len(client.fetch("t", partition=1).records) == len(usual)
    assert sizes == []
    records = bytes(client.fetch("t", partition_max_bytes=4_000_000).records)
    assert records[61 : len(large)] == records[len(large) + 61 :] == large[61:]
    assert sizes[0] == 2 * len(large)


def test_a_response_larger_than_the_sockets_take_is_whole_and_the_broker_serves_others_meanwhile(
    client: Any, cluster: Any, connect: Callable[[], Any], make_batch: Callable[..., bytes]
) -> None:
    cluster.create_topic("t", partitions=30)
    batch = make_batch(Random(2).randbytes(900_000))
    for partition in range(30):
        client.produce("t", batch, partition=partition)
    body = client.fetch_body("t")
    wanted = body["topics"][0]["partitions"][0]
    body["topics"][0]["partitions"] = [{**wanted, "partition": partition} for partition in range(30)]
    client.socket.settimeout(30)
    client.send(ApiKey.FETCH, 11, body)
    assert connect().call(ApiKey.API_VERSIONS, 2, {}).error_code == 0
    _, response = client.receive()
    partitions = response.responses[0].partitions
    assert [bytes(each.records)[61:] == batch[61:] for each in partitions] == [True] * 30
