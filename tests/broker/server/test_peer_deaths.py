"""Who is dead and who is not, over real sockets; and requests for metadata that wait for who leads instead."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker_embedded.cluster.simulation.loop import SimulatedClock, SimulatedLoop
from broker_embedded.common.peers import PeerDead, PeerUnavailable
from broker_embedded.common.promises import Promise
from broker_embedded.common.types import NO_LEADER
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.metadata.image import TopicImage
from broker_embedded.metadata.records import ChangePartition, CreatePartition, CreateTopic, MetadataRecord
from broker_embedded.server.net.network import TcpNetwork
from broker_embedded.server.peers.peer_connections import NoFaults, PeerConnections, PeerLinks
from broker_embedded.server.peers.unreachable_leaders import WAIT_MS, UnreachableLeaders
from ottla_wire.protocol import ApiKey

HOST = "127.0.0.1"
PEER = 2


class CutLinks(NoFaults):
    def problem(self, source: int, target: int) -> str | None:
        return "cut"


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    """Node 2's listener: its kernel accepts, its process does nothing."""
    with socket.create_server((HOST, 0)) as listener:
        yield listener


def ask(
    port: int | None,
    what: Callable[[PeerConnections], asyncio.Future[Any]],
    *,
    detects_deaths: bool = True,
    links: PeerLinks | None = None,
) -> Any:
    """What node 1 finds out, where node 2 had `port`."""

    async def run() -> Any:
        peers = PeerConnections(
            node_id=1,
            network=TcpNetwork(),
            addresses={} if port is None else {PEER: (HOST, port)},
            loop=asyncio.get_running_loop(),
            links=links,
            detects_deaths=detects_deaths,
        )
        try:
            return await asyncio.wait_for(what(peers), 30)
        finally:
            peers.close()

    return asyncio.run(run())


def is_dead(peers: PeerConnections) -> asyncio.Future[bool]:
    return peers.is_dead(PEER)


def request(peers: PeerConnections) -> asyncio.Future[Any]:
    return peers.send(PEER, ApiKey.API_VERSIONS, 0, {}, timeout_ms=100)


