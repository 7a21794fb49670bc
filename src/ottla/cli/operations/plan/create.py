"""`ottla plan rebalance`, `add-brokers`, `remove-brokers`, `replication-factor`, `dirs` and `leaders`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.browse.plan_files import parse_ids
from ottla.cli.operations.plan.options import PlanOptions, plans
from ottla.cli.operations.plan.render import show_plan
from ottla.cli.shared.complete import complete_topics
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.output import Output, prints, say

if TYPE_CHECKING:
    from ottla.admin.placement.move_plan import MovePlan
    from ottla.config import Settings

_TO = click.option("-o", "--output", "to", type=FILE, help="Write the plan to a file, for `ottla plan run`.")


@click.command()
@_TO
@plans
@prints
def rebalance(to: Path | None, plan_options: PlanOptions, kafka: Settings, out: Output) -> None:
    """Balance brokers by bytes, with as few moved bytes as possible.

    Lost replicas and racks come first. Leaders are spread by what is written, disks within a broker by bytes.

    \b
    Examples:
      ottla plan rebalance --sample 0s
      ottla plan rebalance --sample 0s -o rebalance.json
      ottla plan rebalance --sample 0s --exclude '__*' --max-fill 0.7
    """
    from ottla.admin.placement import planners

    _finish(plan_options.plan(planners.rebalance, kafka), to, out)


@click.command("add-brokers")
@click.argument("brokers", metavar="ID[,ID...]")
@_TO
@plans
@prints
def add_brokers(brokers: str, to: Path | None, plan_options: PlanOptions, kafka: Settings, out: Output) -> None:
    """Fill new brokers, to which Kafka moves nothing by itself.

    \b
    Examples:
      ottla plan add-brokers 3 --sample 0s
    """
    from ottla.admin.placement import planners

    _finish(plan_options.plan(planners.add_brokers, kafka, parse_ids(brokers)), to, out)


@click.command("remove-brokers")
@click.argument("brokers", metavar="ID[,ID...]")
@_TO
@plans
@prints
def remove_brokers(brokers: str, to: Path | None, plan_options: PlanOptions, kafka: Settings, out: Output) -> None:
    """Move all replicas off brokers, so that they can be stopped; also off brokers that are gone.

    \b
    Examples:
      ottla plan remove-brokers 1 --sample 0s
    """
    from ottla.admin.placement import planners

    _finish(plan_options.plan(planners.remove_brokers, kafka, parse_ids(brokers)), to, out)


@click.command("replication-factor")
@click.argument("topic", shell_complete=complete_topics)
@click.argument("factor", type=click.IntRange(1))
@_TO
@plans
@prints
def replication_factor(
    topic: str, factor: int, to: Path | None, plan_options: PlanOptions, kafka: Settings, out: Output
) -> None:
    """Set the number of replicas of TOPIC. Nothing else moves.

    \b
    Examples:
      ottla plan replication-factor orders 3 --sample 0s
    """
    from ottla.admin.placement import planners

    _finish(plan_options.plan(planners.replication_factor, kafka, {topic: factor}), to, out)


@click.command()
@click.argument("brokers", metavar="[ID[,ID...]]", required=False)
@_TO
@plans
@prints
def dirs(brokers: str | None, to: Path | None, plan_options: PlanOptions, kafka: Settings, out: Output) -> None:
    """Balance the disks within all brokers, or within these. No replica changes its broker.

    \b
    Examples:
      ottla plan dirs --sample 0s
    """
    from ottla.admin.placement import planners

    chosen = None if brokers is None else parse_ids(brokers)
    _finish(plan_options.plan(planners.spread_dirs, kafka, chosen), to, out)


@click.command()
@_TO
@plans
@prints
def leaders(to: Path | None, plan_options: PlanOptions, kafka: Settings, out: Output) -> None:
    """Spread writes over brokers by the order of replicas. No byte is copied.

    \b
    Examples:
      ottla plan leaders --sample 0s
    """
    from ottla.admin.placement import planners

    _finish(plan_options.plan(planners.balance_leaders, kafka), to, out)


def _finish(plan: MovePlan, to: Path | None, out: Output) -> None:
    fields: dict[str, Any] = {}
    if to is not None:
        from ottla.admin.facts.facts_file import write_whole
        from ottla.admin.placement.plan_file import dump_plan

        write_whole(to, dump_plan(plan))
        fields["file"] = str(to)
    show_plan(out, f"plan.{plan.kind}/1", plan, **fields)
    if to is not None:
        say(f"written to {to}; nothing moves until: ottla plan run {to}")
