"""A client that speaks the wire protocol frame by frame."""

from __future__ import annotations

import socket
from typing import Any

from ottla_wire.protocol import ApiKey, codec, headers
from ottla_wire.protocol.message import Message


class WireClient:
    """One connection. `call` sends a request and reads its response; `send` and `receive` take them apart."""

    def __init__(self, bootstrap_servers: str, *, timeout_s: float = 10, client_id: str = "wire") -> None:
        host, port = bootstrap_servers.split(",")[0].split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id = client_id
        self._next_id = 1
        self._sent: dict[int, tuple[ApiKey, int]] = {}

    def send(self, api: ApiKey, version: int, body: dict[str, Any]) -> int:
        correlation_id = self._next_id
        self._next_id += 1
        self._sent[correlation_id] = (api, version)
        self.socket.sendall(headers.encode_request_frame(api, version, correlation_id, self.client_id, body))
        return correlation_id

    def receive(self) -> tuple[int, Message]:
        """The next response, whatever it answers: (correlation id, body)."""
        frame = self.receive_frame()
        correlation_id = int.from_bytes(frame[:4], "big")
        api, version = self._sent.pop(correlation_id)
        _, position = headers.decode_response_header(api, version, frame)
        return correlation_id, codec.decode_response(api, version, frame, position)

    def call(self, api: ApiKey, version: int, body: dict[str, Any]) -> Message:
        correlation_id = self.send(api, version, body)
        answered, message = self.receive()
        assert answered == correlation_id
        return message

    def receive_frame(self) -> bytes:
        size = int.from_bytes(self._read(4), "big")
        return self._read(size)

    def is_closed_by_peer(self) -> bool:
        """Wait for the end of the stream; bytes before it are dropped."""
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionResetError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return bytes(data)

    # --- the two requests that every test needs

    def produce(self, topic: str, records: bytes, *, partition: int = 0, acks: int = -1, version: int = 9) -> Message:
        """Append one batch; returns the partition's response."""
        body = {
            "acks": acks,
            "timeout_ms": 5_000,
            "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
        }
        response = self.call(ApiKey.PRODUCE, version, body)
        answer: Message = response.responses[0].partition_responses[0]
        return answer

    def fetch_body(self, topic: str, offset: int = 0, *, partition: int = 0, **changes: Any) -> dict[str, Any]:
        """A Fetch request for one partition, version 4 to 12."""
        per_partition = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1_048_576}
        for name in ("partition_max_bytes", "current_leader_epoch", "last_fetched_epoch"):
            if name in changes:
                per_partition[name] = changes.pop(name)
        return {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 52_428_800,
            "topics": [{"topic": topic, "partitions": [per_partition]}],
            **changes,
        }

    def fetch(self, topic: str, offset: int = 0, *, version: int = 11, **changes: Any) -> Message:
        """Fetch one partition; returns the partition's response."""
        response = self.call(ApiKey.FETCH, version, self.fetch_body(topic, offset, **changes))
        answer: Message = response.responses[0].partitions[0]
        return answer
