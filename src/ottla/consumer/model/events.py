"""What can happen to a consumer session. The shells make these, the session answers with effects."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.failures.dead_letter import Form
from ottla.records import TopicPartition
from ottla_wire.facts import positional_fact


@positional_fact
class Assigned:
    """Partitions were added to the assignment. `committed`: the offset and its metadata, of those that have one.
    `starts`: where the client begins in others, as far as that was looked up."""

    partitions: Sequence[TopicPartition]
    committed: Mapping[TopicPartition, tuple[int, str]] | None = None
    starts: Mapping[TopicPartition, int] | None = None


@positional_fact
class Revoking:
    """Partitions are about to be taken away: stop their work, so that `Revoked` can commit what is done."""

    partitions: Sequence[TopicPartition]


@positional_fact
class Revoked:
    """The drain is over, or its budget is: commit the prefix and let go. Still inside the client's callback."""

    partitions: Sequence[TopicPartition]


@positional_fact
class Lost:
    """Partitions are gone already, and may have another owner: drop everything, commit nothing."""

    partitions: Sequence[TopicPartition]


class Behind(NamedTuple):
    """What the shell has of a partition beyond the records that it tells of, and will tell of next."""

    records: int
    size_bytes: int


NOTHING_BEHIND: Final = Behind(0, 0)


@positional_fact
class Fetched:
    """Records of one partition, in offset order."""

    topic_partition: TopicPartition
    records: Sequence[AnyRecord]
    size_bytes: int
    behind: Behind = NOTHING_BEHIND


@positional_fact
class RunHandled:
    """A worker is free again: all of its run was handed to the handler. What the handler sent on is not acknowledged
    yet; `RunFinished` follows when it is."""

    run: Run


@positional_fact
class RunFinished:
    """What became of a run is known."""

    run: Run
    result: RunResult


@positional_fact
class WriteAcknowledged:
    """The dead letter topic acknowledged this record, in this form."""

    topic_partition: TopicPartition
    epoch: int
    offset: int
    form: Form = Form.WHOLE


@positional_fact
class WriteFailed:
    """The dead letter of this record could not be written. `fits` is False when no form of it is small enough."""

    topic_partition: TopicPartition
    epoch: int
    offset: int
    error: str
    fits: bool = True


@positional_fact
class RetryPositionsFound:
    """Where partitions of retry topics begin to be read, and where they end. Those that are missing in `positions`
    could not be looked up."""

    asked: Sequence[TopicPartition]
    positions: Mapping[TopicPartition, tuple[int, int]]


@positional_fact
class LogSeen:
    """One partition's log. `end` is where a reader with our isolation level comes to its end; `position` is where the
    client reads on, which skips what is not for readers, or None where that is not known. `tail`: from which offset up
    to which there is no record, where that was asked."""

    topic_id: bytes | None
    start: int
    end: int
    position: int | None = None
    tail: tuple[int, int] | None = None


@positional_fact
class LogsSeen:
    """The answer to `LookAtLogs`, with its epochs; those that are missing in `logs` could not be looked up."""

    epochs: Mapping[TopicPartition, int]
    logs: Mapping[TopicPartition, LogSeen]


@positional_fact
class LookedAt(Collection[TopicPartition]):
    """What a shell looks up for `LookAtLogs`: the partitions, with the positions of the client when it was asked."""

    epochs: Mapping[TopicPartition, int]
    positions: Mapping[TopicPartition, int]
    tails: Mapping[TopicPartition, int] = MappingProxyType({})

    def __contains__(self, name: object) -> bool:
        return name in self.epochs

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.epochs)

    def __len__(self) -> int:
        return len(self.epochs)

    def seen(
        self,
        logs: Mapping[TopicPartition, tuple[bytes | None, int, int]],
        tails: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> LogsSeen:
        """The answer, from the topic id, the start and the end of each log, and up to where its tail has no record."""
        return LogsSeen(
            self.epochs,
            {
                name: LogSeen(
                    *log, self.positions.get(name), (self.tails[name], tails[name]) if name in tails else None
                )
                for name, log in logs.items()
            },
        )


@positional_fact
class ClientFailed:
    """The client reported an error of one partition, and goes on trying."""

    topic_partition: TopicPartition
    error: str


@positional_fact
class CommitSucceeded:
    """The coordinator stored these positions."""

    offsets: Mapping[TopicPartition, int]


@positional_fact
class CommitFailed:
    """The coordinator did not. `is_fenced`: this member is not (or no longer) what the coordinator takes commits from,
    as during a rebalance; the next assignment settles it."""

    error: str
    is_fenced: bool


@positional_fact
class Tick:
    """Time passed."""


@positional_fact
class StartsFound:
    """The answer to `FindStarts`, with its epochs: where each claimed partition goes on; None if nothing was saved."""

    epochs: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int | None]


@positional_fact
class PauseRequested:
    """The user wants no more records of these partitions; empty: of all."""

    partitions: Sequence[TopicPartition] = ()


@positional_fact
class ResumeRequested:
    """The user wants these partitions to go on, stopped ones too; empty: all."""

    partitions: Sequence[TopicPartition] = ()


@positional_fact
class SeekRequested:
    """The user wants to go on from another offset. What is in flight is dropped, as if the partition were lost."""

    topic_partition: TopicPartition
    offset: int


@positional_fact
class DrainRequested:
    """Finish what was fetched and take nothing new."""


@positional_fact
class CloseRequested:
    """Stop handing out work; runs end after the record they are at."""


@positional_fact
class Closed:
    """The drain before closing is over, or its budget is: commit for the last time."""


Event: TypeAlias = (
    Assigned
    | Revoking
    | Revoked
    | Lost
    | Fetched
    | RunHandled
    | RunFinished
    | WriteAcknowledged
    | WriteFailed
    | RetryPositionsFound
    | LogsSeen
    | StartsFound
    | ClientFailed
    | CommitSucceeded
    | CommitFailed
    | Tick
    | PauseRequested
    | ResumeRequested
    | SeekRequested
    | DrainRequested
    | CloseRequested
    | Closed
)
