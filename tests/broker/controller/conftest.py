"""Nodes with a controller, a broker's life and the real APIs, in simulated time: no socket, no disk, no waiting.

The quorum is a double: one log that all nodes share, whose leader the test names, and whose commits take a moment.
Requests go through the real encoder and dispatcher; a node can be cut off from the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pytest

from broker_embedded.cluster.simulation.loop import SimulatedClock, SimulatedLoop
from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.faults import NO_FAULTS
from broker_embedded.common.peers import PeerUnavailable
from broker_embedded.common.promises import Promise
from broker_embedded.controller.commits import CommittedBatch
from broker_embedded.controller.controller import Controller
from broker_embedded.controller.requests import NewTopic
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.metadata.image import PartitionImage
from broker_embedded.metadata.records import MetadataRecord
from broker_embedded.server import apis as apis
from broker_embedded.server.life.broker_lifecycle import BrokerLifecycle
from broker_embedded.server.peers.controller_channel import ControllerChannel
from broker_embedded.server.peers.topic_creation import TopicCreation
from broker_embedded.server.peers.unreachable_leaders import UnreachableLeaders
from broker_embedded.server.requests.dispatcher import RequestDispatcher
from ottla_wire.protocol import ApiKey, ErrorCode, codec, headers
from ottla_wire.protocol.message import Message

LATENCY_S = 0.001


class SharedLog:
    """The metadata log of a quorum whose elections the test holds. Appends commit one latency later, in order."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.leader_id = -1
        self.epoch = 0
        self.batches: list[CommittedBatch] = []
        self.members: dict[int, NodeQuorum] = {}
        self._waiting: list[tuple[Sequence[MetadataRecord], Callable[[BrokerError | None], None], int]] = []

    def lead(self, node: int) -> None:
        """An election: appends under way are lost, the new leader starts with an empty batch of its own."""
        waiting, self._waiting = self._waiting, []
        for _, on_done, _ in waiting:
            on_done(BrokerError(ErrorCode.NOT_CONTROLLER, "leadership was lost"))
        self.epoch += 1
        self.leader_id = node
        for member in self.members.values():
            member.tell(False)
        if node >= 0:
            self._commit(())
            self.members[node].tell(True)

    def append(self, records: Sequence[MetadataRecord], on_done: Callable[[BrokerError | None], None]) -> None:
        entry = (records, on_done, self.epoch)
        self._waiting.append(entry)
        self.loop.call_later(LATENCY_S, self._replicated, entry)

    def _replicated(self, entry: Any) -> None:
        if entry in self._waiting:
            self._waiting.remove(entry)
            self._commit(entry[0])
            entry[1](None)

    def _commit(self, records: Sequence[MetadataRecord]) -> None:
        last = self.batches[-1].last_offset if self.batches else -1
        self.batches.append(CommittedBatch(records, last + max(len(records), 1), self.epoch))
        for node, member in self.members.items():
            if node == self.leader_id:
                member.catch_up()
            else:
                self.loop.call_later(LATENCY_S, member.catch_up)


class NodeQuorum:
    """One node's view of the shared log. `lags`: nothing new is delivered."""

    def __init__(self, node: int, log: SharedLog) -> None:
        self.node = node
        self.log = log
        self.lags = False
        self._next = 0
        self._subscribers: list[Callable[[CommittedBatch], None]] = []
        self._listeners: list[Callable[[bool, int], None]] = []
        log.members[node] = self

    @property
    def leader_id(self) -> int:
        return self.log.leader_id

    @property
    def epoch(self) -> int:
        return self.log.epoch

    @property
    def is_leader(self) -> bool:
        return self.log.leader_id == self.node

    def silence_of(self, node: int) -> int:
        return 0

    def append(self, records: Sequence[MetadataRecord], on_done: Callable[[BrokerError | None], None]) -> None:
        assert self.is_leader
        self.log.append(records, on_done)

    def subscribe(self, subscriber: Callable[[CommittedBatch], None]) -> None:
        for batch in self.log.batches[: self._next]:
            subscriber(batch)
        self._subscribers.append(subscriber)

    def add_leadership_listener(self, listener: Callable[[bool, int], None]) -> None:
        self._listeners.append(listener)
        if self.is_leader:
            listener(True, self.epoch)

    def forget_process(self) -> None:
        """What the process before this one had subscribed to is gone with it."""
        self._subscribers.clear()
        self._listeners.clear()

    def tell(self, is_leader: bool) -> None:
        for listener in self._listeners:
            listener(is_leader, self.epoch)

    def catch_up(self) -> None:
        while not self.lags and self._next < len(self.log.batches):
            batch = self.log.batches[self._next]
            self._next += 1
            for subscriber in self._subscribers:
                subscriber(batch)


