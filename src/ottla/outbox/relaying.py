"""Decisions of a relay: which rows to send, which are done or refused, and which wait behind them.

The order of a key holds because of three rules:

1. Rows are taken in the order of their ids. A topic's next rows are taken when all those before are settled and what
   became of them is in the database.
2. A row that was refused is parked, and nothing of its key is taken until an operator retries or drops it.
3. The producer stops at a record that cannot be delivered instead of passing over it (`enable.gapless.guarantee`), and
   gives up no record for being late. What it did not deliver is read again.

So at any time the log of a key is a beginning of its rows, with repetitions at most of the last ones. That stays true
with two relays, one of which does not know yet that it has been replaced: each of them writes every key in order from
its first row that is not known to be delivered, so the first copies are in order in whichever way they mix. This is why
the lease needs no fencing token.

What happens to a record that failed depends on what failed:

- The record itself (too large, a partition that is not there, headers that cannot be read): the row is parked with the
  reason, and its key waits.
- Its topic (missing, no permission, a limit below `batch.size`): the topic's rows wait, for 1 to 30 s until the next
  try. Other topics go on.
- Anything else: the topic's rows are read again, after 1 s or more.

Where a broker refused one of several records, it is not certain which: the topic's next rows go one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from ottla.errors import ConfigError, FencedError, InputError, LifecycleError, UnknownTopic
from ottla.stores.outbox_sessions import OutboxRow

NEEDED_SETTINGS: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    # A record behind one that was given up would be out of order.
    "enable.gapless.guarantee": True,
    "delivery.timeout.ms": 2**31 - 1,
}
"""Producer settings of a relay, which the order of keys needs."""

RELAY_DEFAULTS: Final[Mapping[str, Any]] = {
    # Rows come in batches: there is nothing to wait for.
    "linger.ms": 0,
    # A topic that was just created is waited for; one that is missing holds up its own rows only.
    "topic.metadata.propagation.max.ms": 5_000,
}

FIRST_WAIT_MS: Final = 1_000
LONGEST_WAIT_MS: Final = 30_000


def without_needed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return an app's producer settings without those that a relay fixes."""
    return {name: value for name, value in settings.items() if name not in NEEDED_SETTINGS}


class Blame(Enum):
    """The cause of a failed delivery."""

    ROW = "the record"
    TOPIC = "its topic"
    PRODUCER = "the producer, which sends nothing any more"
    NOBODY = "nothing that stays"


def blame_of(error: BaseException) -> Blame:
    if isinstance(error, UnknownTopic):
        return Blame.TOPIC
    if getattr(error, "is_too_large", False) and not isinstance(error, ConfigError):
        return Blame.ROW
    if isinstance(error, ConfigError):
        return Blame.TOPIC
    if isinstance(error, InputError):
        return Blame.ROW
    if isinstance(error, LifecycleError | FencedError):
        return Blame.PRODUCER
    return Blame.NOBODY


