"""`ottla plan check FILE`: what anybody's plan would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.operations.plan.options import PlanOptions, plans
from ottla.cli.operations.plan.render import show_plan
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.outcome import fail
from ottla.cli.shared.output import Output, prints, warn

if TYPE_CHECKING:
    from ottla.config import Settings


@click.command()
@click.argument("file", type=FILE)
@plans
@prints
def check(file: Path, plan_options: PlanOptions, kafka: Settings, out: Output) -> None:
    """Check a plan: one of Ottla's, of kafka-reassign-partitions, or written by hand.

    It prints the bytes to move, the brokers and leaders afterwards, lost racks and missing brokers. The exit code is 1
    if the plan has a problem.

    \b
    Examples:
      ottla plan check rebalance.json --sample 0s
    """
    from ottla.admin.facts.facts_file import read_bounded
    from ottla.admin.placement.plan_file import load_plan
    from ottla.admin.placement.plan_judgement import judge

    wanted = load_plan(read_bounded(file), source=str(file))
    judged = judge(wanted, plan_options.model(kafka), goals=plan_options.goals())
    show_plan(
        out, "plan.check/1", judged.plan, problems=list(judged.problems), warnings=list(judged.warnings), file=str(file)
    )
    for warning in judged.warnings:
        warn(f"warning: {warning}")
    for problem in judged.problems:
        warn(f"problem: {problem}")
    if judged.problems:
        fail()
