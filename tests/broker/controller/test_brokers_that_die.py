"""A broker that is dead beyond doubt is replaced at once; one that may be alive has its session."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker_embedded.cluster.simulation.loop import SimulatedLoop
from broker_embedded.controller.broker_heartbeats import LINGER_MS
from broker_embedded.controller.failure_detector import FailureDetector

SESSION_S = 60


@pytest.fixture
def world(make_world: Any) -> Any:
    """Three brokers with long sessions; broker 1's controller is active, broker 2 leads `t`."""
    made = make_world(broker_session_timeout_ms=SESSION_S * 1000, peer_death_detection_enable=True)
    made.create_topic("t", [2, 3, 1])
    made.sleep(1)  # everybody has sent a heartbeat
    return made


def live(world: Any) -> list[int]:
    return [broker.broker_id for broker in world.active.controller.image.live_brokers()]


def test_a_leader_that_died_is_replaced_long_before_its_session_ends(world: Any) -> None:
    killed_at = world.loop.time()
    world.nodes[2].kill()
    world.until(lambda: world.partition("t").leader == 3)
    assert world.loop.time() - killed_at < 0.05
    state = world.partition("t")
    assert (state.isr, state.leader_epoch) == ((3, 1), 1)


def test_it_stays_in_the_metadata_for_a_session_as_if_it_had_only_lost_its_leaderships(world: Any) -> None:
    world.nodes[2].kill()
    world.sleep(SESSION_S - 2)
    assert live(world) == [1, 2, 3]
    world.until(lambda: live(world) == [1, 3], seconds=15)


def test_with_short_sessions_it_stays_long_enough_for_clients_that_ask_once_a_second(make_world: Any) -> None:
    world = make_world(broker_session_timeout_ms=600, peer_death_detection_enable=True)
    world.sleep(1)
    killed_at = world.loop.time()
    world.nodes[2].kill()
    world.until(lambda: live(world) == [1, 3])
    assert LINGER_MS / 1000 <= world.loop.time() - killed_at < LINGER_MS / 1000 + 0.2


def test_where_deaths_are_not_detected_it_is_missed_when_its_session_ends(make_world: Any) -> None:
    world = make_world(broker_session_timeout_ms=SESSION_S * 1000)
    world.create_topic("t", [2, 3, 1])
    world.nodes[2].kill()
    world.sleep(SESSION_S - 2)
    assert world.partition("t").leader == 2
    world.until(lambda: world.partition("t").leader == 3, seconds=15)


def test_a_broker_that_cannot_be_reached_keeps_its_session(world: Any) -> None:
    """Its connections end, as those over a cut link do, but nobody can say that it is dead."""
    world.cut_off.add(2)
    world.active.controller.deaths.on_connection_closed(world.nodes[2].peers.connection)
    world.sleep(SESSION_S / 2)
    assert world.partition("t").leader == 2


def test_a_broker_that_lost_a_connection_and_lives_stays_what_it_was(world: Any) -> None:
    world.active.controller.deaths.on_connection_closed(world.nodes[2].peers.connection)
    world.sleep(1)
    state = world.partition("t")
    assert (state.leader, state.isr, state.leader_epoch) == (2, (2, 3, 1), 0)


def test_a_new_controller_finds_out_that_the_broker_of_the_one_before_it_is_dead(world: Any) -> None:
    world.create_topic("u", [1, 3, 2])
    world.nodes[1].kill()
    world.sleep(5)
    world.log.lead(3)
    elected_at = world.loop.time()
    world.until(lambda: world.partition("u").leader == 3)
    assert world.loop.time() - elected_at < 0.05


def test_its_successor_gets_in_at_once(world: Any) -> None:
    world.nodes[2].kill()
    world.until(lambda: world.partition("t").leader == 3)
    died_at = world.loop.time()
    world.add(2)
    world.start(2)
    assert world.loop.time() - died_at < 1
    world.sleep(SESSION_S + 10)
    assert live(world) == [1, 2, 3], "the session of the dead one is not held against it"