class Node:
    """What the dispatcher and the APIs under test need of a broker."""

    faults = NO_FAULTS
    authorization = None
    quotas = None
    static_settings: frozenset[str] = frozenset()

    def __init__(self, world: World, node: int, *, rack: str | None, log_dirs: Sequence[bytes]) -> None:
        self.world = world
        self.node_id = node
        self.loop = world.loop
        self.config = self.static_config = world.config
        self.is_running = True
        self.quorum = world.log.members.get(node) or NodeQuorum(node, world.log)
        self.quorum.forget_process()
        self.metadata = MetadataCache("c")
        self.quorum.subscribe(self._replay)
        self.peers = NodePeers(world, node)
        self.controller = Controller(
            cluster_id="c",
            quorum=self.quorum,  # type: ignore[arg-type]  # it takes no part in raft
            config=world.config,
            random=world.random,
            loop=world.loop,
            clock=world.clock,
            death_probe=self.peers,
        )
        self.unreachable_leaders = UnreachableLeaders(
            probe=self.peers, metadata=self.metadata, loop=world.loop, clock=world.clock
        )
        self.dispatcher = RequestDispatcher(self)  # type: ignore[arg-type]
        self.channel = ControllerChannel(
            peers=self.peers,
            quorum=self.quorum,
            loop=world.loop,
            random=world.random,
            attempt_timeout_ms=world.config.broker_session_timeout_ms // 2,
        )
        self.topics = TopicCreation(
            controller=self.channel, metadata=self.metadata, config=lambda: world.config, loop=world.loop
        )
        self.life = BrokerLifecycle(
            node_id=node,
            host="localhost",
            port=9000 + node,
            controller=self.channel,
            metadata=self.metadata,
            config=world.config,
            loop=world.loop,
            random=world.random,
            rack=rack,
            log_dirs=log_dirs,
        )

    def _replay(self, batch: CommittedBatch) -> None:
        self.metadata.replay(
            batch.records, offset=batch.last_offset, epoch=batch.epoch, controller_id=self.quorum.leader_id
        )

    def kill(self) -> None:
        """The process is gone: no goodbye, no answer. The others see its connections end."""
        self.is_running = False
        self.life.close()
        self.channel.close()
        self.controller.close()
        for other in self.world.nodes.values():
            if other is not self and self.world.is_connected(self.node_id, other.node_id):
                self.loop.call_later(LATENCY_S, other.controller.deaths.on_connection_closed, self.peers.connection)


class _Connection:
    client_host = "127.0.0.1"
    client_software = ("", "")

    def close(self) -> None: ...

    def abort(self) -> None: ...


class NodePeers:
    """Requests to the nodes' dispatchers, with a latency; silence from who is cut off, refusal from who is dead."""

    def __init__(self, world: World, source: int) -> None:
        self.world = world
        self.client_id = f"broker-{source}" if source else "client"
        self.source = source
        self.connection = _Connection()

    def send(
        self,
        node: int,
        api: ApiKey,
        version: int,
        body: Mapping[str, Any],
        *,
        channel: str = "",
        timeout_ms: int = 30_000,
    ) -> asyncio.Future[Message]:
        return self._ask(node, api, version, body, timeout_ms, codec.decode_response)

    def send_encoded(
        self,
        node: int,
        api: ApiKey,
        version: int,
        body: bytes,
        *,
        channel: str = "",
        timeout_ms: int = 30_000,
        on_behalf_of: str = "",
    ) -> asyncio.Future[bytes]:
        return self._ask(node, api, version, body, timeout_ms, lambda api, version, frame, at: bytes(frame[at:]))

    def is_dead(self, node: int) -> asyncio.Future[bool]:
        """Known one latency later, unless the way there is cut or nothing is to be detected."""
        answer: asyncio.Future[bool] = self.world.loop.create_future()
        if not (self.world.config.peer_death_detection_enable and self.world.is_connected(self.source, node)):
            answer.set_result(False)
        else:
            self.world.loop.call_later(
                LATENCY_S, lambda: answer.done() or answer.set_result(not self.world.nodes[node].is_running)
            )
        return answer

    def _ask(
        self, node: int, api: ApiKey, version: int, body: Any, timeout_ms: int, decode: Callable[..., Any]
    ) -> asyncio.Future[Any]:
        loop = self.world.loop
        answer: asyncio.Future[Any] = loop.create_future()
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        frame = headers.encode_request_frame(api, version, 1, self.client_id, body)

        def answered(parts: Any) -> None:
            if parts is None or answer.done() or not self.world.is_connected(self.source, node):
                return
            response = memoryview(b"".join(parts))[4:]
            _, position = headers.decode_response_header(api, version, response)
            answer.set_result(decode(api, version, response, position))

        def fail(reason: str) -> None:
            if not answer.done():
                answer.set_exception(PeerUnavailable(reason))

        def arrive() -> None:
            if not self.world.is_connected(self.source, node):
                return
            if not self.world.nodes[node].is_running:
                fail("connection refused")
                return
            result = self.world.nodes[node].dispatcher.dispatch(self.connection, memoryview(frame)[4:])
            if isinstance(result, Promise):
                result.add_done_callback(
                    lambda done: None if done.cancelled() else loop.call_later(LATENCY_S, answered, done.result())
                )
            else:
                loop.call_later(LATENCY_S, answered, result)

        loop.call_later(LATENCY_S, arrive)
        loop.call_later(timeout_ms / 1000, fail, "no answer in time")
        return answer


