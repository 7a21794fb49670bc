"""What happens to a share partition, and what it asks of its surroundings.

An event goes into `SharePartition.step`; effects come out, in the order in which they have to be carried out.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, TypeAlias

from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

from .states import AcknowledgeType, RecordState

UNCHANGED = -1
"""A start offset that a write leaves as it is; the start offset of a share partition that was never read."""


class StateBatch(NamedTuple):
    """Records of one persisted state, as the share coordinator keeps them."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


def append_batch(batches: list[StateBatch], new: StateBatch) -> None:
    """Append a batch, or extend the last one if the two are adjacent and agree."""
    previous = batches[-1] if batches else None
    if previous is not None and previous.last + 1 == new.first and previous[2:] == new[2:]:
        batches[-1] = previous._replace(last=new.last)
    else:
        batches.append(new)


class PersistedState(NamedTuple):
    """What the share coordinator knows of a share partition."""

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()


class LogBatch(NamedTuple):
    """A batch of the log. Its records are delivered, unless it is a control batch or of an aborted transaction."""

    first: int
    last: int
    is_deliverable: bool = True


class AcquiredRange(NamedTuple):
    """Offsets leased together, and the number of their delivery."""

    first: int
    last: int
    delivery_count: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class AcknowledgedRange(NamedTuple):
    """What a member says of its records: one type for all of them, or one per offset."""

    first: int
    last: int
    types: tuple[AcknowledgeType, ...]


# --- events


@fact
class Acquire:
    """A member fetches. `batches` are the log's batches from `offset` on, as far as they were read."""

    member_id: str
    offset: int
    batches: tuple[LogBatch, ...]
    max_records: int
    batch_size: int = 0
    """Records of an acquired range at most; 0 for no limit."""
    is_strict: bool = False
    """Never acquire more than `max_records`; otherwise whole batches, up to the end of the one that reaches it."""
    is_continued: bool = False
    """Whether the fetch has leased records before `offset`: a lot would not be alone."""


@fact
class Acknowledge:
    """A member settles records. `ticket` comes back in the answer."""

    ticket: object
    member_id: str
    ranges: tuple[AcknowledgedRange, ...]


@fact
class Release:
    """A member's session ended: what it holds is available again, or given up at the limit."""

    member_id: str


@fact
class Tick:
    """Time has passed."""


@fact
class LogStartMoved:
    """The log begins at `offset` now; what lies below was deleted."""

    offset: int


@fact
class Persisted:
    """A write is done."""

    write_id: int
    error: ErrorCode = ErrorCode.NONE


@fact
class DeadLettered:
    """The dead letters of these records are written, or cannot be."""

    first: int
    last: int


Event: TypeAlias = Acquire | Acknowledge | Release | Tick | LogStartMoved | Persisted | DeadLettered


# --- effects


@fact
class Acquired:
    """The ranges that a fetch has leased; empty when there was nothing."""

    ranges: tuple[AcquiredRange, ...]
    ends_fetch: bool = False
    """Whether the fetch must end here: a lot of records that failed often is leased alone."""


@fact
class Answer:
    """The result of an acknowledgement."""

    ticket: object
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@fact
class Persist:
    """Write to the share coordinator, and report `Persisted` with the same id."""

    write_id: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    complete_count: int
    """Records in a final state from the start offset on (KIP-1226)."""


@fact
class MoreAvailable:
    """Records became available: fetches that wait may find them."""


class GivenUp(Enum):
    """Why a record is given up, in the words of Kafka's dead letters."""

    REJECTED = "Offset rejected by client."
    DELIVERIES_SPENT = "Offset delivery count exceeded the threshold."


@fact
class WriteDeadLetters:
    """Write a dead letter for each of these records, and report `DeadLettered` (KIP-1191)."""

    first: int
    last: int
    delivery_count: int
    why: GivenUp


Effect: TypeAlias = Acquired | Answer | Persist | MoreAvailable | WriteDeadLetters
