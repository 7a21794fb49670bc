"""`ottla plan status` and `cancel` without a file: all moves in progress, those of other tools included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.operations.plan.results import show_staying
from ottla.cli.shared.outcome import fail
from ottla.cli.shared.output import Output, say, warn

if TYPE_CHECKING:
    from ottla.admin import Admin
    from ottla.admin.placement.deciding import Status
    from ottla.cli.shared.consent import Consent


def seen_under_way(admin: Admin) -> tuple[Status, ...]:
    """Return how far all moves under way are."""
    from ottla.admin import Part
    from ottla.admin.placement.moves_in_progress import statuses_under_way

    return statuses_under_way(admin.facts({Part.TOPICS, Part.LOG_DIRS, Part.MOVES}))


def cancel_all(admin: Admin, out: Output, consent: Consent) -> None:
    """Show what is under way, ask, and cancel it. Throttles belong to who set them: those that are left are printed."""
    from ottla.admin import Part
    from ottla.admin.placement import move_requests as asks
    from ottla.admin.placement.moves_in_progress import moves_under_way, statuses_under_way
    from ottla.admin.placement.run_throttles import wanted_settings

    facts = admin.facts({Part.TOPICS, Part.LOG_DIRS, Part.MOVES})
    moves = moves_under_way(facts)
    show_staying(out, statuses_under_way(facts), empty="nothing moves", complete=not moves)
    if not moves:
        return
    if not consent.agree(f"Cancel all {len(moves):,} moves in progress, also those of other tools?"):
        return
    refused = admin.carry_out(asks.cancel(each.place for each in moves))
    for error in refused.values():
        warn(f"not cancelled: {error}")
    say(f"{len(moves) - len(refused):,} moves are cancelled")
    topics = {key: value for key, value in wanted_settings(moves, 1).items() if key[0] == "topic"}
    held = sorted({each.resource for each in admin.carry_out(asks.read_settings(topics)) if each.old is not None})
    if held:
        warn(
            f"throttles of {', '.join(held[:5])} are left: `ottla plan cancel FILE` of the plan that set them removes"
            " them, and `ottla plan throttle --clear` all that are left"
        )
    if refused:
        fail()