class World:
    """A cluster in simulated time."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.loop = SimulatedLoop()
        self.clock = SimulatedClock(self.loop)
        self.random = Random(5)
        self.config = BrokerConfig.from_settings(settings)
        self.log = SharedLog(self.loop)
        self.nodes: dict[int, Node] = {}
        self.cut_off: set[int] = set()

    def is_connected(self, source: int, target: int) -> bool:
        return source == target or not ({source, target} & self.cut_off)

    def add(self, node: int, *, rack: str | None = None, log_dirs: Sequence[bytes] = ()) -> Node:
        """A node's process: a new one, or another one under the same id."""
        made = Node(self, node, rack=rack, log_dirs=log_dirs or [node.to_bytes(16, "big")])
        self.nodes[node] = made
        return made

    def run(self, work: Awaitable[Any]) -> Any:
        async def awaiting() -> Any:
            return await work

        return self.loop.run_until_complete(awaiting())

    def start(self, *nodes: int) -> None:
        """Let nodes (all of them, if none is named) into the cluster."""

        async def all_of_them() -> None:
            await asyncio.gather(*(self.nodes[node].life.start(30_000) for node in nodes or self.nodes))

        self.run(all_of_them())

    def sleep(self, seconds: float) -> None:
        """Simulated seconds: over at once."""
        self.run(asyncio.sleep(seconds))

    def until(self, condition: Callable[[], object], *, seconds: float = 60) -> None:
        async def watch() -> None:
            deadline = self.loop.time() + seconds
            while not condition():
                assert self.loop.time() < deadline, "the condition did not come true"
                await asyncio.sleep(0.001)

        self.run(watch())

    def call(self, node: int, api: ApiKey, version: int, body: Mapping[str, Any]) -> Message:
        """A client's request to a node."""
        message: Message = self.run(NodePeers(self, 0).send(node, api, version, body))
        return message

    @property
    def active(self) -> Node:
        return self.nodes[self.log.leader_id]

    def create_topic(self, name: str, replicas: Sequence[int], *, configs: Mapping[str, str] | None = None) -> None:
        wanted = NewTopic(name=name, assignments={0: tuple(replicas)}, configs=dict(configs or {}))
        (result,) = self.run(self.active.controller.create_topics([wanted], validate_only=False))
        assert result.error is None, result.error

    def partition(self, topic: str) -> PartitionImage:
        """As the active controller has it."""
        return self.active.controller.image.topics[topic].partitions[0]


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    """`make_world(nodes=3, session=600, ...)`: started nodes, the first of which has the active controller."""
    worlds: list[World] = []

    def make(
        nodes: int = 3, *, racks: Mapping[int, str] | None = None, start: bool = True, **settings: object
    ) -> World:
        defaults = {"broker.session.timeout.ms": 600, "broker.heartbeat.interval.ms": 100}
        world = World(defaults | {name.replace("_", "."): value for name, value in settings.items()})
        worlds.append(world)
        for node in range(1, nodes + 1):
            world.add(node, rack=(racks or {}).get(node))
        world.log.lead(1)
        if start:
            world.start()
        return world

    yield make
    for world in worlds:
        world.loop.close()
