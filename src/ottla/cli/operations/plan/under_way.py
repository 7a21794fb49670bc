"""`ottla plan status` and `cancel` without a file: all moves under way, whoever began them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.cli.shared.outcome import fail
from ottla.cli.shared.output import say, warn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.admin import Admin
    from ottla.admin.placement.deciding import Status
    from ottla.cli.shared.consent import Consent

_MOST_TOLD = 20


def status_items(statuses: Iterable[Status]) -> list[dict[str, Any]]:
    """An item for each move: how far it is, and what it waits for."""
    return [
        {
            "topic": each.move.topic,
            "partition": each.move.partition,
            "state": each.state.value,
            "copied": each.copied,
            "bytes": each.move.copied,
            "why": each.why,
        }
        for each in statuses
    ]


def items_under_way(admin: Admin) -> list[dict[str, Any]]:
    """The same for all moves under way."""
    from ottla.admin import Part
    from ottla.admin.placement.under_way import statuses_under_way

    return status_items(statuses_under_way(admin.facts({Part.TOPICS, Part.LOG_DIRS, Part.MOVES})))


def cancel_all(admin: Admin, consent: Consent) -> None:
    """Show what is under way, ask, and cancel it. Throttles belong to who set them: those that are left are told."""
    from ottla.admin import Part
    from ottla.admin.placement import asks
    from ottla.admin.placement.throttling import wanted_settings
    from ottla.admin.placement.under_way import moves_under_way

    moves = moves_under_way(admin.facts({Part.TOPICS, Part.MOVES}))
    if not moves:
        say("nothing moves")
        return
    for each in moves[:_MOST_TOLD]:
        say(f"{each.place} stays on {', '.join(map(str, sorted(each.old)))}")
    if len(moves) > _MOST_TOLD:
        say(f"... and {len(moves) - _MOST_TOLD:,} more")
    if not consent.agree(f"Cancel all {len(moves):,} moves that are under way, whoever began them?"):
        return
    refused = admin.carry_out(asks.cancel(each.place for each in moves))
    for place, error in refused.items():
        warn(f"not cancelled: {place}: {error}")
    say(f"{len(moves) - len(refused):,} moves are cancelled")
    topics = {key: value for key, value in wanted_settings(moves, 1).items() if key[0] == "topic"}
    held = sorted({each.resource for each in admin.carry_out(asks.read_settings(topics)) if each.old is not None})
    if held:
        warn(
            f"throttles of {', '.join(held[:5])} are left: `ottla plan cancel FILE` of the plan that set them removes"
            " them, and `ottla doctor --only MOV02` names each"
        )
    if refused:
        fail()