@dataclass(slots=True)
class _RelayedTopic:
    """A topic with rows in flight or with a delay after a failure."""

    flying: dict[int, OutboxRow] = field(default_factory=dict)
    flown: int = 0
    """Number of rows sent together the last time."""
    wait_ms: int = 0
    until_ms: int = 0
    reason: str = ""
    is_failing: bool = False
    """A row of this flight failed for a reason outside the row."""
    singly: int = 0
    """Number of further rows that are sent one by one."""
    waiting_keys: set[bytes] = field(default_factory=set)
    """Keys whose further rows wait."""
    partition_of: dict[bytes, int | None] = field(default_factory=dict)
    """Partition per key in flight, as its rows ask for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledRows:
    """Changes to write to the database."""

    delete: tuple[int, ...] = ()
    park: tuple[tuple[int, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.delete or self.park)


class Relaying:
    """The rows of one relay. Not thread-safe.

    In this order: `skipped`, read rows, `began`; for each that it `takes`: hand it over, then `sent`, or `not_sent` if
    that raised; `acknowledged` or `failed` as the producer says; `settled`, write that, `written`.
    """

    def __init__(self, *, most_rows: int, most_bytes: int) -> None:
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._topics: dict[str, _RelayedTopic] = {}
        self._rows = 0
        self._bytes = 0
        self._delete: list[int] = []
        self._park: dict[int, str] = {}
        self.needs_new_producer = False
        """The producer has failed fatally: close it, then call `renewed`."""

    # Before rows are read

    @property
    def room(self) -> tuple[int, int]:
        """Return (rows, bytes) that may be read now; zero while a new producer is needed."""
        if self.needs_new_producer:
            return 0, 0
        return max(0, self._most_rows - self._rows), max(0, self._most_bytes - self._bytes)

    def skipped(self, now_ms: int) -> Collection[str]:
        """Return the topics whose rows must not be read now."""
        return [name for name, topic in self._topics.items() if topic.flying or topic.until_ms > now_ms]

    def began(self) -> None:
        """Begin with rows that were read after all changes were `written`."""
        for topic in self._topics.values():
            topic.waiting_keys.clear()

    # Rows on their way

    def takes(self, row: OutboxRow, now_ms: int) -> bool:
        """Return whether the row may be sent now; otherwise it is read again later."""
        topic = self._topics.get(row.topic)
        if topic is None:
            return not self.needs_new_producer
        if self.needs_new_producer or topic.until_ms > now_ms or (topic.singly and topic.flying):
            return False
        if row.key is None:
            return True
        # A record for a partition that is not there fails by itself, and would be overtaken by those in another one.
        if topic.partition_of.get(row.key, row.partition) != row.partition:
            topic.waiting_keys.add(row.key)
        return row.key not in topic.waiting_keys

    def sent(self, row: OutboxRow) -> None:
        """Record that the producer accepted the row."""
        topic = self._topics.setdefault(row.topic, _RelayedTopic())
        if not topic.flying:
            topic.flown, topic.is_failing = 0, False
        topic.flown += 1
        topic.flying[row.id] = row
        if row.key is not None:
            topic.partition_of[row.key] = row.partition
        self._rows += 1
        self._bytes += _size(row)

    def not_sent(self, row: OutboxRow, error: BaseException, now_ms: int) -> None:
        """Record that the producer refused the row, or that the row was invalid."""
        topic = self._topics.setdefault(row.topic, _RelayedTopic())
        if blame_of(error) is Blame.ROW:
            self._refuse(topic, row, error)
        else:
            self._hold(topic, error, now_ms)

    def acknowledged(self, row: OutboxRow) -> None:
        topic = self._landed(row)
        self._delete.append(row.id)
        topic.singly = max(0, topic.singly - 1)
        if not topic.is_failing:
            topic.wait_ms, topic.until_ms, topic.reason = 0, 0, ""

    def failed(self, row: OutboxRow, error: BaseException, now_ms: int) -> None:
        """Record a failed delivery."""
        topic = self._landed(row)
        if blame_of(error) is Blame.ROW:
            if topic.flown == 1:
                self._refuse(topic, row, error)
            else:
                topic.singly = max(topic.singly, topic.flown)
        else:
            self._hold(topic, error, now_ms)

    # What becomes of them

    def settled(self) -> SettledRows:
        """Return the changes to write. They stay until `written`."""
        return SettledRows(delete=tuple(self._delete), park=tuple(self._park.items()))

    def written(self, settled: SettledRows) -> None:
        """Record that the database has the changes."""
        done = set(settled.delete)
        self._delete = [number for number in self._delete if number not in done]
        for number, _ in settled.park:
            self._park.pop(number, None)

    def renewed(self) -> None:
        """Continue with a new producer. Rows without a delivery report are read again."""
        self.needs_new_producer = False
        self._rows = self._bytes = 0
        for topic in self._topics.values():
            topic.flying.clear()
            topic.partition_of.clear()

    @property
    def flying(self) -> int:
        """Return the number of rows in flight."""
        return self._rows

    @property
    def problems(self) -> Mapping[str, str]:
        """Return topic → why its rows wait, or waited at the last attempt."""
        return {name: topic.reason for name, topic in self._topics.items() if topic.reason}

    def _landed(self, row: OutboxRow) -> _RelayedTopic:
        topic = self._topics[row.topic]
        del topic.flying[row.id]
        self._rows -= 1
        self._bytes -= _size(row)
        if not topic.flying:
            topic.partition_of.clear()
        return topic

    def _refuse(self, topic: _RelayedTopic, row: OutboxRow, error: BaseException) -> None:
        self._park[row.id] = f"{type(error).__name__}: {error}"
        if row.key is not None:
            topic.waiting_keys.add(row.key)

    def _hold(self, topic: _RelayedTopic, error: BaseException, now_ms: int) -> None:
        if blame_of(error) is Blame.PRODUCER:
            self.needs_new_producer = True
            return  # it says nothing of the topic: the record that ended it failed with a reason of its own
        if topic.until_ms <= now_ms:
            topic.wait_ms = min(LONGEST_WAIT_MS, max(FIRST_WAIT_MS, 2 * topic.wait_ms))
            topic.until_ms = now_ms + topic.wait_ms
        topic.is_failing = True
        topic.reason = f"{type(error).__name__}: {error}"


def _size(row: OutboxRow) -> int:
    return len(row.key or b"") + len(row.value or b"") + len(row.headers)
