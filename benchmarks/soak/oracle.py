"""Whether nothing was lost: every event that was sent is on the board or among the dead letters, each where it belongs.

What an event's fate is follows from its id and its flight, by the demo's own rules. Duplicates are counted and allowed:
the service commits at least once, and its members are killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ottla.cli.demo.model import Flight, is_flaky, is_truncated

SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was read back. Ids are event ids, one per record, repeats kept."""

    in_topic: Sequence[int]
    handled: Sequence[tuple[int, int]]
    """Event id, and at which attempt it was handled."""
    dead: Sequence[tuple[int, str]]
    """Event id, and the kind of its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What became of everything."""

    sent: int
    handled: int
    dead: int
    duplicates: int
    violations: tuple[str, ...]


def settle(flights: Sequence[Flight], sent: int, found: Found) -> Account:
    """Hold what was read back against `sent` events, which are the flights over and over."""
    fates = [_fate(event_id, flights[event_id % len(flights)]) for event_id in range(sent)]
    dead: dict[int, set[str]] = {}
    for event_id, kind in found.dead:
        dead.setdefault(event_id, set()).add(kind)
    handled: dict[int, int] = {}
    for event_id, attempt in found.handled:
        handled[event_id] = min(attempt, handled.get(event_id, attempt))
    in_topic = set(found.in_topic)
    everything = set(range(sent))
    violations = [
        *_some("sent, acknowledged and not in the topic", everything - in_topic),
        *_some("in the topic and never sent", in_topic - everything),
        *_some("in the topic more than once: idempotence is broken", _repeated(found.in_topic)),
        *_some("lost: neither handled nor dead", everything - handled.keys() - dead.keys()),
        *_some("handled or dead and never sent", (handled.keys() | dead.keys()) - everything),
    ]
    wrongly_dead = {each for each, kinds in dead.items() if each < sent and kinds != {fates[each]}}
    violations += _some("dead for another reason than its own, or without any", wrongly_dead)
    wrongly_handled = {each for each in handled if each < sent and fates[each] in ("malformed", "invalid")}
    violations += _some("handled although it cannot be", wrongly_handled)
    too_early = {each for each, attempt in handled.items() if each < sent and fates[each] == "flaky" and attempt != 3}
    violations += _some("flaky and not handled at the third attempt", too_early)
    return Account(
        sent=sent,
        handled=len(handled),
        dead=len(dead),
        duplicates=len(found.handled) + len(found.dead) - len(handled) - len(dead),
        violations=tuple(violations),
    )


def _fate(event_id: int, flight: Flight) -> str:
    """`malformed` and `invalid` are the kinds of dead letters; `flaky` and `fine` are handled."""
    if is_truncated(event_id):
        return "malformed"
    if flight.dep_time is None:
        return "invalid"
    return "flaky" if is_flaky(event_id) else "fine"


def _repeated(ids: Iterable[int]) -> set[int]:
    seen: set[int] = set()
    return {each for each in ids if each in seen or seen.add(each)}  # type: ignore[func-returns-value]


def _some(what: str, ids: Iterable[int]) -> list[str]:
    found = sorted(ids)
    if not found:
        return []
    shown = ", ".join(str(each) for each in found[:SHOWN]) + (" ..." if len(found) > SHOWN else "")
    return [f"{len(found):,} events are {what}: {shown}"]
