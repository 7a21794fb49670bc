"""Subscription by pattern, in time proportional to pattern times name, whatever the pattern.

Python's `re` backtracks: `(a+)+b` against a long name would stop the broker, and with it every other client. Kafka uses
RE2J for the same reason. So Python's parser reads the pattern, and an automaton without backtracking runs it: all the
states that the name read so far can lead to, character by character. What such an automaton cannot do (back
references, look-around, atomic groups) is refused, as RE2J refuses it.

Topic names know 65 characters, so a character class is the set of those that it takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from re import _constants as op  # type: ignore[attr-defined]  # typeshed does not know it; stable since Python 3.11
from re import _parser  # type: ignore[attr-defined]
from string import ascii_letters, digits
from typing import Any, NamedTuple

from broker_embedded.common.errors import BrokerError
from ottla_wire.protocol import ErrorCode

MAX_STATES = 1000
"""Repetitions with a count are written out; a pattern that becomes larger is refused, as RE2J bounds its programs."""

MAX_CHARACTERS = 10_000
"""Longer patterns are refused without parsing, which takes about a microsecond per character."""

_ALPHABET = ascii_letters + digits + "._-"
_WORD = frozenset(ascii_letters + digits + "_")
_CATEGORIES = {
    op.CATEGORY_DIGIT: frozenset(digits),
    op.CATEGORY_NOT_DIGIT: frozenset(_ALPHABET) - frozenset(digits),
    op.CATEGORY_WORD: _WORD,
    op.CATEGORY_NOT_WORD: frozenset(_ALPHABET) - _WORD,
    op.CATEGORY_SPACE: frozenset(),
    op.CATEGORY_NOT_SPACE: frozenset(_ALPHABET),
}


class Where(Enum):
    """Conditions on a position."""

    BEGINNING = auto()
    END = auto()
    BOUNDARY = auto()
    NO_BOUNDARY = auto()


_POSITIONS = {
    op.AT_BEGINNING: Where.BEGINNING,
    op.AT_BEGINNING_STRING: Where.BEGINNING,
    op.AT_END: Where.END,
    op.AT_END_STRING: Where.END,
    op.AT_BOUNDARY: Where.BOUNDARY,
    op.AT_NON_BOUNDARY: Where.NO_BOUNDARY,
}


class PatternState(NamedTuple):
    """Takes one of `characters` and goes to `following[0]`; or, without them, to all that follow if `where` holds."""

    characters: frozenset[str] | None
    following: tuple[int, ...]
    where: Where | None = None


class SubscriptionPattern:
    """A compiled pattern. Raises BrokerError (INVALID_REGULAR_EXPRESSION) for an invalid pattern, or one that cannot be
    matched in linear time."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._states: list[PatternState] = [PatternState(None, ())]  # the first one is the end of every match
        if len(pattern) > MAX_CHARACTERS:
            raise self._refused(f"is too long: {len(pattern)} characters, wanted {MAX_CHARACTERS} at most")
        try:
            parsed = _parser.parse(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise self._refused(f"is not a regular expression: {error}") from None
        try:
            self._start = self._sequence(parsed, 0, parsed.state.flags)
        except RecursionError:
            raise self._refused("is nested too deeply") from None

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches the whole name."""
        current = self._reachable([self._start], name, 0)
        for at, character in enumerate(name):
            nexts = []
            for index in current:
                state = self._states[index]
                if state.characters is not None and character in state.characters:
                    nexts.append(state.following[0])
            if not nexts:
                return False
            current = self._reachable(nexts, name, at + 1)
        return 0 in current

    def _reachable(self, starts: Iterable[int], name: str, at: int) -> set[int]:
        """Return `starts` and every state reachable without a character."""
        seen: set[int] = set()
        waiting = list(starts)
        while waiting:
            index = waiting.pop()
            if index in seen:
                continue
            seen.add(index)
            state = self._states[index]
            if state.characters is None and (state.where is None or _holds(state.where, name, at)):
                waiting += state.following
        return seen

    # -- building, from the end of the pattern to its start

    def _add(self, state: PatternState) -> int:
        if len(self._states) >= MAX_STATES:
            raise self._refused(f"is too large: more than {MAX_STATES} states")
        self._states.append(state)
        return len(self._states) - 1

    def _sequence(self, items: Sequence[Any], then: int, flags: int) -> int:
        for code, argument in reversed(items):
            then = self._item(code, argument, then, flags)
        return then

    def _item(self, code: Any, argument: Any, then: int, flags: int) -> int:
        if code in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN):
            return self._add(PatternState(_characters(code, argument, flags), (then,)))
        if code is op.BRANCH:
            return self._add(PatternState(None, tuple(self._sequence(each, then, flags) for each in argument[1])))
        if code is op.SUBPATTERN:
            _, added, removed, items = argument
            return self._sequence(items, then, (flags | added) & ~removed)
        if code in (op.MAX_REPEAT, op.MIN_REPEAT):
            least, most, items = argument
            return self._repeat(least, most, items, then, flags)
        if code is op.AT:
            return self._add(PatternState(None, (then,), _POSITIONS[argument]))
        raise self._refused(f"uses {str(code).lower().replace('_', ' ')}, which cannot be matched without backtracking")

    def _repeat(self, least: int, most: Any, items: Sequence[Any], then: int, flags: int) -> int:
        if most is op.MAXREPEAT:
            loop = self._add(PatternState(None, ()))
            self._states[loop] = PatternState(None, (self._sequence(items, loop, flags), then))
            then = loop
        else:
            after = then
            for _ in range(most - least):
                then = self._add(PatternState(None, (self._sequence(items, then, flags), after)))
        for _ in range(least):
            before, then = then, self._sequence(items, then, flags)
            if before == then:  # nothing to repeat
                break
        return then

    def _refused(self, why: str) -> BrokerError:
        shown = self._pattern if len(self._pattern) <= 100 else self._pattern[:100] + "…"
        return BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{shown!r} {why}")


def _holds(where: Where, name: str, at: int) -> bool:
    if where is Where.BEGINNING:
        return at == 0
    if where is Where.END:
        return at == len(name)
    before = at > 0 and name[at - 1] in _WORD
    after = at < len(name) and name[at] in _WORD
    return (before != after) == (where is Where.BOUNDARY)


def _characters(code: Any, argument: Any, flags: int) -> frozenset[str]:
    found: set[str] = set()
    if code is op.ANY:
        return frozenset(_ALPHABET)
    items = argument if code is op.IN else [(op.LITERAL, argument)]
    for kind, value in items:
        if kind is op.LITERAL:
            found.add(chr(value))
        elif kind is op.RANGE:
            found.update(each for each in _ALPHABET if value[0] <= ord(each) <= value[1])
        elif kind is op.CATEGORY:
            found |= _CATEGORIES[value]
    if flags & re.IGNORECASE:
        found |= {each.swapcase() for each in found if each in _ALPHABET}
    is_negated = code is op.NOT_LITERAL or (code is op.IN and items[0][0] is op.NEGATE)
    return frozenset(_ALPHABET) - found if is_negated else frozenset(found)
