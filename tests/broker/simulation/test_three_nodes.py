"""Three simulated nodes with replication, elections and transactions; and broken clusters, which are caught."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from broker_embedded.cluster.simulation import Simulation, SimulationOutcome, draw
from broker_embedded.replication.leader_state import LeaderState
from broker_embedded.replication.partition import Partition


def run(seed: int, *, minutes: float = 0.12, **changes: Any) -> SimulationOutcome:
    return Simulation(replace(draw(seed, brokers=3, minutes=minutes), **changes)).run()


@pytest.mark.representative("2")
@pytest.mark.parametrize("seed", range(1, 3))
def test_three_nodes_keep_their_promises(seed: int):
    outcome = run(seed, fault_every_s=1.0, pause_s=0.3)
    assert outcome.failure is None, "\n".join(outcome.lines[-80:])
    assert outcome.acknowledged > 0
    assert outcome.consumed > 0


def test_what_another_loop_of_the_process_leaves_behind_does_not_fail_a_run():
    loop = asyncio.new_event_loop()
    abandoned = loop.create_future()
    abandoned.set_exception(RuntimeError("nobody asked for this result"))
    loop.close()
    cycle: list[Any] = [abandoned]
    cycle.append(cycle)
    del abandoned, cycle  # the run collects it
    assert run(1, minutes=0.05, producers=1, transactional=0, copiers=0, fault_every_s=0.0).failure is None


def test_an_idle_cluster_only_keeps_itself_alive():
    outcome = run(1, minutes=0.3, producers=0, transactional=0, copiers=0, consumers=0, fault_every_s=0.0)
    assert outcome.failure is None
    ends = next(index for index, line in enumerate(outcome.lines) if "everything works again" in line)
    assert [line for line in outcome.lines[:ends] if "fenced" in line] == []
    assert len([line for line in outcome.lines[:ends] if "is the controller" in line]) == 1


def first_failure(seeds: range, **changes: Any) -> str:
    for seed in seeds:
        failure = run(seed, **changes).failure
        if failure is not None:
            return failure
    pytest.fail("nobody noticed")


BUSY = {"pause_s": 0.05, "fault_every_s": 0.7, "producers": 3, "transactional": 0, "copiers": 0, "consumers": 1}


def test_a_leader_that_acknowledges_before_anybody_has_copied_is_caught(monkeypatch: pytest.MonkeyPatch):
    def everything(self: LeaderState, *, log_end_offset: int, **ignored: object) -> int:
        return log_end_offset

    monkeypatch.setattr(LeaderState, "high_watermark", everything)
    failure = first_failure(range(1, 10), **BUSY)
    lost = (
        "what is committed is not lost",
        "replicas agree",
        "no replica drops",
        "the high watermark never moves back",
    )
    assert failure.startswith(lost), failure


def test_a_deposed_leader_that_goes_on_is_caught(monkeypatch: pytest.MonkeyPatch):
    """It ignores the metadata that takes the leadership from it: two lead in one epoch, or it shows what nobody has."""
    apply = Partition.apply

    def apply_once(self: Partition, image: Any, **options: Any) -> None:
        if self.is_leader and image.leader != self.node_id:
            image = replace(image, leader=self.node_id, isr=(self.node_id,))
        apply(self, image, **options)

    monkeypatch.setattr(Partition, "apply", apply_once)
    failure = first_failure(range(1, 10), **BUSY)
    assert failure.startswith(("at most one leader per epoch", "replicas agree", "what is")), failure
