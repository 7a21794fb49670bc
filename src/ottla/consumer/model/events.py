"""The events of a consumer session. The shells make them, and `Session.step` returns effects."""

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
    """Partitions are about to be revoked: their work stops, so that `Revoked` can commit the finished records."""

    partitions: Sequence[TopicPartition]


@positional_fact
class Revoked:
    """Partitions are revoked: their work has ended or had enough time. Still inside the client's callback, so that the
    final commit can be sent."""

    partitions: Sequence[TopicPartition]


@positional_fact
class Lost:
    """Partitions were lost and may have another owner: everything is dropped, nothing is committed."""

    partitions: Sequence[TopicPartition]


class Behind(NamedTuple):
    """Records of a partition that the shell has fetched and has not passed to the session yet."""

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
    """The worker of a run is free: the handler has returned for all records. Its sends are not acknowledged yet;
    `RunFinished` follows when they are."""

    run: Run


@positional_fact
class RunFinished:
    """The result of a run is known."""

    run: Run
    result: RunResult


@positional_fact
class WriteAcknowledged:
    """A write of a failed record was acknowledged, in this form."""

    topic_partition: TopicPartition
    epoch: int
    offset: int
    form: Form = Form.WHOLE


@positional_fact
class WriteFailed:
    """A write of a failed record failed. `fits` is False if the topic takes no form of it."""

    topic_partition: TopicPartition
    epoch: int
    offset: int
    error: str
    fits: bool = True


@positional_fact
class RetryPositionsFound:
    """The answer to `FindRetryPositions`: where each retry partition is read from, and its end. Partitions that are
    missing in `positions` could not be looked up."""

    asked: Sequence[TopicPartition]
    positions: Mapping[TopicPartition, tuple[int, int]]


@positional_fact
class LogSeen:
    """One partition's log. `end` is its end for our isolation level. `position` is where the client reads next, None if
    unknown: it passes control records. `tail`: a range of offsets without records, if that was asked for."""

    topic_id: bytes | None
    start: int
    end: int
    position: int | None = None
    tail: tuple[int, int] | None = None


@positional_fact
class LogsSeen:
    """The answer to `LookAtLogs`, with its epochs. Partitions missing in `logs` could not be looked up."""

    epochs: Mapping[TopicPartition, int]
    logs: Mapping[TopicPartition, LogSeen]


@positional_fact
class LookedAt(Collection[TopicPartition]):
    """The partitions of one `LookAtLogs`, with the positions of the client at that time."""

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
        """Return the answer. `logs` has the topic id, the start and the end of each log, `tails` the end of each tail
        without records."""
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
    """The client reported an error of one partition, and continues to try."""

    topic_partition: TopicPartition
    error: str


@positional_fact
class CommitSucceeded:
    """The coordinator stored these positions."""

    offsets: Mapping[TopicPartition, int]


@positional_fact
class CommitFailed:
    """The coordinator refused a commit. `is_fenced`: it takes no commits from this member now, as during a rebalance;
    the next assignment decides."""

    error: str
    is_fenced: bool


@positional_fact
class Tick:
    """Time passed."""


@positional_fact
class StartsFound:
    """The answer to `FindStarts`, with its epochs: the stored offset of each partition; None if there is none."""

    epochs: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int | None]


@positional_fact
class PauseRequested:
    """The user pauses these partitions; empty: all."""

    partitions: Sequence[TopicPartition] = ()


@positional_fact
class ResumeRequested:
    """The user resumes these partitions, stopped ones too; empty: all."""

    partitions: Sequence[TopicPartition] = ()


@positional_fact
class SeekRequested:
    """The user seeks to another offset. Runs in flight are dropped, as if the partition were lost."""

    topic_partition: TopicPartition
    offset: int


@positional_fact
class DrainRequested:
    """Finish the fetched records and take in no new ones."""


@positional_fact
class CloseRequested:
    """Hand out no more runs. Runs in flight end after their current record."""


@positional_fact
class Closed:
    """The session is closed: its work has ended or had enough time. Commit once more."""


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
