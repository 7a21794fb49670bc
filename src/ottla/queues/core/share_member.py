"""One member of a share group, sans IO: which records it leases, from which brokers, and what becomes of them.

How it works:

1.  The shell asks for requests and brings the answers: `heartbeat`, and for each broker `next_request`.
2.  A fetch asks for no more records than there are workers that can begin them now, and those that they will begin
    within a moment by their rate so far (`prefetch`). What waits longer is released, once.
3.  What comes of an answer are effects: `HandOut` gives a lease to a worker, `LeaseLost` and `JobTimedOut` end one.
4.  Whoever handled a lease calls `finished` once, when the worker is free again. It says what becomes of the record: an
    acknowledgement, a wait for the next attempt, or `None` to keep the lease while a dead letter is written.
5.  A record that waits for its next attempt keeps its lease and needs no worker. When too many wait, none is fetched.
6.  A lease is renewed at 70 % of its lock, until its attempt has lasted `max_job_ms`. Then it is taken from its worker.
7.  A lease whose lock has run out by this member's clock is lost, whatever the broker thinks of it.
8.  When it closes, records that were not begun, or wait, are released at once. The session with a broker is closed when
    nothing of it is in work any more, or when `abandon` is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Final

from ottla.queues.core.acknowledgements import Acknowledgement, Place
from ottla.queues.core.effects import (
    AcknowledgementUnknown,
    Disconnect,
    Effect,
    FindLeaders,
    JobTimedOut,
    ShareAnswer,
    SharePartitionAnswer,
)
from ottla.queues.core.lease import RENEWED, Lease, LeaseState
from ottla.queues.core.lease_account import AGAIN_MS, LeaseAccount
from ottla.queues.core.share_session import ShareRequest, ShareSession
from ottla.topics import TopicPartition
from ottla_wire.protocol import ErrorCode

IDLE_WAIT_MS: Final = 500
"""How long a broker may keep a fetch while this member has no lease."""

BUSY_WAIT_MS: Final = 100
"""The same while it has some: an acknowledgement waits for the fetch before it."""

_REST_MS: Final = 10
"""How long after an answer acknowledgements wait for the next fetch, while records are leased ahead."""


class ShareMember(LeaseAccount):
    """See the module. Not thread-safe: whoever drives it has a lock, or one thread."""

    def __init__(self, *, concurrency: int, max_job_ms: int, max_waiting: int, most_ahead: int = 0) -> None:
        super().__init__(concurrency=concurrency, max_job_ms=max_job_ms, max_waiting=max_waiting, most_ahead=most_ahead)
        self._turns = count(1)
        self.is_paused = False

    # Where the records are

    def lead(self, leaders: Mapping[int, Iterable[tuple[Place, TopicPartition]]]) -> None:
        """Lease records of these partitions, and of no others: broker → those that it leads."""
        parts = {node: list(places) for node, places in leaders.items()}
        self._names.update(pair for places in parts.values() for pair in places)
        for node, session in list(self._sessions.items()):
            if node not in parts:
                session.want(())
                self._remove_idle(node, session)
        for node, places in parts.items():
            session = self._sessions.setdefault(node, ShareSession(node))
            session.want(place for place, _ in places)

    @property
    def nodes(self) -> list[int]:
        """Return the brokers that something may have to be said to."""
        return list(self._sessions)

    @property
    def assignment(self) -> list[TopicPartition]:
        """Return the partitions whose records it leases."""
        return sorted(self._names[place] for session in self._sessions.values() for place in session.wanted)

    # Requests and answers

    def next_request(self, node: int, now_ms: int) -> ShareRequest | None:
        """Return what to send to this broker now; None if nothing is."""
        session = self._sessions.get(node)
        if session is None or session.in_flight is not None or now_ms < session.resume_ms:
            return None
        if self._may_close(node, session):
            return session.close(now_ms)
        must_be_alone = session.pending.renews or session.pending.places - session.wanted
        if must_be_alone and (request := session.acknowledge(now_ms)) is not None:
            return request
        granted = self._grant(session, now_ms)
        if granted > 0:
            session.served_turn = next(self._turns)
            self.work.reserve(granted)
            is_busy = len(self.leases) > 0 or len(self._sessions) > 1
            wait_ms = BUSY_WAIT_MS if is_busy else IDLE_WAIT_MS
            return session.fetch(max_records=granted, wait_ms=wait_ms, now_ms=now_ms)
        return session.acknowledge(now_ms) if now_ms >= self._rests_until_ms(session) else None

    def look_ms(self, node: int, now_ms: int) -> int | None:
        """Return when `next_request` is to be called for this broker; None if not before something happens."""
        session = self._sessions.get(node)
        if session is None:
            return now_ms
        if session.in_flight is not None:
            return None
        soon_ms = max(now_ms, session.resume_ms)
        if self._grant(session, now_ms) > 0 or self._may_close(node, session):
            return soon_ms
        return max(soon_ms, self._rests_until_ms(session)) if session.pending else None

    def answered(self, node: int, answer: ShareAnswer, now_ms: int) -> list[Effect]:
        """Take in the answer to the request in flight at this broker."""
        if answer.error is not ErrorCode.NONE:
            return [Disconnect(node), *self.disconnected(node, answer.error.name, now_ms)]
        effects: list[Effect] = []
        session = self._sessions[node]
        request = session.answered()
        session.rest_ms = now_ms + _REST_MS
        self.work.unreserve(request.max_records)
        said = dict(request.acknowledgements)
        room = request.max_records
        for part in answer.partitions:
            sent = said.pop(part.place, None)
            if sent is not None:
                self._acknowledged(session, part, sent, request, answer.lock_ms, now_ms, effects)
            if part.error is not ErrorCode.NONE:
                self._refused(session, part, effects)
            room -= self._leased(session, part, request, room, answer.lock_ms, now_ms, effects)
        for place, sent in said.items():  # a partition without news may be left out of an answer
            silent = SharePartitionAnswer(place=place)
            self._acknowledged(session, silent, sent, request, answer.lock_ms, now_ms, effects)
        self._hand_out(now_ms, effects)
        self._remove_idle(node, session)
        return effects

    def disconnected(self, node: int, why: str, now_ms: int) -> list[Effect]:
        """Take in that the connection to this broker, or the session, ended: its leases are lost."""
        session = self._sessions.get(node)
        if session is None:
            return []
        effects: list[Effect] = [FindLeaders()]
        request = session.ended()
        session.resume_ms = now_ms + AGAIN_MS
        if request is not None:
            self.work.unreserve(request.max_records)
            unknown = sum(len(sent.answers) for sent in request.acknowledgements.values())
            if unknown:
                effects.append(AcknowledgementUnknown(node, unknown, why))
        for lease in self.leases.of_node(node):
            self._lose(lease, f"the connection to its broker ended ({why})", effects)
        self._hand_out(now_ms, effects)
        self._remove_idle(node, session)
        return effects

    # What became of a lease

    def begin(self, lease: Lease, now_ms: int) -> bool:
        """A worker begins with a lease. Returns False if nothing is to be done: it ended meanwhile."""
        if lease.state is not LeaseState.RUNNING:
            return False
        lease.began_ms = now_ms
        lease.has_begun = True
        lease.attempts += 1
        return True

    def finished(self, lease: Lease, kind: Acknowledgement | None, now_ms: int) -> list[Effect]:
        """Take in that the worker is free again. `kind` is what is to be said of the record; None keeps the lease.
        Nothing is said of a lease that ended, or was settled or held meanwhile."""
        self._freed(lease)
        if lease.state is LeaseState.RUNNING:
            if kind is None:
                lease.becomes(LeaseState.HELD)
            else:
                self._settle(lease, kind)
        return self._next(now_ms)

    def waits(self, lease: Lease, due_ms: int, now_ms: int) -> list[Effect]:
        """Take in that the worker is free again, and the record is to be handled once more at `due_ms`."""
        self._freed(lease)
        if lease.state is LeaseState.RUNNING:
            self._wait(lease, due_ms)
        return self._next(now_ms)

    def waits_again(self, lease: Lease, due_ms: int, now_ms: int) -> list[Effect]:
        """Hand out a lease that was kept once more at `due_ms`."""
        if lease.state is LeaseState.HELD:
            self._wait(lease, due_ms)
        return self._next(now_ms)

    def _wait(self, lease: Lease, due_ms: int) -> None:
        """Hand a lease out at `due_ms`; a member that closes releases it."""
        if self._is_closing:
            self._settle(lease, Acknowledgement.RELEASE)
        else:
            lease.becomes(LeaseState.WAITING)
            self.work.wait(lease, due_ms)

    def hold(self, lease: Lease) -> None:
        """Keep a lease that was taken from its worker."""
        if lease.state is LeaseState.RUNNING:
            lease.becomes(LeaseState.HELD)

    def settle(self, lease: Lease, kind: Acknowledgement, now_ms: int) -> list[Effect]:
        """Say this of a lease, whether its worker is busy or not. Nothing is said of one that ended."""
        if lease.state not in RENEWED:
            return []
        self._settle(lease, kind)
        return self._next(now_ms)

    def renew(self, lease: Lease) -> bool:
        """Renew the lock with the next request. Returns False for a lease that ended."""
        if lease.state not in RENEWED:
            return False
        session = self._sessions.get(lease.node)
        if not lease.is_renewing and session is not None:
            lease.is_renewing = True
            session.say(lease, Acknowledgement.RENEW)
        return True

    # Time

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what is due: renew locks, give up leases that ran out or lasted too long, hand out what has waited."""
        effects: list[Effect] = []
        for lease in self.leases.due(now_ms):
            if lease.deadline_ms <= now_ms:
                self._lose(lease, "its lock ran out before it was renewed or acknowledged", effects)
                continue
            if self.leases.lasts_too_long(lease, now_ms):
                lease.is_timed_out = True
                effects.append(JobTimedOut(lease))
            if self.leases.waits_too_long(lease, now_ms):
                self._settle(lease, Acknowledgement.RELEASE)
            elif lease.renew_ms <= now_ms:
                self.renew(lease)
            self.leases.watch(lease)
        self._hand_out(now_ms, effects)
        return effects

    def next_timer_ms(self, now_ms: int) -> int | None:
        """Return when `tick` is to be called, or a broker to be asked again; None if nothing waits for a time."""
        times = [session.resume_ms for session in self._sessions.values() if session.resume_ms > now_ms]
        times += [due_ms for due_ms in (self.leases.next_due_ms(), self.work.next_due_ms()) if due_ms is not None]
        return min(times, default=None)

    # The end

    def close(self, now_ms: int) -> list[Effect]:
        """Lease nothing more, and release at once what was not begun or waits. What is in work goes on."""
        self._is_closing = True
        for lease in self.leases:
            if lease.state is LeaseState.WAITING or (lease.state is LeaseState.RUNNING and not lease.has_begun):
                self._settle(lease, Acknowledgement.RELEASE)
        return self._next(now_ms)

    def abandon(self, now_ms: int) -> list[Effect]:
        """Release what is still in work as well. The results of its handlers come too late."""
        self._is_closing = True
        for lease in self.leases:
            if lease.state in RENEWED:
                self._settle(lease, Acknowledgement.RELEASE)
        return self._next(now_ms)

    @property
    def is_closed(self) -> bool:
        """Return whether all sessions have ended, and nothing is in flight."""
        return self._is_closing and not any(
            session.is_open or session.in_flight is not None for session in self._sessions.values()
        )

    # Parts

    def _rests_until_ms(self, session: ShareSession) -> int:
        """Return when acknowledgements may be sent without a fetch."""
        will_fetch = self.work.ahead > 0 and not self._is_closing and not session.pending.places - session.wanted
        return session.rest_ms if will_fetch else 0

    def _grant(self, session: ShareSession, now_ms: int) -> int:
        """Return how many records this session may fetch: an equal share; who waited longest is first. What is leased
        ahead comes again when half of it is used up."""
        if self._is_closing or self.is_paused or self.work.is_full or not session.wanted:
            return 0
        ahead = self.work.ahead = self._prefetch.ahead(now_ms)
        free = self.work.free
        if free < ahead // 2 and not self.work.has_idle_workers:
            return 0
        free = max(0, free)
        asking = [each for each in self._sessions.values() if each.wanted and each.in_flight is None]
        asking.sort(key=lambda each: each.served_turn)
        share, rest = divmod(free, len(asking))
        return share + (asking.index(session) < rest)

    def _may_close(self, node: int, session: ShareSession) -> bool:
        is_over = self._is_closing or not session.wanted
        return is_over and session.is_open and not session.pending.has_singles and not self.leases.are_in_work(node)

    def _remove_idle(self, node: int, session: ShareSession) -> None:
        """Forget a broker to which nothing more is to be said."""
        if not session.is_open and session.in_flight is None and (self._is_closing or not session.wanted):
            self._sessions.pop(node, None)
