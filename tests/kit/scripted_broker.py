"""A broker that does what a test tells it: real sockets and bytes, scripted answers."""

from __future__ import annotations

import socket
import ssl
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from ottla_wire.protocol import ApiKey, ErrorCode, codec, headers
from ottla_wire.records import decode_batch, iter_batches, patch_batch

VERSIONS = {
    ApiKey.PRODUCE: (3, 9),
    ApiKey.FETCH: (4, 12),
    ApiKey.LIST_OFFSETS: (1, 7),
    ApiKey.METADATA: (0, 12),
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.INIT_PRODUCER_ID: (0, 4),
    ApiKey.FIND_COORDINATOR: (0, 3),
    ApiKey.OFFSET_COMMIT: (2, 8),
    ApiKey.OFFSET_FETCH: (1, 7),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
}


Answer: TypeAlias = dict[str, Any]
Healthy: TypeAlias = Callable[[Any], Answer]


class HangUp(Exception):
    """Raised by a script: close the connection instead of answering."""


class ScriptedBroker:
    """One process, any number of broker ids: all addresses lead here. Logs are lists of batches per partition.

    `script[api]` is a list of functions used up one per request: each gets the decoded request and a function that does
    what a healthy broker would, and returns the answer. Requests are kept in `requests`.
    """

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self.topics: dict[str, int] = {}  # name -> partition count
        self.ports: dict[int, int] = {}  # of broker ids that are somewhere else
        self.leaders: dict[tuple[str, int], int] = {}  # (topic, partition) -> node id, 1 by default
        self.logs: defaultdict[tuple[str, int], bytes] = defaultdict(bytes)
        self.log_start: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.sequences: dict[tuple[str, int], int] = {}  # of the next batch, per partition
        self.committed: dict[tuple[str, int], int] = {}
        self.script: defaultdict[ApiKey, list[Callable[[Any, Healthy], Answer | None]]] = defaultdict(list)
        self.requests: list[tuple[ApiKey, Any]] = []
        self.tls: ssl.SSLContext | None = None  # given: talk TLS
        self.mangle: Callable[[ApiKey, bytes], bytes] = lambda api, frame: (
            frame
        )  # of the request's API and the whole frame: what is sent instead
        self.threads: list[threading.Thread] = []
        self.connections: list[socket.socket] = []
        self.closing = False
        self._start(self._accept)

    # Scripting

    def add_topic(self, name: str, partitions: int = 1) -> None:
        self.topics[name] = partitions

    def append(self, topic: str, partition: int, batch: bytes) -> int:
        end = self.end(topic, partition)
        data = bytearray(batch)
        patch_batch(data, 0, end, 0)
        self.logs[topic, partition] += bytes(data)
        return end

    def end(self, topic: str, partition: int) -> int:
        last = [h for _, h in iter_batches(self.logs[topic, partition])]
        return last[-1].next_offset if last else self.log_start[topic, partition]

    def records(self, topic: str, partition: int) -> list[Any]:
        data = self.logs[topic, partition]
        return [record for position, _ in iter_batches(data) for record in decode_batch(data, position)]

    def count(self, api: ApiKey) -> int:
        return sum(1 for key, _ in self.requests if key == api)

    def close(self) -> None:
        self.closing = True
        for waiting in [self.listener, *self.connections]:
            try:
                waiting.shutdown(socket.SHUT_RDWR)  # closing alone does not wake a thread that waits in it
            except OSError:
                pass
        self.listener.close()
        for thread in self.threads:
            thread.join(5)

    # Serving

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self.closing:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        if self.tls is not None:
            try:
                connection = self.tls.wrap_socket(connection, server_side=True)
            except OSError:
                return
            self.connections.append(connection)
        with connection:
            try:
                while prefix := _exactly(connection, 4):
                    frame = _exactly(connection, int.from_bytes(prefix, "big"))
                    head = headers.decode_request_header(frame)
                    api = ApiKey(head.api_key)
                    request = codec.decode_request(api, head.api_version, frame, head.body_offset)
                    self.requests.append((api, request))
                    answer = self._answer(api, request)
                    if answer is not None:
                        parts = headers.encode_response_frame(api, head.api_version, head.correlation_id, answer)
                        connection.sendall(self.mangle(api, b"".join(cast(list[bytes], parts))))
            except (HangUp, OSError):
                return

    def _answer(self, api: ApiKey, request: Any) -> Answer | None:
        healthy: Healthy = getattr(self, f"_{api.name.lower()}")
        steps = self.script[api]
        return steps.pop(0)(request, healthy) if steps else healthy(request)

    def _api_versions(self, request: Any) -> Answer:
        keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in VERSIONS.items()]
        return {"error_code": 0, "api_keys": keys}

    def _metadata(self, request: Any) -> Answer:
        wanted = list(self.topics) if request.topics is None else [t.name for t in request.topics]
        nodes = {1, *self.leaders.values()} - {-1}
        topics = []
        for name in wanted:
            if name not in self.topics and request.allow_auto_topic_creation:
                self.add_topic(name)
            code = ErrorCode.NONE if name in self.topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions = [
                {"partition_index": p, "leader_id": self.leaders.get((name, p), 1)}
                for p in range(self.topics.get(name, 0))
            ]
            topics.append({"name": name, "error_code": code, "partitions": partitions})
        brokers = [
            {"node_id": node, "host": "127.0.0.1", "port": self.ports.get(node, self.port)} for node in sorted(nodes)
        ]
        return {"brokers": brokers, "topics": topics}

    def _list_offsets(self, request: Any) -> Answer:
        def offset(topic: str, entry: Any) -> tuple[int, int]:
            if entry.timestamp == -2:
                return self.log_start[topic, entry.partition_index], -1
            if entry.timestamp == -1:
                return self.end(topic, entry.partition_index), -1
            younger = [r for r in self.records(topic, entry.partition_index) if r.timestamp_ms >= entry.timestamp]
            return (younger[0].offset, younger[0].timestamp_ms) if younger else (-1, -1)

        return {
            "topics": [
                {
                    "name": t.name,
                    "partitions": [
                        dict(zip(("offset", "timestamp"), offset(t.name, p), strict=True))
                        | {"partition_index": p.partition_index, "error_code": 0}
                        for p in t.partitions
                    ],
                }
                for t in request.topics
            ]
        }

    def _fetch(self, request: Any) -> Answer:
        def partition(topic: str, entry: Any) -> Answer:
            data = self.logs[topic, entry.partition]
            end = self.end(topic, entry.partition)
            start = self.log_start[topic, entry.partition]
            body = {"partition_index": entry.partition, "error_code": 0, "high_watermark": end, "records": b""}
            if not start <= entry.fetch_offset <= end:
                return body | {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE}
            for position, header in iter_batches(data):
                if header.last_offset >= entry.fetch_offset:
                    # A whole first batch, whatever the limit (KIP-74); then cut where the limit is, as brokers do.
                    size = max(header.size_in_bytes, entry.partition_max_bytes)
                    return body | {"records": data[position : position + size]}
            return body

        return {
            "error_code": 0,
            "responses": [
                {"topic": t.topic, "partitions": [partition(t.topic, p) for p in t.partitions]} for t in request.topics
            ],
        }

    def _produce(self, request: Any) -> Answer:
        return {
            "responses": [
                {
                    "name": t.name,
                    "partition_responses": [
                        {"index": p.index} | self._append_checked(t.name, p.index, bytes(p.records))
                        for p in t.partition_data
                    ],
                }
                for t in request.topic_data
            ]
        }

    def _append_checked(self, topic: str, partition: int, batch: bytes) -> Answer:
        """What an idempotent append does: in sequence, again, or out of order. As in Kafka, any number is the first."""
        ((_, header),) = iter_batches(batch)
        expected = self.sequences.setdefault((topic, partition), header.base_sequence)
        if header.producer_id >= 0 and header.base_sequence < expected:
            return {"error_code": ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "base_offset": -1}
        if header.producer_id >= 0 and header.base_sequence > expected:
            return {"error_code": ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "base_offset": -1}
        self.sequences[topic, partition] += header.record_count
        return {"error_code": 0, "base_offset": self.append(topic, partition, batch)}

    def _init_producer_id(self, request: Any) -> Answer:
        return {"error_code": 0, "producer_id": 77, "producer_epoch": 0}

    def _describe_configs(self, request: Any) -> Answer:
        entries = [{"name": "max.message.bytes", "value": "100000"}]
        return {"results": [{"error_code": 0, "resource_type": 2, "resource_name": "", "configs": entries}]}

    def _find_coordinator(self, request: Any) -> Answer:
        return {"error_code": 0, "node_id": 1, "host": "127.0.0.1", "port": self.port}

    def _offset_commit(self, request: Any) -> Answer:
        for t in request.topics:
            self.committed |= {(t.name, p.partition_index): p.committed_offset for p in t.partitions}
        return {
            "topics": [
                {"name": t.name, "partitions": [{"partition_index": p.partition_index} for p in t.partitions]}
                for t in request.topics
            ]
        }

    def _offset_fetch(self, request: Any) -> Answer:
        return {
            "topics": [
                {
                    "name": t.name,
                    "partitions": [
                        {"partition_index": p, "committed_offset": self.committed.get((t.name, p), -1)}
                        for p in t.partition_indexes
                    ],
                }
                for t in request.topics
            ]
        }

    def _sasl_handshake(self, request: Any) -> Answer:
        return {"error_code": 0, "mechanisms": ["PLAIN"]}

    def _sasl_authenticate(self, request: Any) -> Answer:
        right = bytes(request.auth_bytes) == b"\0ann\0secret"
        code = ErrorCode.NONE if right else ErrorCode.SASL_AUTHENTICATION_FAILED
        return {"error_code": code, "error_message": None if right else "wrong password", "auth_bytes": b""}


def _exactly(connection: socket.socket, size: int) -> bytes:
    """The next `size` bytes, fewer at the end. Nothing is read ahead, so `select` tells of another request."""
    read = b""
    while len(read) < size and (piece := connection.recv(size - len(read))):
        read += piece
    return read
