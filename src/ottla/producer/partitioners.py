"""Which partition a record goes to. One table says what each does with a key and without one.

| name | a key | a null key | an empty key |
|---|---|---|---|
| `murmur2` (default) | murmur2, as Kafka's Java client | sticky: one partition per batch, then another | as a key |
| `murmur2_random` | murmur2 | random for each record | as a key |
| `consistent` | CRC-32, as librdkafka | **all in one partition**, with a warning | as a key: one partition |
| `consistent_random` | CRC-32, as librdkafka's default | random for each record | random for each record |
| `fnv1a` | FNV-1a, as Sarama and librdkafka | **all in one partition**, with a warning | as a key |
| `fnv1a_random` | FNV-1a | random for each record | as a key |
| `random` | random, keys are ignored | random | random |
| `round_robin` | each record the next partition, keys are ignored | the same | the same |
| `sticky` | one partition per batch, keys are ignored | the same | the same |
| `explicit` | none: every send names its partition | none | none |

librdkafka's own `murmur2` puts all null keys into one partition; Ottla's does what the Java client does, because that
is the trap people fall into. A partition given to `send` always wins. Where all keys are hashed the result depends on
the number of partitions: adding partitions moves keys.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from random import Random
from typing import Final

from ottla.errors import ConfigError, InputError
from ottla.key_hashes import crc32, fnv1a, positive_murmur2

CustomPartitioner = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
"""`(key, all_partitions, available_partitions) -> partition`: what aiokafka and kafka-python call a partitioner."""


class NullKeysInOnePartition(UserWarning):
    """The chosen partitioner puts every record without a key into the same partition. Is that meant?"""


class NullKeys(Enum):
    """Partitioning of records without a key."""

    STICKY = "one partition per batch, then another"
    RANDOM = "a random partition, each record anew"
    ONE_PARTITION = "all in one partition"
    IGNORED = "the key makes no difference"


class Partitioner(ABC):
    """Chooses among `partitions` (all, sorted); `available` are those that have a leader now, possibly none.

    Not thread-safe: the shell that owns it calls it under its own lock, or from its loop.
    """

    name: str
    null_keys: NullKeys

    @abstractmethod
    def choose(self, key: bytes | None, partitions: Sequence[int], available: Sequence[int], *, topic: str) -> int:
        """Return the partition for a record with this encoded key."""

    def batch_is_full(self, topic: str) -> None:  # noqa: B027 - most have nothing to do
        """Choose another partition if sticky: a batch of this topic was closed."""


class Hashed(Partitioner):
    """A hash of the key modulo the number of partitions: the same key, the same partition, while the number stays."""

    def __init__(
        self,
        name: str,
        hash_of: Callable[[bytes], int],
        null_keys: NullKeys,
        *,
        random: Random,
        sticky: Sticky | None = None,
        empty_is_null: bool = False,
    ) -> None:
        self.name = name
        self.null_keys = null_keys
        self._hash_of = hash_of
        self._random = random
        self._sticky = sticky
        self._empty_is_null = empty_is_null
        self._warned = False

    def choose(self, key: bytes | None, partitions: Sequence[int], available: Sequence[int], *, topic: str) -> int:
        has_key = bool(key) if self._empty_is_null else key is not None
        if has_key:
            return partitions[self._hash_of(key or b"") % len(partitions)]
        if self._sticky is not None:
            return self._sticky.choose(None, partitions, available, topic=topic)
        if self.null_keys is NullKeys.RANDOM:
            return self._random.choice(available or partitions)
        if not self._warned:
            self._warned = True
            warn_of_null_keys(self.name, topic)
        return partitions[self._hash_of(b"") % len(partitions)]

    def batch_is_full(self, topic: str) -> None:
        if self._sticky is not None:
            self._sticky.batch_is_full(topic)


class RandomChoice(Partitioner):
    """Any partition that has a leader."""

    name = "random"
    null_keys = NullKeys.IGNORED

    def __init__(self, *, random: Random) -> None:
        self._random = random

    def choose(self, key: bytes | None, partitions: Sequence[int], available: Sequence[int], *, topic: str) -> int:
        return self._random.choice(available or partitions)


class RoundRobin(Partitioner):
    """The next partition with each record; one without a leader is passed over. Starts anywhere, per topic."""

    name = "round_robin"
    null_keys = NullKeys.IGNORED

    def __init__(self, *, random: Random) -> None:
        self._random = random
        self._next: dict[str, int] = {}

    def choose(self, key: bytes | None, partitions: Sequence[int], available: Sequence[int], *, topic: str) -> int:
        choices = available or partitions
        turn = self._next.get(topic)
        if turn is None:
            turn = self._random.randrange(len(choices))
        self._next[topic] = turn + 1
        return choices[turn % len(choices)]


class Sticky(Partitioner):
    """One partition until its batch is full, then another (KIP-480): whole batches instead of many small ones.

    The owner says when a batch is full; where it cannot know, `records_per_turn` ends a turn as well.
    """

    name = "sticky"
    null_keys = NullKeys.IGNORED

    def __init__(self, *, random: Random, records_per_turn: int | None = None) -> None:
        self._random = random
        self._records_per_turn = records_per_turn
        self._current: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._taken: dict[str, int] = {}

    def choose(self, key: bytes | None, partitions: Sequence[int], available: Sequence[int], *, topic: str) -> int:
        choices = available or partitions
        current = self._current.get(topic)
        if current is None or current not in choices:
            last = self._last.get(topic, current)
            others = [partition for partition in choices if partition != last] or choices
            current = self._current[topic] = self._random.choice(others)
            self._taken[topic] = 0
        if self._records_per_turn is not None:
            self._taken[topic] += 1
            if self._taken[topic] >= self._records_per_turn:
                self.batch_is_full(topic)
        return current

    def batch_is_full(self, topic: str) -> None:
        current = self._current.pop(topic, None)
        if current is not None:
            self._last[topic] = current


class Explicit(Partitioner):
    """No partitioner: a send without a partition is refused."""

    name = "explicit"
    null_keys = NullKeys.IGNORED

    def choose(self, key: bytes | None, partitions: Sequence[int], available: Sequence[int], *, topic: str) -> int:
        raise InputError(f"{topic}: found no partition, wanted send(..., partition=n), because partitioner=explicit")


class Custom(Partitioner):
    """The caller's own function."""

    null_keys = NullKeys.IGNORED

    def __init__(self, function: CustomPartitioner) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self._function = function

    def choose(self, key: bytes | None, partitions: Sequence[int], available: Sequence[int], *, topic: str) -> int:
        try:
            chosen = self._function(key, partitions, available)
        except Exception as error:  # the caller's mistake, reported as the record's failure
            raise InputError(f"{topic}: partitioner {self.name} raised {error!r}") from error
        if chosen not in partitions:
            raise InputError(
                f"{topic}: partitioner {self.name} chose {chosen!r}, wanted one of 0 to {len(partitions) - 1}"
            )
        return chosen


