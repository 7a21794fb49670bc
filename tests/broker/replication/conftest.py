"""A few brokers' replica managers in one process, without sockets, threads or real time: every message is a step.

The pieces under test are the real ones: replica managers, logs on a file system in memory, the Fetch, Produce and
ListOffsets handlers, requests that are encoded and decoded. What is made up here is around them: the loop, whose
clock only moves when a test moves it; the wire, which a test can cut or shuffle; and a controller of a few lines.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.clock import ManualClock
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.faults import NO_FAULTS
from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.common.peers import PeerUnavailable
from broker_embedded.common.promises import Promise
from broker_embedded.common.types import TopicPartition
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.metadata.image import PartitionImage
from broker_embedded.metadata.records import (
    BrokerRegistrationChange,
    ChangePartition,
    CreatePartition,
    CreateTopic,
    MetadataRecord,
    RegisterBroker,
    ResourceType,
    SetConfig,
)
from broker_embedded.replication.fetch_session import FetchSessionCache
from broker_embedded.replication.leadership import AppendResult
from broker_embedded.replication.partition import Partition
from broker_embedded.replication.replica_manager import ReplicaManager
from broker_embedded.server.apis import alter_replica_log_dirs, describe_log_dirs, fetch, list_offsets, produce
from broker_embedded.server.requests.context import RequestContext
from broker_embedded.storage.log_manager import LogManager
from ottla_wire.protocol import ApiKey, ErrorCode, codec
from ottla_wire.protocol.message import Message
from ottla_wire.records.batch import iter_batches
from ottla_wire.records.compression import CompressionType
from ottla_wire.records.record import RecordData, decode_batch, encode_batch

TOPIC_ID = bytes(range(16))
T0 = TopicPartition("t", 0)
HANDLERS: Mapping[ApiKey, Callable[[RequestContext, Message], Any]] = {
    ApiKey.FETCH: fetch.handle,
    ApiKey.LIST_OFFSETS: list_offsets.handle,
    ApiKey.PRODUCE: produce.handle,
    ApiKey.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs.handle,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs.handle,
}
CONTROLLER = 0


class StepLoop:
    """What of an event loop is used here. Time is the clock's; nothing runs until `run`."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._ready: list[asyncio.Handle] = []
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._number = itertools.count()
        self.errors: list[BaseException] = []

    def get_debug(self) -> bool:
        return False

    def time(self) -> float:
        return self._clock.monotonic_ms() / 1000

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self)  # type: ignore[arg-type]
        self._ready.append(handle)
        return handle

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        due_ms = self._clock.monotonic_ms() + round(delay * 1000)
        handle = asyncio.TimerHandle(due_ms / 1000, callback, args, self)  # type: ignore[arg-type]
        heapq.heappush(self._timers, (due_ms, next(self._number), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context["exception"])

    def run(self) -> None:
        """Run what is ready or due, and what that makes ready."""
        while True:
            while self._timers and self._timers[0][0] <= self._clock.monotonic_ms():
                self._ready.append(heapq.heappop(self._timers)[2])
            if not self._ready:
                break
            ready, self._ready = self._ready, []
            for handle in ready:
                if not handle.cancelled():
                    handle._run()
        assert not self.errors, self.errors


class Wire:
    """Requests and answers under way, in order per connection. A cut link fails what is on it, and what comes."""

    def __init__(self, cluster: ReplicaCluster) -> None:
        self._cluster = cluster
        self._lines: dict[tuple[int, int], list[Callable[[], None]]] = {}
        self._open: dict[tuple[int, int], list[asyncio.Future[Message]]] = {}
        self.cut: set[tuple[int, int]] = set()
        self.sent: list[tuple[int, int, ApiKey, Message]] = []

    def request(self, source: int, target: int, api: ApiKey, version: int, body: Any) -> asyncio.Future[Message]:
        future: asyncio.Future[Message] = self._cluster.loop.create_future()
        data = codec.encode_request(api, version, body)
        self._open.setdefault((source, target), []).append(future)
        self.sent.append((source, target, api, codec.decode_request(api, version, memoryview(bytearray(data)), 0)))

        def arrive() -> None:
            request = codec.decode_request(api, version, memoryview(bytearray(data)), 0)
            self._cluster.serve(source, target, api, version, request, answer)

        def answer(response: Any) -> None:
            encoded = codec.encode_response(api, version, response)
            self._put(target, source, lambda: self._settle(source, target, api, version, encoded, future))

        self._put(source, target, arrive)
        return future

    def _put(self, source: int, target: int, step: Callable[[], None]) -> None:
        if {(source, target), (target, source)} & self.cut or not self._cluster.is_up(source, target):
            self.fail(source, target)
            return
        self._lines.setdefault((source, target), []).append(step)

    def _settle(
        self, source: int, target: int, api: ApiKey, version: int, encoded: bytes, future: asyncio.Future[Message]
    ) -> None:
        if not future.done():
            self._open[source, target].remove(future)
            future.set_result(codec.decode_response(api, version, memoryview(encoded), 0))

    def fail(self, one: int, other: int) -> None:
        """The connections between two nodes end: nobody knows what became of what was on them."""
        for pair in ((one, other), (other, one)):
            self._lines.pop(pair, None)
            for future in self._open.pop(pair, []):
                if not future.done():
                    future.set_exception(PeerUnavailable(f"{pair} is cut"))

    def busy(self) -> list[tuple[int, int]]:
        return [pair for pair, steps in self._lines.items() if steps]

    def step(self, pair: tuple[int, int]) -> None:
        """Deliver the oldest message from `pair[0]` to `pair[1]`."""
        steps = self._lines.get(pair)
        if steps:
            steps.pop(0)()


class Peers:
    """The wire as one node sees it: both `Peers` and `ControllerRequests`."""

    def __init__(self, wire: Wire, node: int) -> None:
        self._wire = wire
        self._node = node

    def send(self, *args: Any, channel: str = "", timeout_ms: int = 0) -> asyncio.Future[Message]:
        if len(args) == 3:
            args = (CONTROLLER, *args)
        return self._wire.request(self._node, *args)


class Node:
    """One broker's part in replication."""

    def __init__(self, cluster: ReplicaCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.fs = MemoryFileSystem(clock=cluster.clock)
        self.is_up = False
        self.applied = 0

    def start(self) -> None:
        cluster = self.cluster
        self.is_up = True
        self.applied = 0
        self.broker_epoch = -1
        self.logs = LogManager(cluster.dirs, fs=self.fs, clock=cluster.clock)
        self.logs.load_all()
        self.metadata = MetadataCache("c")
        peers = Peers(cluster.wire, self.node_id)
        self.replicas = ReplicaManager(
            node_id=self.node_id,
            config=cluster.config,
            clock=cluster.clock,
            loop=cluster.loop,  # type: ignore[arg-type]
            metadata=self.metadata,
            logs=self.logs,
            peers=peers,
            controller=peers,
            broker_epoch=lambda: self.broker_epoch,
        )
        self.broker = SimpleNamespace(
            node_id=self.node_id,
            replicas=self.replicas,
            logs=self.logs,
            metadata=self.metadata,
            config=cluster.config,
            clock=cluster.clock,
            loop=cluster.loop,
            faults=NO_FAULTS,
            authorization=None,
            quotas=None,
            fetch_sessions=FetchSessionCache(slots=100, clock=cluster.clock),
        )
        self.broker_epoch = cluster.register(self.node_id)
        self.replicas.on_registered()

    def stop(self, *, cleanly: bool = True, crash: Random | None = None) -> None:
        """Stop, die, or (with `crash`) lose power: what was not fsynced is gone, or a part of it."""
        self.is_up = False
        self.replicas.close()
        for other in (CONTROLLER, *self.cluster.nodes):
            self.cluster.wire.fail(self.node_id, other)
        if cleanly:
            self.logs.close()
        elif crash is not None:
            self.fs.crash(crash)
        else:
            self.fs.kill()

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        assert not self.is_up
        self.fs = MemoryFileSystem(clock=self.cluster.clock)

    def catch_up(self, upto: int | None = None) -> None:
        """Replay the metadata log."""
        history = self.cluster.history
        while self.applied < (len(history) if upto is None else min(upto, len(history))):
            records = history[self.applied]
            self.applied += 1
            self.metadata.replay(records, offset=self.applied, epoch=1, controller_id=CONTROLLER)

    def partition(self, number: int = 0) -> Partition:
        found = self.replicas.partition(TopicPartition("t", number))
        assert found is not None
        return found

    def values(self, number: int = 0) -> list[bytes | None]:
        """What the replica holds, from its log start to its end."""
        found: list[bytes | None] = []
        own = self.partition(number).log
        offset = own.log_start_offset
        while offset < own.log_end_offset:
            data = b"".join(own.read(offset, 1 << 20).buffers())
            for position, header in iter_batches(data):
                found += [record.value for record in decode_batch(data, position) if record.offset >= offset]
                offset = header.next_offset
        return found

    def append(self, *values: bytes, acks: int = -1, number: int = 0, timeout_ms: int = 60_000) -> list[AppendResult]:
        """Append one batch; the list gets the result when there is one."""
        results: list[AppendResult] = []
        self.replicas.append(
            TopicPartition("t", number), batch(*values), acks=acks, timeout_ms=timeout_ms, on_complete=results.append
        )
        return results


class ReplicaCluster:
    """Some nodes, the wire between them, and who decides who leads."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        racks: Mapping[int, str] | None = None,
        dirs: Sequence[str] = ("/data",),
        **settings: Any,
    ) -> None:
        self.clock = ManualClock()
        self.loop = StepLoop(self.clock)
        self.config = BrokerConfig.from_settings(settings)
        self.wire = Wire(self)
        self.cache = MetadataCache("c")
        self.history: list[Sequence[MetadataRecord]] = []
        self.refuse: Callable[[Message], ErrorCode] = lambda change: ErrorCode.NONE
        self.racks = dict(racks or {})
        self.dirs = list(dirs)
        self.tells_at_once = True
        self.nodes = {node_id: Node(self, node_id) for node_id in range(1, nodes + 1)}
        for node in self.nodes.values():
            node.start()
        self.settle()

    def __getitem__(self, node_id: int) -> Node:
        return self.nodes[node_id]

    def is_up(self, *nodes: int) -> bool:
        return all(node == CONTROLLER or self.nodes[node].is_up for node in nodes)

    # --- running

    def settle(self) -> None:
        """Deliver everything; fetches that wait for something to happen stay where they are."""
        for _ in range(100_000):
            self.loop.run()
            busy = self.wire.busy()
            if not busy:
                return
            for pair in busy:
                self.wire.step(pair)
        raise AssertionError("the cluster does not come to rest")

    def advance(self, ms: int, *, step_ms: int = 100) -> None:
        """Move time on, in steps, so that long polls end and start again as they do in life."""
        while ms > 0:
            self.clock.advance(min(ms, step_ms))
            ms -= step_ms
            self.settle()

    def serve(
        self, source: int, target: int, api: ApiKey, version: int, request: Message, answer: Callable[[Any], None]
    ) -> None:
        if target == CONTROLLER:
            answer(self._alter_partition(request))
            return
        broker: Any = self.nodes[target].broker
        connection: Any = SimpleNamespace(close=lambda: None)
        context = RequestContext(broker, connection, version, 0, f"broker-{source}")
        try:
            response = HANDLERS[api](context, request)
        except BrokerError as error:
            response = {"error_code": int(error.code), "responses": []}
        if isinstance(response, Promise):
            response.add_done_callback(lambda done: answer(done.result()))
        else:
            answer(response)

    def ask(self, node: int, api: ApiKey, version: int, body: Any) -> list[Message]:
        """What a client asks; the list gets the answer when there is one. Requests are decoded as the broker does."""
        answers: list[Message] = []
        request = codec.decode_request(api, version, memoryview(bytearray(codec.encode_request(api, version, body))), 0)

        def answer(response: Any) -> None:
            encoded = codec.encode_response(api, version, response)
            answers.append(codec.decode_response(api, version, memoryview(encoded), 0))

        self.serve(-1, node, api, version, request, answer)
        return answers

    def fetch(self, node: int, offset: int, *, version: int = 12, **changes: Any) -> list[Message]:
        """A consumer's fetch of the topic's first partition; the list gets the answer."""
        partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        topic = {"topic": "t"} if version < 13 else {"topic_id": TOPIC_ID}
        body = {"max_wait_ms": 0, "min_bytes": 1, "topics": [{**topic, "partitions": [partition]}], **changes}
        return self.ask(node, ApiKey.FETCH, version, body)

    # --- the controller

    @property
    def state(self) -> PartitionImage:
        found = self.cache.image.partition(T0)
        assert found is not None
        return found

    def commit(self, *records: MetadataRecord) -> None:
        self.history.append(records)
        self.cache.replay(records, offset=len(self.history), epoch=1, controller_id=CONTROLLER)
        if self.tells_at_once:
            self.tell()

    def tell(self) -> None:
        for node in self.nodes.values():
            if node.is_up:
                node.catch_up()

    def register(self, node_id: int) -> int:
        epoch = len(self.history) + 1
        self.commit(
            RegisterBroker(
                broker_id=node_id,
                incarnation_id=bytes(16),
                broker_epoch=epoch,
                host="h",
                port=node_id,
                rack=self.racks.get(node_id),
            )
        )
        return epoch

    def fence(self, node_id: int) -> None:
        epoch = self.cache.image.brokers[node_id].epoch
        self.commit(BrokerRegistrationChange(broker_id=node_id, broker_epoch=epoch, fenced=True))

    def create(
        self, replicas: Sequence[int] = (1, 2, 3), *, isr: Sequence[int] | None = None, **configs: object
    ) -> None:
        """Topic `t` with one partition, led by the first replica."""
        self.commit(
            CreateTopic(name="t", topic_id=TOPIC_ID),
            *(
                SetConfig(
                    resource_type=ResourceType.TOPIC,
                    resource_name="t",
                    name=name.replace("_", "."),
                    value=str(value),
                )
                for name, value in configs.items()
            ),
            CreatePartition(
                topic_id=TOPIC_ID,
                partition=0,
                replicas=tuple(replicas),
                isr=tuple(replicas if isr is None else isr),
                leader=replicas[0],
            ),
        )
        self.settle()

    def change(self, **changes: Any) -> None:
        self.commit(ChangePartition(topic_id=TOPIC_ID, partition=0, **changes))

    def elect(self, leader: int, *, isr: Sequence[int] | None = None) -> None:
        """A clean election, unless the ISR given is another one than there was."""
        self.change(leader=leader, isr=None if isr is None else tuple(isr))

    def _alter_partition(self, request: Message) -> dict[str, Any]:
        topics = []
        for topic in request.topics:
            partitions = []
            for wanted in topic.partitions:
                error = self.refuse(wanted) or self._problem(request.broker_id, wanted)
                if error is ErrorCode.NONE:
                    self.change(isr=tuple(each.broker_id for each in wanted.new_isr_with_epochs))
                partitions.append(
                    {
                        "partition_index": wanted.partition_index,
                        "error_code": int(error),
                        "leader_id": self.state.leader,
                        "leader_epoch": self.state.leader_epoch,
                        "isr": self.state.isr,
                        "leader_recovery_state": 0,
                        "partition_epoch": self.state.partition_epoch,
                    }
                )
            topics.append({"topic_id": topic.topic_id, "partitions": partitions})
        return {"error_code": 0, "topics": topics}

    def _problem(self, broker_id: int, wanted: Message) -> ErrorCode:
        state = self.state
        if wanted.leader_epoch < state.leader_epoch or broker_id != state.leader:
            return ErrorCode.FENCED_LEADER_EPOCH
        if wanted.partition_epoch < state.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        for each in wanted.new_isr_with_epochs:
            broker = self.cache.image.brokers.get(each.broker_id)
            if broker is None or broker.fenced or each.broker_epoch not in (-1, broker.epoch):
                return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE

    def close(self) -> None:
        for node in self.nodes.values():
            if node.is_up:
                node.stop()


def batch(*values: bytes, **options: Any) -> bytes:
    records = [
        RecordData(offset=index, timestamp_ms=1_700_000_000_000, key=None, value=value, headers=())
        for index, value in enumerate(values)
    ]
    return bytes(encode_batch(records, compression=CompressionType.NONE, **options))


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., ReplicaCluster]]:
    """A function that starts nodes; they are stopped after the test."""
    started: list[ReplicaCluster] = []

    def make(nodes: int = 3, **settings: Any) -> ReplicaCluster:
        started.append(ReplicaCluster(nodes, **settings))
        return started[-1]

    yield make
    for cluster in started:
        cluster.close()
