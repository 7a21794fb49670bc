"""Replication factors that `ottla apply` changes: placed by the planner of `ottla plan`, and moved as it moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from ottla.browse.reset_items import undo_path
from ottla.cli.shared.options import takes
from ottla.cli.shared.outcome import changing, complain, fail
from ottla.cli.shared.output import say, warn
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.admin import Admin
    from ottla.admin.declared.apply_plan import ApplyPlan
    from ottla.admin.placement.move_plan import MovePlan
    from ottla.config import Settings


takes_a_throttle: Final = takes(
    click.option(
        "--throttle", metavar="SIZE", help="Where replicas are copied: bytes per second for each broker, as 50MB."
    ),
    click.option("--no-throttle", is_flag=True, help="Copy replicas without a limit, also above 1 GiB."),
)
"""`--throttle` and `--no-throttle`, as `ottla plan run` has them."""


def check_moves(admin: Admin, factors: Mapping[str, int], *, throttle: str | None, no_throttle: bool) -> None:
    """Raise InputError for replicas that cannot be placed, or that need a throttle, before anything is changed."""
    from ottla.admin.placement.executor import RunOptions
    from ottla.browse.human_amounts import bytes_of
    from ottla.browse.plan_files import check_throttle

    if throttle is not None and no_throttle:
        raise InputError("found --throttle and --no-throttle, wanted one of them")
    rate = None if throttle is None else bytes_of("--throttle", throttle)
    moves = planned_moves(admin, factors)
    if moves is not None:
        check_throttle(RunOptions(throttle=rate), moves.moves, said=no_throttle)


def planned_moves(admin: Admin, factors: Mapping[str, int]) -> MovePlan | None:
    """Return where the planner puts the replicas. InputError for more than there are brokers."""
    from ottla.admin import Part
    from ottla.admin.placement import planners
    from ottla.admin.placement.modelling import model_of

    if not factors:
        return None
    facts = admin.facts({Part.TOPICS, Part.LOG_DIRS, Part.OFFSETS, Part.MOVES})
    return planners.replication_factor(model_of(facts, may_move=lambda topic: topic in factors), factors)


def move_replicas(kafka: Settings, admin: Admin, plan: ApplyPlan, *, throttle: str | None, no_throttle: bool) -> None:
    """Move replicas where the planner puts them. Where some are added, the planner's plan is written to a file and run:
    a kill half way is continued by `ottla plan run`. Where some are only removed, nothing is copied."""
    from ottla.admin import ReplicaMove
    from ottla.admin.facts.facts_file import write_whole
    from ottla.admin.placement.executor import RunOptions
    from ottla.admin.placement.plan_file import dump_plan
    from ottla.browse.human_amounts import bytes_of
    from ottla.cli.operations.plan.execution import carry_out
    from ottla.cli.operations.plan.interrupted import left_to_brokers

    moves = planned_moves(admin, plan.replica_factors)
    if moves is None:
        return
    fewer = [each for each in moves.moves if len(each.new) < len(each.old)]
    with changing():
        admin.alter_replicas(
            [ReplicaMove(topic=each.topic, partition=each.partition, old=each.old, new=each.new) for each in fewer]
        )
    moves = replace(moves, moves=tuple(each for each in moves.moves if each not in fewer))
    if not moves.moves:
        return
    file = undo_path(None, "apply", plan.at_ms, what="replicas")
    write_whole(file, dump_plan(moves))
    rate = None if throttle is None else bytes_of("--throttle", throttle)
    go_on = f"ottla plan run {file}"
    try:
        with left_to_brokers(file, go_on=go_on):
            outcome = carry_out(
                kafka,
                admin,
                file,
                RunOptions(throttle=rate),
                may_be_unthrottled=no_throttle,
                sample_s=0.0,
                agree=lambda question: True,
            )
    except InputError as error:
        complain(error)
        warn(f"the other changes are made; move the replicas with: {go_on}")
        fail()
    if outcome is not None and not outcome.is_complete:
        for each in outcome.not_done:
            warn(f"not done: {each.move.place}: {each.state.value}{f': {each.why}' if each.why else ''}")
        warn(f"the other changes are made; continue with: {go_on}")
        fail()
    say(f"replicas: moved by {file}; ottla plan run {file}.rollback.json moves them back")
