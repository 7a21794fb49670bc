"""One simulated node: kills, pauses, resets and deaths of clients from a seed; and broken brokers, which are caught."""

from __future__ import annotations

from typing import Any

import pytest

from broker_embedded.cluster.simulation import Simulation, SimulationOutcome, draw
from broker_embedded.coordinator.group.offsets.store import OffsetStore
from broker_embedded.storage.producer_state import ProducerStateManager


def run(seed: int, *, minutes: float = 0.2) -> SimulationOutcome:
    return Simulation(draw(seed, brokers=1, minutes=minutes)).run()


@pytest.mark.representative("2")
@pytest.mark.parametrize("seed", range(1, 4))
def test_one_node_keeps_its_promises(seed: int):
    outcome = run(seed)
    assert outcome.failure is None, "\n".join(outcome.lines[-60:])
    assert outcome.acknowledged > 0
    assert outcome.consumed > 0
    assert outcome.checks > 100


def first_failure(seeds: range) -> SimulationOutcome:
    for seed in seeds:
        outcome = run(seed)
        if outcome.failure is not None:
            return outcome
    pytest.fail("nobody noticed")


@pytest.mark.complete
def test_a_broker_that_does_not_recognise_a_batch_sent_twice_is_caught(monkeypatch: pytest.MonkeyPatch):
    """Its sequence checks let everything pass."""
    monkeypatch.setattr(ProducerStateManager, "check", lambda self, header, data, origin: None)
    outcome = first_failure(range(1, 10))
    assert outcome.failure is not None
    assert "duplicate" in outcome.failure or "order" in outcome.failure
    assert "FAILED" in outcome.lines[-1]


def test_a_coordinator_that_forgets_a_commit_is_caught(monkeypatch: pytest.MonkeyPatch):
    put = OffsetStore.put
    calls = 0

    def put_some(self: OffsetStore, *args: Any, **options: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % 3:
            put(self, *args, **options)

    monkeypatch.setattr(OffsetStore, "put", put_some)
    outcome = first_failure(range(1, 10))
    assert outcome.failure is not None
    assert "committed offsets never move back" in outcome.failure


@pytest.mark.complete
def test_a_failing_seed_fails_again_in_the_same_way(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ProducerStateManager, "check", lambda self, header, data, origin: None)
    outcome = first_failure(range(1, 10))
    again = run(outcome.scenario.seed)
    assert again.failure == outcome.failure
    assert again.lines == outcome.lines
