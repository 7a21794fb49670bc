"""Moves under way, whoever began them: cancelled, and throttled while they last.

A throttle that is set here is taken away when the moves are over, if it is still as it was set here: a run of a plan
that ends meanwhile puts back what it found itself. When the console ends first, the throttle stays as the moves do; the
audit file has the values of before, and the doctor's MOV02 finds what is left.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ottla.admin import Part
from ottla.admin.placement import move_requests as asks
from ottla.admin.placement.moves_in_progress import moves_under_way, place_of, replicas_before
from ottla.admin.placement.run_throttles import RATES, ThrottleSetting, check_rate, wanted_settings
from ottla.browse.human_amounts import bytes_of
from ottla.console.jobs import Job, Stopped
from ottla.console.query import Query
from ottla.errors import BrokerUnavailable, InputError, RetriableError
from ottla.records import TopicPartition

if TYPE_CHECKING:
    from ottla.console.state import ConsoleState

KIND: Final = "throttle"
_SUBJECT: Final = "moves under way"
_MOST_MOVES: Final = 1_000
_LOOK_S: Final = 2.0


def cancel(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Cancel the named moves. A move that has ended is no error; a refused cancel is reported."""
    given = query.anything("moves")
    console.agree(query)
    places = places_of(given)
    moving = {place_of(each): each for each in console.seen(fresh=True).facts.moves}
    chosen = {place: moving[place] for place in places if place in moving}
    refused: asks.Refused = {}
    if chosen:
        console.audit(
            "moves.cancel",
            ", ".join(map(str, chosen)),
            before={str(place): list(each.replicas) for place, each in chosen.items()},
            after={str(place): list(replicas_before(each)) for place, each in chosen.items()},
        )
        refused = console.admin.carry_out(asks.cancel(chosen))
        console.seen(fresh=True)
    return {
        "schema": "ottla.console.moves-cancelled/1",
        "cancelled": [str(place) for place in chosen if place not in refused],
        "refused": [str(error) for error in refused.values()],
        "over": [str(place) for place in places if place not in moving],
    }


def throttle(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Hold all moves under way to a rate, in bytes per second for each broker, until they are over."""
    given = query.needed("throttle")
    console.agree(query)
    rate = bytes_of("throttle", given)
    seen = console.seen(fresh=True)
    moves = moves_under_way(seen.facts, seen.rates)
    check_rate(rate, moves)
    if not moves:
        raise InputError("throttle: found no move under way, wanted at least one")
    places = {each.place for each in moves}
    held = console.held_throttle
    with held.lock:
        found = console.admin.carry_out(asks.read_settings(wanted_settings(moves, rate)))
        settings = _with_what_was(found, held.settings, rate)
        job = held.job
        if job is None:
            job = console.jobs.begin(KIND, _SUBJECT, lambda job: _hold(console, job))
        try:
            console.audit(
                "moves.throttle",
                ", ".join(map(str, sorted(places))),
                before={_name(each): each.old for each in settings},
                after={_name(each): each.new for each in settings},
            )
        except InputError:
            if held.job is None:
                job.stop.set()
            raise
        held.settings, held.places, held.job = settings, places, job
        job.standing = {"throttle": rate}
        failed = console.admin.carry_out(asks.set_all(settings, back=False))
    if failed:
        raise BrokerUnavailable("; ".join(f"not changed: {what}: {error}" for what, error in failed.items()))
    return job.item()


class HeldThrottle:
    """The throttle that this console has set: its settings with what was there before, and the moves it is for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.settings: list[ThrottleSetting] = []
        self.places: set[TopicPartition] = set()
        self.job: Job | None = None


def places_of(given: Any) -> list[TopicPartition]:
    """Return partitions as a page names them, `[["orders", 3], ...]`. InputError for anything else."""
    if not isinstance(given, list) or not 0 < len(given) <= _MOST_MOVES:
        raise InputError(f"moves: wanted a list of 1 to {_MOST_MOVES:,} pairs of topic and partition")
    for each in given:
        is_pair = isinstance(each, list) and len(each) == 2
        if not is_pair or not isinstance(each[0], str) or type(each[1]) is not int or each[1] < 0:
            raise InputError(f'moves: found {str(each)[:60]!r}, wanted a topic and a partition, as ["orders", 3]')
    return list(dict.fromkeys(TopicPartition(topic, partition) for topic, partition in given))


def _hold(console: ConsoleState, job: Job) -> None:
    """Wait for the end of the moves, or until the throttle is removed, and restore the settings."""
    held = console.held_throttle
    while not job.stop.wait(_LOOK_S):
        try:
            moving = {place_of(each) for each in console.admin.facts({Part.MOVES}).moves}
        except RetriableError as error:
            job.progress = {"problem": str(error)}
            continue
        job.progress = {}
        with held.lock:
            if not moving & held.places:
                _put_back(console, held)
                return
    if not job.is_left:
        with held.lock:
            _put_back(console, held)
    raise Stopped


def _put_back(console: ConsoleState, held: HeldThrottle) -> None:
    """Restore settings, except those that were changed since."""
    wanted = {(each.kind, each.resource, each.name): each for each in held.settings}
    held.settings, held.job = [], None
    if not wanted:
        return
    now = console.admin.carry_out(asks.read_settings({key: each.new for key, each in wanted.items()}))
    ours = [wanted[key] for each in now if each.old == wanted[key := (each.kind, each.resource, each.name)].new]
    failed = console.admin.carry_out(asks.set_all(ours, back=True))
    if failed:
        raise BrokerUnavailable("; ".join(f"a throttle is left: {what}: {error}" for what, error in failed.items()))


def _with_what_was(
    found: Sequence[ThrottleSetting], before: Sequence[ThrottleSetting], rate: int
) -> list[ThrottleSetting]:
    """Return settings to set now. What was there before this console's first throttle is kept, of moves that ended
    too."""
    known = {(each.kind, each.resource, each.name): each for each in before}
    settings = {(each.kind, each.resource, each.name): each for each in found}
    for key, each in known.items():
        now = settings.get(key)
        new = str(rate) if each.name in RATES else (each.new if now is None else now.new)
        settings[key] = replace(each, new=new)
    return list(settings.values())


def _name(setting: ThrottleSetting) -> str:
    return f"{setting.kind} {setting.resource} {setting.name}"
