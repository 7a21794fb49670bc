"""Priorities: one topic per priority, declared once for those who send and those who handle.

    orders = Priorities("orders", ("urgent", "normal", "bulk"), at_least_every=(1, 4, 20))

The topics are `orders.urgent`, `orders` and `orders.bulk`. Kafka reads a partition in its order, so what is urgent
needs a topic of its own. Whose turn it is among them is decided in `ottla.consumer.scheduling.priorities`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from ottla.errors import ConfigError, InputError
from ottla.topics import topic_problem

_PLAIN: Final = "normal"
_SECOND_EVERY: Final = 4
_EACH_LOWER: Final = 5


class Priorities(str):
    """The topics of one kind of message, one per priority, highest first. As a string it is the topic of `default`.

    `names` are the priorities. `at_least_every` says for each how often it gets a turn although higher ones have
    records: 4 means at least every 4th turn. Without it the second has every 4th, and each one below it a fifth of
    that. The first one always has 1. The shares of the others together must be less than the whole.

    `default` (``"normal"`` where there is one) is the priority whose topic has the plain name, and what a send without
    `priority` gets. Raises `ConfigError` for what cannot work.
    """

    __slots__ = ("at_least_every", "base", "default", "names")

    base: str
    """The topic's name without a priority."""
    names: tuple[str, ...]
    at_least_every: tuple[int, ...]
    default: str

    def __new__(
        cls,
        topic: str,
        names: Sequence[str],
        *,
        at_least_every: Sequence[int] | None = None,
        default: str | None = None,
    ) -> Priorities:
        given = tuple(names)
        place = f"Priorities({topic!r})"
        if isinstance(names, str) or len(given) < 2 or len(set(given)) != len(given):
            raise ConfigError(f"{place}: found {names!r}, wanted two or more different names, the highest first")
        plain = _PLAIN if default is None and _PLAIN in given else default
        if plain not in given:
            raise ConfigError(
                f"{place}: found default={default!r}, wanted one of {', '.join(given)}: its topic has the plain name"
            )
        every = tuple(_usual(len(given)) if at_least_every is None else at_least_every)
        _check_every(place, given, every)
        made = super().__new__(cls, topic)
        made.base = str(topic)
        made.names, made.at_least_every, made.default = given, every, plain
        for name in made.topics:
            problem = topic_problem(name)
            if problem is not None:
                raise ConfigError(f"{place}: {problem}")
        return made

    @property
    def topics(self) -> tuple[str, ...]:
        """The topic of each priority, the highest first."""
        return tuple(self.topic(name) for name in self.names)

    def topic(self, priority: str) -> str:
        """Return the topic of a priority. Raises `InputError` for a name that is not declared."""
        if priority not in self.names:
            raise InputError(f"{self.base}: found priority={priority!r}, wanted one of {', '.join(self.names)}")
        return self.base if priority == self.default else f"{self.base}.{priority}"

    def reserved(self, place: str, reserve: Mapping[str, int], *, concurrency: int) -> tuple[int, ...]:
        """Return how many workers are reserved for each priority and those above it. Raises `ConfigError`."""
        for name, workers in reserve.items():
            if name not in self.names:
                raise ConfigError(f"{place}: reserve: found {name!r}, wanted one of {', '.join(self.names)}")
            if not isinstance(workers, int) or isinstance(workers, bool) or workers < 0:
                raise ConfigError(f"{place}: reserve: found {workers!r} workers for {name!r}, wanted 0 or more")
        kept = tuple(reserve.get(name, 0) for name in self.names)
        if kept[-1]:
            raise ConfigError(
                f"{place}: reserve: {self.names[-1]!r} is the lowest priority: nothing can be kept for it"
            )
        if sum(kept) >= concurrency:
            raise ConfigError(
                f"{place}: reserve: found {sum(kept)} workers of concurrency={concurrency}, wanted at least one left "
                f"for {self.names[-1]!r}"
            )
        return kept

    def __repr__(self) -> str:
        return f"Priorities({self.base!r}, {self.names!r}, at_least_every={self.at_least_every!r})"

    def __getnewargs_ex__(self) -> Any:
        return (self.base, self.names), {"at_least_every": self.at_least_every, "default": self.default}


def with_priority(topic: str, priority: str) -> str:
    """Return the topic for a send with a priority. Raises `InputError` without declared priorities."""
    if not isinstance(topic, Priorities):
        raise InputError(f"{topic}: found priority={priority!r}, wanted a topic of Priorities(...), which declares it")
    return topic.topic(priority)


def topics_of(place: str, topics: Sequence[str]) -> tuple[tuple[str, ...], Priorities | None]:
    """Return (all topics by name, the priorities among them). Raises `ConfigError` for priorities beside other
    topics."""
    found = next((topic for topic in topics if isinstance(topic, Priorities)), None)
    if found is None:
        return tuple(topics), None
    if len(topics) > 1:
        raise ConfigError(
            f"{place}: found {found!r} beside other topics, wanted it alone: only its own topics take turns"
        )
    return found.topics, found


def _usual(count: int) -> list[int]:
    return [1, *(_SECOND_EVERY * _EACH_LOWER**lower for lower in range(count - 1))]


def _check_every(place: str, names: tuple[str, ...], every: tuple[int, ...]) -> None:
    if len(every) != len(names):
        raise ConfigError(f"{place}: found {len(every)} values in at_least_every, wanted one for each of {len(names)}")
    for name, turns in zip(names, every, strict=True):
        if not isinstance(turns, int) or isinstance(turns, bool) or turns < 1:
            raise ConfigError(
                f"{place}: at_least_every: found {turns!r} for {name!r}, wanted a number of turns, 1 or more"
            )
    if every[0] != 1:
        raise ConfigError(f"{place}: at_least_every: found {every[0]} for {names[0]!r}, wanted 1: it is the highest")
    owed = sum(Fraction(1, turns) for turns in every[1:])
    if owed >= 1:
        raise ConfigError(
            f"{place}: at_least_every: {', '.join(names[1:])} are owed {float(owed):.2f} of all turns together, wanted "
            f"less than 1: nothing would be left for {names[0]!r}"
        )