@pytest.mark.complete
def test_nobody_leads_in_place_of_a_dead_broker_that_is_alone_in_sync(world: Any) -> None:
    """It keeps its place until it is fenced, as everybody's who is silent: there is nobody to move to."""
    world.create_topic("alone", [2])
    world.nodes[2].kill()
    world.until(lambda: world.partition("t").leader == 3)
    assert (world.partition("alone").leader, world.partition("alone").isr) == (2, (2,))
    world.until(lambda: world.partition("alone").leader == -1, seconds=SESSION_S + 10)
    assert world.partition("alone").isr == (2,)


def test_with_unclean_elections_somebody_leads_at_once(world: Any) -> None:
    world.create_topic("any", [2, 3], configs={"unclean.leader.election.enable": "true"})
    world.nodes[3].kill()
    world.until(lambda: world.partition("any").isr == (2,))
    world.add(3)
    world.start(3)
    assert world.partition("any").isr == (2,)
    killed_at = world.loop.time()
    world.nodes[2].kill()
    world.until(lambda: world.partition("any").leader == 3)
    assert world.loop.time() - killed_at < 0.05


def test_a_broker_that_said_goodbye_is_not_asked_after(world: Any) -> None:
    world.run(world.nodes[2].life.controlled_shutdown(30_000))
    epoch = world.partition("t").leader_epoch
    world.nodes[2].kill()
    world.sleep(1)
    assert live(world) == [1, 3]
    assert world.partition("t").leader_epoch == epoch


# --- the watch alone


class Probe:
    """Knocks that the test answers."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.asked: list[tuple[int, asyncio.Future[bool]]] = []
        self._loop = loop

    def is_dead(self, node: int) -> asyncio.Future[bool]:
        answer: asyncio.Future[bool] = self._loop.create_future()
        self.asked.append((node, answer))
        return answer


class Watched:
    """Brokers 1 and 2 with epochs 10 and 20, as the watch sees them."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.brokers = {1: 10, 2: 20}
        self.probe = Probe(self.loop)
        self.dead: list[tuple[int, int]] = []
        self.watch = FailureDetector(
            alive=lambda: [SimpleNamespace(broker_id=node, epoch=epoch) for node, epoch in self.brokers.items()],  # type: ignore[misc]
            probe=self.probe,
            on_death=lambda node, epoch: self.dead.append((node, epoch)),
        )

    def answer(self, is_dead: bool) -> None:
        for _, future in self.probe.asked:
            if not future.done():
                future.set_result(is_dead)
        self.loop.run_until_complete(asyncio.sleep(0.001))

    @property
    def asked(self) -> list[int]:
        return [node for node, _ in self.probe.asked]


@pytest.fixture
def watched() -> Any:
    made = Watched()
    yield made
    made.loop.close()


def test_a_new_term_asks_after_everybody_once(watched: Any) -> None:
    watched.watch.activate()
    watched.watch.activate()
    assert watched.asked == [1, 2]
    watched.answer(True)
    assert watched.dead == [(1, 10), (2, 20)]


def test_a_closed_connection_asks_after_whoever_beat_over_it(watched: Any) -> None:
    watched.watch.activate()
    watched.answer(False)
    lines = [object(), object()]
    for node, line in zip((1, 2), lines, strict=True):
        watched.watch.on_response(node, line)
    watched.watch.on_connection_closed(object())
    assert watched.asked == [1, 2], "of the new term, and nobody since"
    watched.watch.on_connection_closed(lines[1])
    watched.watch.on_connection_closed(lines[1])
    assert watched.asked == [1, 2, 2]
    watched.answer(True)
    assert watched.dead == [(2, 20)]


def test_a_death_is_that_of_the_process_that_was_asked_after(watched: Any) -> None:
    """Another one has registered meanwhile: the epoch says so."""
    watched.watch.activate()
    watched.brokers[1] = 30
    watched.answer(True)
    assert (1, 10) in watched.dead


def test_a_controller_that_is_active_no_longer_says_nothing(watched: Any) -> None:
    watched.watch.activate()
    watched.watch.deactivate()
    watched.answer(True)
    watched.watch.on_response(1, "line")
    watched.watch.on_connection_closed("line")
    assert watched.dead == []
    assert watched.asked == [1, 2]