PARTITIONERS: Final = (
    "murmur2",
    "murmur2_random",
    "consistent",
    "consistent_random",
    "fnv1a",
    "fnv1a_random",
    "random",
    "round_robin",
    "sticky",
    "explicit",
)

STICKY_RECORDS: Final = 1_000
"""Maximum records of a sticky turn in a shell that does not see batches close."""


def is_known_partitioner(name: str) -> bool:
    return name in PARTITIONERS


def make_partitioner(choice: str | CustomPartitioner | Partitioner, *, random: Random) -> Partitioner:
    """Return the partitioner by its name, or around a function. Chance is an argument, so that a test can hold it."""
    if isinstance(choice, Partitioner):
        return choice
    if callable(choice):
        return Custom(choice)
    sticky = Sticky(random=random, records_per_turn=STICKY_RECORDS)
    match choice:
        case "murmur2":
            return Hashed(choice, positive_murmur2, NullKeys.STICKY, random=random, sticky=sticky)
        case "murmur2_random":
            return Hashed(choice, positive_murmur2, NullKeys.RANDOM, random=random)
        case "consistent":
            return Hashed(choice, crc32, NullKeys.ONE_PARTITION, random=random)
        case "consistent_random":
            return Hashed(choice, crc32, NullKeys.RANDOM, random=random, empty_is_null=True)
        case "fnv1a":
            return Hashed(choice, fnv1a, NullKeys.ONE_PARTITION, random=random)
        case "fnv1a_random":
            return Hashed(choice, fnv1a, NullKeys.RANDOM, random=random)
        case "random":
            return RandomChoice(random=random)
        case "round_robin":
            return RoundRobin(random=random)
        case "sticky":
            return sticky
        case "explicit":
            return Explicit()
    raise ConfigError(
        f"partitioner: found {choice!r}, wanted one of {', '.join(PARTITIONERS)}, or a function "
        "(key, all_partitions, available_partitions) -> partition"
    )


def warn_of_null_keys(name: str, topic: str) -> None:
    """Say once that records without a key pile up."""
    warnings.warn(
        f"{topic}: partitioner {name} puts every record without a key into one partition; "
        f"use {'murmur2' if name == 'murmur2' else name + '_random'} to spread them",
        NullKeysInOnePartition,
        stacklevel=2,
    )
