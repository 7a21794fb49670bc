"""The acknowledgements of one broker's records that are not sent yet, as ranges of offsets."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from enum import IntEnum
from itertools import chain
from typing import NamedTuple, TypeAlias

from ottla.queues.core.lease import Lease


class Acknowledgement(IntEnum):
    """What becomes of a leased record; the numbers are the protocol's (KIP-932, KIP-1222)."""

    GAP = 0
    """The log has no record at this offset."""
    ACCEPT = 1
    """It is done."""
    RELEASE = 2
    """Deliver it again, to any member, at once."""
    REJECT = 3
    """It is given up."""
    RENEW = 4
    """Its lock begins again, and its delivery count stays."""


class Place(NamedTuple):
    """A partition, as share sessions name it."""

    topic_id: bytes
    partition: int


class AcknowledgedRange(NamedTuple):
    """Offsets, the last one included, that are acknowledged in the same way."""

    first: int
    last: int
    kind: Acknowledgement


Answers: TypeAlias = "dict[int, tuple[Acknowledgement, Lease]]"
"""By offset: what is said of a lease."""


class SentAcknowledgements:
    """What one request says of one partition's records."""

    __slots__ = ("answers", "is_single", "may_renew", "unread")

    def __init__(
        self, answers: Answers, unread: list[AcknowledgedRange], *, is_single: bool, may_renew: bool = True
    ) -> None:
        self.answers = answers
        self.unread = unread
        self.is_single = is_single
        """One answer that had failed together with others: where it fails again, it is the cause."""
        self.may_renew = may_renew
        """False if it is known to renew no lock."""

    @property
    def ranges(self) -> list[AcknowledgedRange]:
        """In the order of offsets, which a broker asks for."""
        ranges = list(self.unread)
        first = last = -2
        kind = Acknowledgement.GAP
        for offset in sorted(self.answers):
            this = self.answers[offset][0]
            if offset == last + 1 and this is kind:
                last = offset
                continue
            if last >= 0:
                ranges.append(AcknowledgedRange(first, last, kind))
            first = last = offset
            kind = this
        if last >= 0:
            ranges.append(AcknowledgedRange(first, last, kind))
        return sorted(ranges)

    @property
    def renews(self) -> bool:
        """Return whether a lock is renewed, which a request has to say (KIP-1222)."""
        return self.may_renew and any(kind is Acknowledgement.RENEW for kind, _ in self.answers.values())


class PendingAcknowledgements:
    """What is to be said to one broker.

    A broker takes all that a request says of a partition, or nothing. So if it refuses a partition's acknowledgements,
    each is repeated in a request of its own: only those of leases that have ended fail again.
    """

    __slots__ = ("_answers", "_may_renew", "_singles", "_unread")

    def __init__(self) -> None:
        self._answers: dict[Place, Answers] = {}
        self._unread: dict[Place, list[AcknowledgedRange]] = {}
        self._singles: dict[Place, deque[tuple[Acknowledgement, Lease]]] = {}
        self._may_renew = False
        """Whether a renewal was added since all was taken: whoever asks need not look at each statement."""

    def __bool__(self) -> bool:
        return bool(self._answers or self._unread or self._singles)

    def add(self, lease: Lease, kind: Acknowledgement) -> None:
        """Say this of the lease; the newest statement counts."""
        self._may_renew = self._may_renew or kind is Acknowledgement.RENEW
        self._answers.setdefault(lease.place, {})[lease.offset] = kind, lease

    def add_again(self, lease: Lease, kind: Acknowledgement) -> None:
        """Say this of the lease, which was said already, unless there is a newer statement."""
        self._may_renew = self._may_renew or kind is Acknowledgement.RENEW
        self._answers.setdefault(lease.place, {}).setdefault(lease.offset, (kind, lease))

    def add_unread(self, place: Place, unread: AcknowledgedRange) -> None:
        """Acknowledge leased offsets that have no record."""
        self._unread.setdefault(place, []).append(unread)

    def repeat_singly(self, place: Place, refused: Iterable[tuple[Acknowledgement, Lease]]) -> None:
        """Repeat each of these in a request of its own."""
        self._may_renew = True
        self._singles.setdefault(place, deque()).extend(refused)

    @property
    def has_singles(self) -> bool:
        """Return whether acknowledgements of a partition need more than one request."""
        return bool(self._singles)

    @property
    def places(self) -> set[Place]:
        """Return the partitions of which something is to be said."""
        return {*self._answers, *self._unread, *self._singles}

    @property
    def renews(self) -> bool:
        """Return whether a lock is to be renewed."""
        if not self._may_renew:
            return False
        singles = (single for each in self._singles.values() for single in each)
        answers = (answer for each in self._answers.values() for answer in each.values())
        return any(kind is Acknowledgement.RENEW for kind, _ in chain(answers, singles))

    def take(self, places: Iterable[Place] | None = None) -> Mapping[Place, SentAcknowledgements]:
        """Take what one request can say of these partitions (None: of all)."""
        taken: dict[Place, SentAcknowledgements] = {}
        may_renew = self._may_renew
        for place in sorted(self.places if places is None else self.places.intersection(places)):
            singles = self._singles.get(place)
            if singles:
                kind, lease = singles.popleft()
                if not singles:
                    del self._singles[place]
                if lease.is_held:
                    only = {lease.offset: (kind, lease)}
                    taken[place] = SentAcknowledgements(only, [], is_single=True, may_renew=may_renew)
                continue
            answers = self._answers.pop(place, {})
            held = {offset: answer for offset, answer in answers.items() if answer[1].is_held}
            unread = self._unread.pop(place, [])
            if held or unread:
                taken[place] = SentAcknowledgements(held, unread, is_single=False, may_renew=may_renew)
        self._may_renew = may_renew and bool(self)
        return taken

    def clear(self) -> None:
        """Forget everything: the leases have ended."""
        self._answers.clear()
        self._unread.clear()
        self._singles.clear()
