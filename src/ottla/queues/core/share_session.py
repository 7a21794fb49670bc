"""One member's share session with one broker: its epoch, its partitions, and the one request in flight (KIP-932).

Theory:

1.  A session is opened by a ShareFetch with epoch 0, which may not acknowledge anything.
2.  Every ShareFetch and ShareAcknowledge after it has the next epoch: 1, 2, ... and 1 again after the largest.
3.  Epoch -1 closes it: its acknowledgements count, everything else that was leased through it is released.
4.  The partitions of a fetch are added to the session, those of `forgotten` are removed; the others stay.
5.  A partition of which a fetch acknowledges records is added too. So acknowledgements of a partition that is not to be
    fetched go with a ShareAcknowledge. So do renewals: a request that renews a lock fetches nothing (KIP-1222).
6.  The session ends with the connection. Its leases end then too: the broker releases them at once.
7.  One request is in flight at a time. A broker answers the requests of one connection one after the other anyway, and
    with two connections the epochs could arrive in the wrong order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla.queues.core.acknowledgements import (
    Acknowledgement,
    PendingAcknowledgements,
    Place,
    SentAcknowledgements,
)
from ottla.queues.core.lease import Lease
from ottla_wire.facts import fact

OPENING: Final = 0
CLOSING: Final = -1
_LARGEST_EPOCH: Final = 2**31 - 1


@fact
class ShareRequest:
    """What to send to one broker: a ShareFetch, or a ShareAcknowledge where `max_records` is 0 and it is not the first.

    Each is answered by `ShareMember.answered` or `ShareMember.disconnected`.
    """

    node: int
    epoch: int
    sent_ms: int
    max_records: int = 0
    """The most records to lease; 0 in a ShareAcknowledge."""
    wait_ms: int = 0
    """How long the broker may wait for records."""
    added: Sequence[Place] = ()
    forgotten: Sequence[Place] = ()
    acknowledgements: Mapping[Place, SentAcknowledgements]

    @property
    def is_fetch(self) -> bool:
        """Return whether it leases records."""
        return self.max_records > 0

    @property
    def renews(self) -> bool:
        """Return whether it renews a lock."""
        return any(sent.renews for sent in self.acknowledgements.values())


class ShareSession:
    """See the module. It decides what is said; whether to fetch is the member's decision."""

    __slots__ = ("_epoch", "_held", "_node", "_wanted", "in_flight", "pending", "rest_ms", "resume_ms", "served_turn")

    def __init__(self, node: int) -> None:
        self._node = node
        self._epoch = OPENING
        self._held: set[Place] = set()
        """Partitions that the broker has in the session."""
        self._wanted: frozenset[Place] = frozenset()
        self.pending = PendingAcknowledgements()
        self.in_flight: ShareRequest | None = None
        self.resume_ms = 0
        """Before this time nothing is said: the broker could not take what was said last."""
        self.rest_ms = 0
        """Before this time no acknowledgement is sent alone: it goes with the next fetch."""
        self.served_turn = 0
        """When it was last granted workers, in turns of the member."""

    @property
    def is_open(self) -> bool:
        """Return whether the broker knows the session."""
        return self._epoch != OPENING

    @property
    def wanted(self) -> frozenset[Place]:
        """Return the partitions to lease records of."""
        return self._wanted

    def want(self, places: Iterable[Place]) -> None:
        """Lease records of these partitions from now on, and of no others."""
        self._wanted = frozenset(places)

    def fetch(self, *, max_records: int, wait_ms: int, now_ms: int) -> ShareRequest:
        """Return the request that leases up to `max_records` records, with the acknowledgements that may go with it."""
        added = sorted(self._wanted - self._held)
        forgotten = sorted(self._held - self._wanted)
        sent = self.pending.take(self._wanted) if self.is_open else {}
        self._held = set(self._wanted)
        return self._send(
            ShareRequest(
                node=self._node,
                epoch=self._epoch,
                sent_ms=now_ms,
                max_records=max_records,
                wait_ms=wait_ms,
                added=added,
                forgotten=forgotten,
                acknowledgements=sent,
            )
        )

    def acknowledge(self, now_ms: int) -> ShareRequest | None:
        """Return the request that says what is pending; None if nothing is."""
        sent = self.pending.take() if self.is_open else {}
        if not sent:
            return None
        return self._send(
            ShareRequest(node=self._node, epoch=self._epoch, sent_ms=now_ms, acknowledgements=sent),
        )

    def close(self, now_ms: int) -> ShareRequest:
        """Return the request that ends the session."""
        request = ShareRequest(node=self._node, epoch=CLOSING, sent_ms=now_ms, acknowledgements=self.pending.take())
        return self._send(request)

    def answered(self) -> ShareRequest:
        """Take in that the request in flight was answered, without an error that concerns all of it."""
        request = self.in_flight
        assert request is not None, "an answer without a request"
        self.in_flight = None
        if request.epoch == CLOSING:
            self._epoch = OPENING
            self._held.clear()
        else:
            self._epoch = request.epoch % _LARGEST_EPOCH + 1
        return request

    def forget(self, place: Place) -> None:
        """Stop to lease records of a partition whose leader is another broker."""
        self._wanted -= {place}

    def ended(self) -> ShareRequest | None:
        """Take in that the session ended with its connection. Returns the request that was in flight."""
        request, self.in_flight = self.in_flight, None
        self._epoch = OPENING
        self._held.clear()
        self.pending.clear()
        return request

    def say(self, lease: Lease, kind: Acknowledgement) -> None:
        """Say this of the lease with one of the next requests."""
        self.pending.add(lease, kind)

    def _send(self, request: ShareRequest) -> ShareRequest:
        assert self.in_flight is None, "one request at a time"
        self.in_flight = request
        return request
