"""Share groups in a simulation: members, leaders and share coordinators die; and brokers that break a promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from broker_embedded.cluster.simulation import Simulation, draw
from broker_embedded.cluster.simulation.__main__ import main
from broker_embedded.cluster.simulation.scenario import draw_share_groups
from broker_embedded.coordinator.share.shard import ShareShard
from broker_embedded.share.partition import SharePartition
from broker_embedded.share.runs import Standing
from broker_embedded.share.states import RecordState
from ottla_wire.protocol import ErrorCode


def simulation(seed: int, *, brokers: int = 3, minutes: float = 0.1, **changes: Any) -> Simulation:
    return Simulation(replace(draw_share_groups(seed, brokers=brokers, minutes=minutes), **changes))


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_accepted_stays_accepted_and_nothing_is_lost_whatever_dies(seed: int) -> None:
    simulated = simulation(seed)
    outcome = simulated.run()
    assert outcome.failure is None, "\n".join(outcome.lines[-60:])
    assert simulated.shares.deliveries


def test_the_command_runs_seeds_of_share_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--share-groups", "--seeds", "2", "--first", "23"]) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    assert "seed 23: 3 brokers, 0.1 min" in first
    assert ", 2 sharers, " in second
    assert last.startswith("2 seeds, 0 failed; ")


def test_the_command_takes_no_minutes_at_their_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--share-groups", "--seeds", "1", "--minutes", "0"]) == 0
    assert "3 brokers, 0 min" in capsys.readouterr().out


@pytest.mark.complete
@pytest.mark.parametrize("seed", range(3, 23))
def test_share_groups_beside_transactions(seed: int) -> None:
    scenario = replace(draw(seed, brokers=3, minutes=0.5), sharers=2)
    outcome = Simulation(scenario).run()
    assert outcome.failure is None, "\n".join(outcome.lines[-60:])


def test_without_faults_each_record_is_delivered_once() -> None:
    simulated = simulation(1, fault_every_s=0.0, share_releases=0.0)
    outcome = simulated.run()
    assert outcome.failure is None, "\n".join(outcome.lines[-60:])
    assert len(simulated.shares.deliveries) == outcome.acknowledged > 10
    assert set(simulated.shares.deliveries.values()) == {1}


def failures(**changes: Any) -> list[str]:
    found = (simulation(seed, fault_every_s=0.5, **changes).run().failure for seed in range(1, 7))
    return [failure for failure in found if failure is not None]


def test_a_coordinator_that_answers_before_it_writes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(self: ShareShard, key: object, *, on_done: Callable[[ErrorCode], None], **_: object) -> None:
        on_done(ErrorCode.NONE)

    monkeypatch.setattr(ShareShard, "write", forgets)
    found = failures(brokers=1)
    assert found, "nobody noticed"
    assert "what was accepted is settled" in found[0]


def test_a_leader_that_drops_what_is_released_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def drops(self: SharePartition, before: Standing, state: RecordState) -> Standing:
        return before._replace(state=RecordState.ARCHIVED, member_id="")

    monkeypatch.setattr(SharePartition, "standing_after", drops)
    found = failures(brokers=1)
    assert found, "nobody noticed"
    assert "nothing below the limit is lost" in found[0]
