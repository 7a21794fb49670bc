"""The simulated loop and network alone: order, delays, cuts, deaths, and that a seed is a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import Any

import pytest

from broker_embedded.cluster.simulation.loop import NothingToDo, SimulatedClock, SimulatedLoop
from broker_embedded.cluster.simulation.network import SimulatedNetwork
from broker_embedded.cluster.simulation.process import Process


class World:
    def __init__(self, seed: int = 1) -> None:
        self.loop = SimulatedLoop()
        self.clock = SimulatedClock(self.loop)
        self.network = SimulatedNetwork(loop=self.loop, random=Random(seed))
        self.processes: dict[str, Process] = {}

    def process(self, name: str) -> Process:
        if name not in self.processes or self.processes[name].is_dead:
            self.processes[name] = Process(name)
        return self.processes[name]

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.process(name).spawn(self.loop, work, name="work")


class Peer(asyncio.Protocol):
    """Keeps what it gets."""

    def __init__(self, world: World, *, echo: bool = False) -> None:
        self.world = world
        self.echo = echo
        self.data = b""
        self.times: list[int] = []
        self.lost: list[Exception | None] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.times.append(self.world.clock.monotonic_ms())
        if self.echo:
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.loop.close()


async def pair(world: World, *, source: str = "a", target: str = "b", echo: bool = False) -> tuple[Peer, Peer]:
    """A connection from `source` to `target`, each end in its own process."""
    servers: list[Peer] = []

    def accept() -> Peer:
        servers.append(Peer(world, echo=echo))
        return servers[-1]

    listener = world.network.host(target).listen("ignored", 0)
    await world.spawn(target, listener.serve(accept))
    client = Peer(world)
    await world.spawn(source, world.network.host(source).connect(target, listener.port, lambda: client))
    return client, servers[0]


def test_time_jumps_to_the_next_timer(world: World):
    before = world.loop.time()
    world.run(asyncio.sleep(86_400 * 365))
    assert world.loop.time() - before == 86_400 * 365
    assert world.loop.turns < 10


def test_waiting_for_nobody_is_an_error_and_not_for_ever(world: World):
    with pytest.raises(NothingToDo):
        world.run(asyncio.Event().wait())


def test_threads_are_refused(world: World):
    with pytest.raises(RuntimeError, match="no threads"):
        world.run(asyncio.to_thread(int))


def test_bytes_of_one_connection_arrive_in_order_and_whole(world: World):
    async def scenario() -> None:
        client, server = await pair(world, echo=True)
        sent = b""
        for number in range(500):
            piece = b"%d," % number * (number % 7 + 1)
            client.transport.write(piece)
            sent += piece
            if number % 50 == 0:
                await asyncio.sleep(0.001)
        await asyncio.sleep(5)
        assert server.data == sent
        assert client.data == sent

    world.run(scenario())


def test_different_connections_overtake_each_other(world: World):
    arrivals: list[int] = []

    async def scenario() -> None:
        pairs = [await pair(world, source=f"a{number}", target="b") for number in range(30)]
        for number, (client, server) in enumerate(pairs):
            server.data_received = lambda data, n=number: arrivals.append(n)  # type: ignore[method-assign]
            client.transport.write(b"x")
        await asyncio.sleep(5)

    world.run(scenario())
    assert sorted(arrivals) == list(range(30))
    assert arrivals != sorted(arrivals)


def test_a_cut_link_holds_what_is_sent_until_it_is_mended(world: World):
    async def scenario() -> None:
        client, server = await pair(world)
        world.network.cut("a", "b")
        client.transport.write(b"one ")
        server.transport.write(b"other way")
        await asyncio.sleep(60)
        client.transport.write(b"two")
        assert (server.data, client.data) == (b"", b"other way")
        world.network.mend("a", "b")
        await asyncio.sleep(1)
        assert server.data == b"one two"

    world.run(scenario())


def test_connecting_over_a_cut_link_takes_a_while_and_fails(world: World):
    async def scenario() -> None:
        await pair(world)
        world.network.cut("b", "a")
        before = world.loop.time()
        with pytest.raises(TimeoutError):
            await world.network.host("a").connect("b", 40_001, lambda: Peer(world))
        assert world.loop.time() - before >= 1

    world.run(scenario())


def test_nobody_listening_is_a_refusal(world: World):
    with pytest.raises(ConnectionRefusedError):
        world.run(world.network.host("a").connect("b", 1, lambda: Peer(world)))


def test_a_reset_is_noticed_by_both_ends(world: World):
    async def scenario() -> None:
        client, server = await pair(world)
        assert world.network.reset_connections("b", "a") == 1
        await asyncio.sleep(1)
        assert [type(each) for each in client.lost + server.lost] == [ConnectionResetError] * 2

    world.run(scenario())


def test_closing_delivers_what_was_written_and_then_the_end(world: World):
    async def scenario() -> None:
        client, server = await pair(world)
        client.transport.write(b"last words")
        client.transport.close()
        await asyncio.sleep(1)
        assert server.data == b"last words"
        assert client.lost == server.lost == [None]

    world.run(scenario())


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_host_that_dies_is_noticed_at_once_or_when_it_is_back(world: World, is_silent: bool):
    async def scenario() -> None:
        client, server = await pair(world)
        world.process("b").kill()
        world.network.host_died("b", is_silent=is_silent)
        await asyncio.sleep(30)
        assert (client.lost == []) == is_silent
        world.network.host_is_up("b")
        await asyncio.sleep(1)
        assert [type(each) for each in client.lost] == [ConnectionResetError]
        assert server.lost == [], "the dead hear nothing"

    world.run(scenario())


def test_a_paused_process_gets_everything_when_it_goes_on(world: World):
    async def scenario() -> None:
        client, server = await pair(world, echo=True)
        world.process("b").pause()
        client.transport.write(b"one ")
        await asyncio.sleep(10)
        client.transport.write(b"two")
        await asyncio.sleep(10)
        assert (server.data, client.data) == (b"", b"")
        world.loop.resume(world.process("b"))
        await asyncio.sleep(1)
        assert (server.data, client.data) == (b"one two", b"one two")

    world.run(scenario())


def test_a_reader_that_pauses_pushes_back(world: World):
    async def scenario() -> None:
        client, server = await pair(world)
        told: list[str] = []
        client.pause_writing = lambda: told.append("pause")  # type: ignore[method-assign]
        client.resume_writing = lambda: told.append("resume")  # type: ignore[method-assign]
        server.transport.pause_reading()
        for _ in range(10):
            client.transport.write(b"x" * 100_000)
        await asyncio.sleep(1)
        assert told == ["pause"]
        assert server.data == b""
        server.transport.resume_reading()
        await asyncio.sleep(1)
        assert len(server.data) == 1_000_000
        assert told == ["pause", "resume"]

    world.run(scenario())


def test_nothing_of_a_dead_process_runs_any_more(world: World):
    seen: list[str] = []

    async def work() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                seen.append("alive")
        finally:
            seen.append("cleaned up")

    async def scenario() -> None:
        world.spawn("a", work())
        await asyncio.sleep(2.5)
        world.process("a").kill()
        await asyncio.sleep(10)

    world.run(scenario())
    assert seen == ["alive", "alive"]


def run_of(seed: int) -> tuple[int, int]:
    world = World(seed)

    async def scenario() -> None:
        for number in range(10):
            client, _ = await pair(world, source=f"a{number % 3}", echo=True)
            client.transport.write(b"%d" % number * 100)
        await asyncio.sleep(3)

    world.run(scenario())
    world.loop.close()
    return world.network.fingerprint, world.loop.now_ns


def test_a_seed_is_a_run():
    runs: list[Callable[[], tuple[int, int]]] = [lambda: run_of(1), lambda: run_of(1), lambda: run_of(2)]
    first, again, other = (run() for run in runs)
    assert first == again
    assert first[0] != other[0]
