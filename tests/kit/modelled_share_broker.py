"""A broker's share partitions with one entry per record, for tests of the member: strict about its rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.queues.core.acknowledgements import Acknowledgement, Place
from ottla.queues.core.effects import ShareAnswer, SharePartitionAnswer
from ottla.queues.core.share_session import CLOSING, OPENING, ShareRequest
from ottla_wire.protocol import ErrorCode

LOCK_MS = 1_000


@dataclass(slots=True)
class Entry:
    """One record: who has it, until when, and how often it was acquired."""

    state: str = "available"
    holder: str = ""
    until_ms: int = 0
    count: int = 0


@dataclass(slots=True)
class Session:
    epoch: int
    places: set[Place] = field(default_factory=set)


class ModelledBroker:
    """Leases records to members by their names. Gaps are offsets without a record."""

    def __init__(self, places: list[Place], *, records: int, gaps: frozenset[int] = frozenset()) -> None:
        self.entries = {place: {offset: Entry() for offset in range(records)} for place in places}
        self.gaps = gaps
        self.sessions: dict[str, Session] = {}
        self.refusals: list[str] = []
        """What a member did that a broker refuses, though nothing had failed."""

    def expire(self, now_ms: int) -> None:
        for entries in self.entries.values():
            for entry in entries.values():
                if entry.state == "acquired" and entry.until_ms <= now_ms:
                    entry.state, entry.holder = "available", ""

    def disconnect(self, member: str) -> None:
        """The member's connection ended: what it has is free at once."""
        self.sessions.pop(member, None)
        for entries in self.entries.values():
            for entry in entries.values():
                if entry.state == "acquired" and entry.holder == member:
                    entry.state, entry.holder = "available", ""

    def ask(self, member: str, request: ShareRequest, now_ms: int) -> ShareAnswer:
        self.expire(now_ms)
        session = self.sessions.get(member)
        if request.epoch == OPENING:
            assert request.is_fetch
            assert not request.acknowledgements, "an opening request acknowledges nothing"
            session = self.sessions[member] = Session(epoch=0)
        elif session is None:
            return ShareAnswer(error=ErrorCode.SHARE_SESSION_NOT_FOUND)
        elif request.epoch not in (session.epoch + 1, CLOSING):
            self.refusals.append(f"epoch {request.epoch} after {session.epoch}")
            return ShareAnswer(error=ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        if request.is_fetch and request.renews:
            self.refusals.append("a fetch that renews a lock")
            return ShareAnswer(error=ErrorCode.INVALID_REQUEST)
        errors = {place: self._acknowledge(member, request, place, now_ms) for place in request.acknowledgements}
        if request.epoch == CLOSING:
            self.disconnect(member)
            return self._answer({place: [] for place in errors}, errors)
        session.epoch = request.epoch
        leased: dict[Place, list[tuple[int, int, int]]] = {}
        if request.is_fetch:
            session.places |= {*request.added, *request.acknowledgements}
            session.places -= set(request.forgotten)
            left = request.max_records
            for place in sorted(session.places):
                leased[place] = self._acquire(member, place, left, now_ms)
                left -= sum(last - first + 1 for first, last, _ in leased[place])
        return self._answer({place: leased.get(place, []) for place in {*errors, *leased}}, errors)

    def _acknowledge(self, member: str, request: ShareRequest, place: Place, now_ms: int) -> ErrorCode:
        """All of a partition's acknowledgements, or none of them."""
        ranges = request.acknowledgements[place].ranges
        assert [each.first for each in ranges] == sorted(each.first for each in ranges), "in the order of offsets"
        touched = [
            (self.entries[place][offset], each.kind) for each in ranges for offset in range(each.first, each.last + 1)
        ]
        if any(entry.state != "acquired" or entry.holder != member for entry, _ in touched):
            return ErrorCode.INVALID_RECORD_STATE
        for entry, kind in touched:
            match kind:
                case Acknowledgement.RENEW:
                    entry.until_ms = now_ms + LOCK_MS
                case Acknowledgement.RELEASE:
                    entry.state, entry.holder = "available", ""
                case Acknowledgement.ACCEPT:
                    entry.state = "acknowledged"
                case Acknowledgement.REJECT | Acknowledgement.GAP:
                    entry.state = "archived"
        return ErrorCode.NONE

    def _acquire(self, member: str, place: Place, most: int, now_ms: int) -> list[tuple[int, int, int]]:
        ranges: list[tuple[int, int, int]] = []
        for offset, entry in self.entries[place].items():
            if most <= 0:
                break
            if entry.state == "available":
                entry.state, entry.holder, entry.until_ms = "acquired", member, now_ms + LOCK_MS
                entry.count += 1
                most -= 1
                if ranges and ranges[-1][1] == offset - 1 and ranges[-1][2] == entry.count:
                    ranges[-1] = ranges[-1][0], offset, entry.count
                else:
                    ranges.append((offset, offset, entry.count))
        return ranges

    def _answer(self, leased: dict[Place, list[tuple[int, int, int]]], errors: dict[Place, ErrorCode]) -> ShareAnswer:
        return ShareAnswer(
            lock_ms=LOCK_MS,
            partitions=[
                SharePartitionAnswer(
                    place=place,
                    acknowledge_error=errors.get(place, ErrorCode.NONE),
                    acquired=ranges,
                    records={
                        offset: (place, offset)
                        for first, last, _ in ranges
                        for offset in range(first, last + 1)
                        if offset not in self.gaps
                    },
                )
                for place, ranges in leased.items()
                if ranges or errors.get(place, ErrorCode.NONE) is not ErrorCode.NONE
            ],
        )
