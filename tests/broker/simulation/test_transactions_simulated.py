"""Transactional producers in a simulation: deaths, zombies, restarts of the coordinator; and a broker that leaks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker_embedded.cluster.simulation import Simulation, SimulationOutcome, draw
from broker_embedded.storage.log_reading import ReadableLog


def run(seed: int) -> SimulationOutcome:
    scenario = draw(seed, brokers=1, minutes=0.15)
    return Simulation(replace(scenario, transactional=2, producers=0, consumers=2, pause_s=0.1)).run()


@pytest.mark.parametrize("seed", range(1, 3))
def test_transactions_are_atomic_whatever_dies(seed: int):
    outcome = run(seed)
    assert outcome.failure is None, "\n".join(outcome.lines[-60:])
    assert outcome.acknowledged > 0


def test_a_broker_whose_stable_offset_runs_ahead_is_caught(monkeypatch: pytest.MonkeyPatch):
    """read_committed then reads what is not decided yet."""
    monkeypatch.setattr(ReadableLog, "last_stable_offset", property(lambda self: self.high_watermark))
    failures = [failure for seed in range(1, 5) if (failure := run(seed).failure) is not None]
    assert failures, "nobody noticed"
    assert "read_committed never sees an aborted record" in failures[0]
