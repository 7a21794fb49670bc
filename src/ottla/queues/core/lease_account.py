"""What the answers of brokers do to the leases of a member: the half of `ShareMember` that takes them in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ottla.queues.core.acknowledgements import (
    AcknowledgedRange,
    Acknowledgement,
    Place,
    SentAcknowledgements,
)
from ottla.queues.core.effects import (
    Effect,
    FindLeaders,
    HandOut,
    Leased,
    LeaseLost,
    PartitionRefused,
    RecordsUnreadable,
    Settled,
    SharePartitionAnswer,
)
from ottla.queues.core.lease import Lease, LeaseState
from ottla.queues.core.leases import Leases
from ottla.queues.core.prefetch import Prefetch
from ottla.queues.core.share_session import ShareRequest, ShareSession
from ottla.queues.core.work import Work
from ottla.topics import TopicPartition
from ottla.wire_client.cluster.cluster_client import LEADER_MOVED
from ottla.wire_client.cluster.coordinator_calls import MOVED
from ottla_wire.protocol import ErrorCode

AGAIN_MS: Final = 100
"""How long after an acknowledgement that a broker could not write, or after a lost connection."""


class LeaseAccount:
    """The leases, sessions and workers of a member, and how answers change them. `ShareMember` has the rest."""

    def __init__(self, *, concurrency: int, max_job_ms: int, max_waiting: int, most_ahead: int = 0) -> None:
        """`concurrency` is the number of workers, `max_waiting` how many records may wait for their next attempt before
        no more are leased, `most_ahead` how many are leased beyond the free workers."""
        self.work = Work(concurrency=concurrency, max_waiting=max_waiting)
        self.leases = Leases(max_job_ms=max_job_ms)
        self._prefetch = Prefetch(concurrency=concurrency, most=most_ahead)
        self._sessions: dict[int, ShareSession] = {}
        self._names: dict[Place, TopicPartition] = {}
        self._is_closing = False

    def _leased(
        self,
        session: ShareSession,
        part: SharePartitionAnswer,
        request: ShareRequest,
        room: int,
        lock_ms: int,
        now_ms: int,
        effects: list[Effect],
    ) -> int:
        """Take in the records that were leased. Returns how many; those beyond `room` are released."""
        name = self._names.get(part.place)
        if name is None or not request.is_fetch:
            return 0
        if part.corrupt is not None:
            effects.append(RecordsUnreadable(name, part.corrupt))
        without = Acknowledgement.GAP if part.corrupt is None else Acknowledgement.RELEASE
        taken = 0
        for first, last, count_ in part.acquired:
            if count_ > 1:
                self._prefetch.redelivered(now_ms)
            offsets = part.offsets(first, last)
            effects.append(Leased(name, count_, len(offsets)))
            leased_before = self.leases.of_place(part.place)
            for offset in () if leased_before.keys().isdisjoint(offsets) else offsets:
                if offset in leased_before:
                    self._lose(leased_before[offset], "its broker leased the record again", effects)
            for gap in _gaps(offsets, first, last):
                session.pending.add_unread(part.place, AcknowledgedRange(*gap, without))
            leases = [
                Lease(
                    topic_partition=name,
                    place=part.place,
                    node=request.node,
                    offset=offset,
                    record=part.records[offset],
                    delivery_count=count_,
                    acquired_ms=request.sent_ms,
                    lock_ms=lock_ms,
                )
                for offset in offsets
            ]
            begun = [] if self._is_closing else leases[: room - taken]
            for lease in begun:
                lease.becomes(LeaseState.RUNNING)
            rest = leases[len(begun) :]
            for lease in rest:
                self._settle(lease, Acknowledgement.RELEASE)
            for alike in (*self.work.begin_all(begun), rest):
                self.leases.add(part.place, alike)
            if begun:
                effects.append(HandOut(begun))
                taken += len(begun)
        return taken

    def _acknowledged(
        self,
        session: ShareSession,
        part: SharePartitionAnswer,
        sent: SentAcknowledgements,
        request: ShareRequest,
        lock_ms: int,
        now_ms: int,
        effects: list[Effect],
    ) -> None:
        """Take in what became of the acknowledgements of one partition."""
        error = part.acknowledge_error
        if error is ErrorCode.NONE:
            self._confirmed(sent, request, lock_ms, effects)
        elif error in MOVED or error is ErrorCode.UNKNOWN_SERVER_ERROR:  # not written: the leases are as they were
            session.resume_ms = now_ms + AGAIN_MS
            for kind, lease in sent.answers.values():
                session.pending.add_again(lease, kind)
        elif error is ErrorCode.INVALID_RECORD_STATE and not sent.is_single and len(sent.answers) > 1:
            session.pending.repeat_singly(part.place, sent.answers.values())
        else:
            for _, lease in sent.answers.values():
                if lease.is_held:
                    self._lose(lease, f"its broker refused the acknowledgement: {error.name}", effects)

    def _confirmed(
        self, sent: SentAcknowledgements, request: ShareRequest, lock_ms: int, effects: list[Effect]
    ) -> None:
        counts = [0] * len(Acknowledgement)  # a dictionary would call the hash of an Enum, which is Python
        settled: list[Lease] = []
        name: TopicPartition | None = None
        for kind, lease in sent.answers.values():
            if not lease.is_held:
                continue
            name = lease.topic_partition
            if kind is Acknowledgement.RENEW:
                lease.locked(request.sent_ms, lock_ms)
                self.leases.watch(lease)
            else:
                lease.becomes(LeaseState.SETTLED)
                settled.append(lease)
            counts[kind] += 1
        if settled:  # the leases are of one partition
            self.leases.remove_all(settled[0].place, settled)
        if name is not None:
            effects.extend(Settled(name, kind.name.lower(), counts[kind]) for kind in Acknowledgement if counts[kind])

    def _refused(self, session: ShareSession, part: SharePartitionAnswer, effects: list[Effect]) -> None:
        """A broker does not lease records of a partition."""
        session.forget(part.place)
        name = self._names.get(part.place)
        if part.error in LEADER_MOVED or name is None:
            effects.append(FindLeaders())
        else:
            effects.append(PartitionRefused(name, part.error))

    def _freed(self, lease: Lease) -> None:
        if lease.has_begun:
            self._prefetch.finished()
        self.work.worker_freed(lease)

    def _settle(self, lease: Lease, kind: Acknowledgement) -> None:
        if lease.state is LeaseState.WAITING:
            self.work.waits_no_more()
        lease.becomes(LeaseState.SETTLING)
        self._sessions[lease.node].say(lease, kind)

    def _lose(self, lease: Lease, why: str, effects: list[Effect]) -> None:
        if lease.state is LeaseState.WAITING:
            self.work.waits_no_more()
        was_handled = lease.state in (LeaseState.SETTLING, LeaseState.HELD) and lease.has_begun
        lease.becomes(LeaseState.LOST)
        self.leases.remove(lease)
        effects.append(LeaseLost(lease, why, was_handled))

    def _next(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        self._hand_out(now_ms, effects)
        return effects

    def _hand_out(self, now_ms: int, effects: list[Effect]) -> None:
        """Give records whose next attempt is due to free workers."""
        while self.work.waiting and self.work.free > 0 and (lease := self.work.next_due(now_ms)) is not None:
            lease.becomes(LeaseState.RUNNING)
            lease.began_ms = now_ms
            lease.is_timed_out = lease.has_begun = False
            self.work.begin(lease)
            self.leases.watch(lease)
            effects.append(HandOut([lease]))


def _gaps(offsets: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of each stretch of offsets that are missing. `offsets` are in order."""
    if len(offsets) == last - first + 1:
        return
    expected = first
    for offset in offsets:
        if offset > expected:
            yield expected, offset - 1
        expected = offset + 1
    if expected <= last:
        yield expected, last