def port_of(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def held_port(listener: socket.socket) -> tuple[int, Any]:
    """The port of a process that has ended, which nobody else gets."""
    port = port_of(listener)
    listener.close()
    return port, TcpNetwork().reserve(HOST, port)


def test_a_peer_that_refuses_connections_is_dead(peer: socket.socket) -> None:
    port, reserved = held_port(peer)
    assert ask(port, is_dead) is True
    with pytest.raises(PeerDead):
        ask(port, request)
    reserved.release()


def test_a_peer_that_does_nothing_is_not_dead(peer: socket.socket) -> None:
    assert ask(port_of(peer), is_dead) is False
    with pytest.raises(PeerUnavailable) as raised:
        ask(port_of(peer), request)
    assert not isinstance(raised.value, PeerDead)


@pytest.mark.parametrize(
    "doubt", [{"detects_deaths": False}, {"links": CutLinks()}], ids=["detection is off", "the link is cut"]
)
def test_nothing_is_known_of_a_peer(peer: socket.socket, doubt: dict[str, Any]) -> None:
    port, reserved = held_port(peer)
    assert ask(port, is_dead, **doubt) is False
    with pytest.raises(PeerUnavailable) as raised:
        ask(port, request, **doubt)
    assert not isinstance(raised.value, PeerDead)
    reserved.release()


def test_nothing_is_known_of_a_peer_without_an_address() -> None:
    assert ask(None, is_dead) is False


def test_a_paused_node_asks_when_it_goes_on(peer: socket.socket) -> None:
    port, reserved = held_port(peer)

    def pause_and_go_on(peers: PeerConnections) -> asyncio.Future[bool]:
        peers.pause()
        answer = peers.is_dead(PEER)
        assert not answer.done()
        peers.resume()
        return answer

    assert ask(port, pause_and_go_on) is True
    reserved.release()


def test_a_node_that_stops_asks_nobody(peer: socket.socket) -> None:
    port, reserved = held_port(peer)

    def close(peers: PeerConnections) -> asyncio.Future[bool]:
        answer = peers.is_dead(PEER)
        peers.close()
        return answer

    assert ask(port, close) is False
    reserved.release()


@pytest.mark.parametrize(("who", "told"), [("peer", {PEER}), ("node", set())])
def test_a_connection_that_the_other_side_ends_is_told(peer: socket.socket, who: str, told: set[int]) -> None:
    lost: list[int] = []

    async def lose(peers: PeerConnections) -> Any:
        peers.on_loss = lost.append
        answer = peers.send(PEER, ApiKey.API_VERSIONS, 0, {}, timeout_ms=30_000)
        accepted, _ = await asyncio.to_thread(peer.accept)
        with accepted:
            await asyncio.to_thread(accepted.recv, 1)  # the connection is made on both sides
            if who == "node":
                peers.close()
        return await answer

    with pytest.raises(PeerUnavailable):
        ask(port_of(peer), lambda peers: asyncio.ensure_future(lose(peers)))
    assert set(lost) == told


# --- requests for metadata


class Deaths:
    """A broker whose topic `t` is led by node 2, with node 3 in sync; and `alone`, which node 2 has alone."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.metadata = MetadataCache("c")
        self.knocks: list[asyncio.Future[bool]] = []
        self._offset = 0
        self.unreachable_leaders = UnreachableLeaders(
            probe=self, metadata=self.metadata, loop=self.loop, clock=SimulatedClock(self.loop)
        )
        for name, replicas in (("t", (2, 3)), ("alone", (2,))):
            topic_id = name.encode().ljust(16)
            self.replay(
                CreateTopic(name=name, topic_id=topic_id),
                CreatePartition(
                    topic_id=topic_id,
                    partition=0,
                    replicas=replicas,
                    isr=replicas,
                    leader=2,
                    directories=(bytes(16),) * len(replicas),
                ),
            )

    def is_dead(self, node: int) -> asyncio.Future[bool]:
        self.knocks.append(self.loop.create_future())
        return self.knocks[-1]

    def replay(self, *records: MetadataRecord) -> None:
        self._offset += len(records)
        self.metadata.replay(records, offset=self._offset, epoch=1, controller_id=1)

    def elect(self, topic: str, leader: int) -> None:
        self.replay(ChangePartition(topic_id=topic.encode().ljust(16), partition=0, leader=leader, isr=(3,)))

    def wait_for(self, *names: str) -> Promise[None] | None:
        def topics() -> list[TopicImage]:
            return [self.metadata.image.topics[name] for name in names]

        return self.unreachable_leaders.wait(topics)

    def pass_ms(self, ms: int) -> None:
        self.loop.run_until_complete(asyncio.sleep(ms / 1000))


@pytest.fixture
def deaths() -> Iterator[Deaths]:
    made = Deaths()
    yield made
    made.loop.close()


def test_a_request_waits_until_somebody_else_leads(deaths: Deaths) -> None:
    assert deaths.wait_for("t") is None
    deaths.unreachable_leaders.lost(2)
    waits = deaths.wait_for("t")
    assert waits is not None
    deaths.replay(CreateTopic(name="other", topic_id=b"o" * 16))
    assert not waits.done()
    deaths.elect("t", 3)
    assert waits.done()
    assert deaths.wait_for("t") is None


def test_it_waits_for_what_it_asked_for_and_for_what_can_come(deaths: Deaths) -> None:
    deaths.unreachable_leaders.lost(2)
    assert deaths.wait_for("alone") is None, "there is nobody to lead it"
    assert deaths.wait_for() is None
    assert deaths.wait_for("t", "alone") is not None


def test_another_node_that_was_lost_is_no_reason_to_wait(deaths: Deaths) -> None:
    deaths.unreachable_leaders.lost(3)
    assert deaths.wait_for("t") is None


def test_it_waits_no_longer_for_a_node_that_turns_out_to_live(deaths: Deaths) -> None:
    deaths.unreachable_leaders.lost(2)
    waits = deaths.wait_for("t")
    assert waits is not None
    deaths.knocks[0].set_result(False)
    deaths.pass_ms(1)
    assert waits.done()
    assert deaths.wait_for("t") is None


def test_it_waits_on_for_a_node_that_is_dead_but_not_for_long(deaths: Deaths) -> None:
    deaths.unreachable_leaders.lost(2)
    deaths.knocks[0].set_result(True)
    deaths.pass_ms(WAIT_MS - 50)
    waits = deaths.wait_for("t")
    assert waits is not None
    deaths.unreachable_leaders.lost(2)  # another connection to the same node: it is late as it is
    deaths.pass_ms(49)
    assert not waits.done()
    deaths.pass_ms(2)
    assert waits.done()
    assert deaths.wait_for("t") is None
    assert len(deaths.knocks) == 1


def test_a_partition_without_a_leader_is_not_waited_for(deaths: Deaths) -> None:
    deaths.unreachable_leaders.lost(2)
    deaths.replay(ChangePartition(topic_id=b"t".ljust(16), partition=0, leader=NO_LEADER))
    assert deaths.wait_for("t") is None


def test_a_client_that_has_gone_is_forgotten(deaths: Deaths) -> None:
    deaths.unreachable_leaders.lost(2)
    waits = deaths.wait_for("t")
    assert waits is not None
    waits.cancel()
    deaths.elect("t", 3)
    deaths.pass_ms(WAIT_MS)
    assert waits.cancelled()
