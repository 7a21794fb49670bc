"""A broker whose metadata lags behind the controller shows the replicas of a move after the move has ended."""

from __future__ import annotations

import pytest
from placement_models import broker, facts_of, model, partition

from ottla.admin.placement.deciding import MoveState, PlanRun, decide
from ottla.admin.placement.move_plan import Move

MOVE = Move(topic="t", partition=0, bytes=10, old=(1, 2), new=(2, 3))


@pytest.mark.parametrize(
    ("replicas", "looks", "state"),
    [
        ((1, 2, 3), 4, MoveState.WAITING),
        ((1, 2, 3), 19, MoveState.WAITING),
        ((1, 2, 3), 20, MoveState.CHANGED),
        ((2, 4), 3, MoveState.WAITING),
        ((2, 4), 4, MoveState.CHANGED),
    ],
)
def test_replicas_of_a_move_of_ours_are_asked_for_longer_before_another_tool_is_blamed(
    replicas: tuple[int, ...], looks: int, state: MoveState
) -> None:
    facts = facts_of(model([broker(number) for number in range(1, 5)], [partition("t", 0, 10, replicas)]))
    run = PlanRun(moves=(MOVE,), given_up=frozenset({("t", 0)}), unexplained={("t", 0): looks})

    (status,) = decide(run, facts).statuses

    assert status.state is state
    assert status.why == f"its replicas are {', '.join(map(str, replicas))}"


def test_a_partition_that_no_move_was_submitted_for_was_changed_by_another_tool_after_four_looks() -> None:
    facts = facts_of(model([broker(number) for number in range(1, 5)], [partition("t", 0, 10, (1, 3))]))

    (status,) = decide(PlanRun(moves=(MOVE,), unexplained={("t", 0): 4}), facts).statuses

    assert status.state is MoveState.CHANGED
