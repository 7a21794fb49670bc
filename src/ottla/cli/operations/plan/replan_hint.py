"""The hint about moves whose targets are lost: wait for these, or plan again from the current cluster."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.admin.placement.deciding import Status


def offers(file: Path, kind: str, statuses: Sequence[Status]) -> list[str]:
    """Return the hint after a run that gave moves up; empty if it gave none up. `kind` is the plan's kind."""
    from ottla.admin.placement.deciding import MoveState

    given_up = [each for each in statuses if each.state is MoveState.GIVEN_UP and each.move.adding]
    if not given_up:
        return []
    lost = sorted({broker for each in given_up for broker in each.lost})
    away = f"down: broker {', '.join(map(str, lost))}; " if lost else ""
    moves = "1 move was" if len(given_up) == 1 else f"{len(given_up):,} moves were"
    lines = [f"{away}{moves} given up; their replicas stay where they were"]
    lines.append(f"  the same targets:  {shlex.join(['ottla', 'plan', 'run', str(file)])}")
    target = str(file.with_name(f"{file.stem}.again.json"))
    for command in _commands(kind, given_up):
        lines.append(f"  other targets:     {shlex.join(['ottla', 'plan', *command, '-o', target])}")
        target = "..."  # one file for each
    return lines


def _commands(kind: str, given_up: Sequence[Status]) -> list[list[str]]:
    if kind == "replication-factor":
        factors = {each.move.topic: len(each.move.new) for each in given_up}
        return [[kind, topic, str(factor)] for topic, factor in sorted(factors.items())]
    if kind == "remove-brokers":
        left = sorted({broker for each in given_up for broker in each.move.removing})
        return [[kind, ",".join(map(str, left))]]
    return [["rebalance"]]
