"""Quorums of real members, each with its log in its own memory, on a loop whose time jumps, with wires to cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import pytest

from broker_embedded.cluster.simulation.loop import SimulatedClock, SimulatedLoop
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.common.peers import PeerDead, PeerUnavailable
from broker_embedded.common.types import CLUSTER_METADATA_TOPIC
from broker_embedded.controller.commits import CommittedBatch
from broker_embedded.controller.quorum import MetadataQuorum, SingleVoterQuorum
from broker_embedded.controller.raft.member import Timeouts
from broker_embedded.controller.raft.raft_quorum import RaftQuorum
from broker_embedded.metadata.records import CreateTopic, MetadataRecord
from broker_embedded.storage.log_manager import LogManager
from ottla_wire.protocol import ApiKey, codec
from ottla_wire.protocol.message import Message

TIMEOUTS = Timeouts(fetch_ms=400, election_ms=200, election_backoff_max_ms=200)
CLUSTER_ID = "a-cluster"
WIRE_S = 0.0005


class Wires:
    """`Peers` of one node: every request and answer passes through its bytes, half a millisecond each way."""

    def __init__(self, world: World, node_id: int) -> None:
        self._world = world
        self._node_id = node_id

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
        assert channel == ("raft-fetch" if api is ApiKey.FETCH else "raft")
        frame = codec.encode_request(api, version, body)
        task = self._world.loop.create_task(self._ask(node, api, version, frame, timeout_ms / 1000))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _ask(self, node: int, api: ApiKey, version: int, frame: bytes, timeout_s: float) -> Message:
        world, here = self._world, self._node_id
        await asyncio.sleep(WIRE_S)
        member = world.reach(here, node)
        answer = world.dispatch(member, api, codec.decode_request(api, version, frame))
        if isinstance(answer, asyncio.Future):
            try:
                answer = await asyncio.wait_for(answer, timeout_s)
            except (TimeoutError, asyncio.CancelledError):
                raise PeerUnavailable("no answer") from None
        await asyncio.sleep(WIRE_S)
        if world.reach(node, here) is not world.members.get(here) or world.members.get(node) is not member:
            raise PeerUnavailable("lost")
        parts = codec.encode_response_parts(api, version, answer)
        return codec.decode_response(api, version, b"".join(bytes(part) for part in parts))


class Subscriber:
    """What a node was given, in order."""

    def __init__(self, quorum: MetadataQuorum) -> None:
        self.records: list[MetadataRecord] = []
        self.last_offset = -1
        self.leaderships: list[tuple[bool, int]] = []
        quorum.subscribe(self._committed)
        quorum.add_leadership_listener(lambda is_leader, epoch: self.leaderships.append((is_leader, epoch)))

    def _committed(self, batch: CommittedBatch) -> None:
        assert batch.last_offset > self.last_offset
        self.last_offset = batch.last_offset
        self.records += batch.records

    @property
    def names(self) -> list[str]:
        return [record.name for record in self.records if isinstance(record, CreateTopic)]


class World:
    """Nodes 1 to n, of which the first `voters` vote."""

    def __init__(self, loop: SimulatedLoop, *, nodes: int, voters: int) -> None:
        self.loop = loop
        self.clock = SimulatedClock(loop)
        self.voters = tuple(range(1, voters + 1))
        self.disks = {node: MemoryFileSystem(clock=self.clock) for node in range(1, nodes + 1)}
        self.stores: dict[int, LogManager] = {}
        self.members: dict[int, RaftQuorum | SingleVoterQuorum] = {}
        self.subscribers: dict[int, Subscriber] = {}
        self.cut: set[tuple[int, int]] = set()
        self.detects_deaths = False
        self.timeouts = TIMEOUTS
        self.answered: list[BrokerError | None] = []

    # --- life

    def open_log(self, node: int) -> Any:
        store = LogManager([f"/controller-{node}"], fs=self.disks[node], clock=self.clock, cleaner_enabled=False)
        store.load_all()
        self.stores[node] = store
        return store.get_or_create(CLUSTER_METADATA_TOPIC, 0)

    def start(self, node: int) -> RaftQuorum:
        quorum = RaftQuorum(
            node_id=node,
            voters=self.voters,
            metadata_log=self.open_log(node),
            fs=self.disks[node],
            clock=self.clock,
            loop=self.loop,
            random=Random(node),
            peers=Wires(self, node),
            cluster_id=CLUSTER_ID,
            timeouts=self.timeouts,
        )
        self.adopt(node, quorum)
        quorum.start()
        return quorum

    def start_single_voter(self) -> SingleVoterQuorum:
        quorum = SingleVoterQuorum(
            voter_id=1, metadata_log=self.open_log(1), clock=self.clock, loop=self.loop, cluster_id=CLUSTER_ID
        )
        self.adopt(1, quorum)
        quorum.start()
        return quorum

    def adopt(self, node: int, quorum: RaftQuorum | SingleVoterQuorum) -> None:
        self.members[node] = quorum
        self.subscribers[node] = Subscriber(quorum)

    def kill(self, node: int, *, loses_power: bool = True) -> None:
        """The node dies. With its power go the bytes that were not flushed."""
        self.members.pop(node).close()
        if loses_power:
            self.disks[node].crash()
        else:
            self.disks[node].kill()

    def isolate(self, node: int) -> None:
        self.cut |= {pair for other in self.disks for pair in ((node, other), (other, node))}

    # --- the wires

    def reach(self, source: int, target: int) -> RaftQuorum | SingleVoterQuorum:
        member = self.members.get(target)
        if (source, target) in self.cut:
            raise PeerUnavailable(f"node {target} cannot be reached")
        if member is None:
            raise (PeerDead if self.detects_deaths else PeerUnavailable)(f"node {target} refuses")
        return member

    @staticmethod
    def dispatch(member: MetadataQuorum, api: ApiKey, request: Message) -> Any:
        match api:
            case ApiKey.FETCH:
                return member.handle_fetch(request)
            case ApiKey.VOTE:
                return member.handle_vote(request)
            case ApiKey.BEGIN_QUORUM_EPOCH:
                return member.handle_begin_quorum_epoch(request)
            case _:
                assert api is ApiKey.END_QUORUM_EPOCH
                return member.handle_end_quorum_epoch(request)

    # --- waiting, in the loop's own time

    def run(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def until(self, condition: Callable[[], Any], *, within_s: float = 60) -> Any:
        """Whatever true thing `condition` says first. The time is the loop's: a slow machine changes nothing."""

        async def wait() -> Any:
            deadline = self.loop.time() + within_s
            while not (found := condition()):
                assert self.loop.time() < deadline, f"not within {within_s} s"
                await asyncio.sleep(0.001)
            return found

        return self.loop.run_until_complete(wait())

    def leader(self) -> int | None:
        """The active controller, if exactly one node is."""
        active = [node for node, member in self.members.items() if member.is_leader]
        return active[0] if len(active) == 1 else None

    def append(self, node: int, *names: str) -> None:
        """Append topics; the outcome goes to `answered`."""
        records = [CreateTopic(name=name, topic_id=name.encode()[-16:].ljust(16)) for name in names]
        self.members[node].append(records, self.answered.append)

    def everybody_has(self, *names: str) -> bool:
        return all(self.subscribers[node].names == list(names) for node in self.members)


@pytest.fixture
def simulated_loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop()
    asyncio.set_event_loop(loop)
    yield loop
    loop.close()
    asyncio.set_event_loop(None)


@pytest.fixture
def world(simulated_loop: SimulatedLoop) -> Iterator[Callable[..., World]]:
    """`world(nodes=3, voters=3)`: nodes that have not started yet."""
    worlds: list[World] = []

    def make(*, nodes: int, voters: int) -> World:
        worlds.append(World(simulated_loop, nodes=nodes, voters=voters))
        return worlds[-1]

    yield make
    for each in worlds:
        for member in each.members.values():
            member.close()
    on_the_wire = asyncio.all_tasks(simulated_loop)
    for task in on_the_wire:
        task.cancel()
    if on_the_wire:
        simulated_loop.run_until_complete(asyncio.wait(on_the_wire))
