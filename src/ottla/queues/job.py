"""`Job`: one record that a `Queue` has leased, and what its caller says of it."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from ottla.queues.core.acknowledgements import Acknowledgement
from ottla.queues.core.lease import Lease
from ottla.queues.io.lease_client import LeaseClient
from ottla.records import Header, Record

V = TypeVar("V", covariant=True)


class Job(Generic[V]):
    """One leased record. Settle it with `accept`, `release` or `reject`; any thread may do so.

    The lease is renewed until then, for `max_job_s` at most. What is said of a job is sent with the next request to its
    broker, at most a few hundred milliseconds later; `Queue.close` waits for it.
    """

    __slots__ = ("_client", "_lease", "key", "value")

    def __init__(self, client: LeaseClient, lease: Lease, *, value: Any, key: Any) -> None:
        self._client = client
        self._lease = lease
        self.value: V = value
        """The decoded value; a `Malformed` where it could not be decoded."""
        self.key: Any = key
        """The decoded key, likewise."""

    @property
    def record(self) -> Record[V]:
        """Return the record with its topic, partition, offset, timestamp and bytes."""
        record: Record[V] = self._lease.record
        return record

    @property
    def headers(self) -> list[Header]:
        """Return the record's headers."""
        return self.record.headers

    @property
    def delivery_count(self) -> int:
        """Return how often the group has been given the record, this time included. 1 is the first time."""
        return max(1, self._lease.delivery_count)

    @property
    def lease_lost(self) -> bool:
        """Return whether the lease ended before the job was settled: the record is, or will be, another member's."""
        return self._lease.is_lost or self._lease.is_timed_out

    @property
    def is_settled(self) -> bool:
        """Return whether nothing more can be said of the job."""
        return not self._lease.has_worker

    def accept(self) -> bool:
        """Say that the job is done. Returns False if the lease had ended before: the record is delivered again."""
        return self._settle(Acknowledgement.ACCEPT)

    def release(self) -> bool:
        """Give the job back: any member may get it, at once. Its delivery count stays up. Returns as `accept`."""
        return self._settle(Acknowledgement.RELEASE)

    def reject(self) -> bool:
        """Give the job up for good. The broker keeps nothing of it: write a dead letter before. Returns as `accept`."""
        return self._settle(Acknowledgement.REJECT)

    def renew(self) -> bool:
        """Renew the lock now, instead of at 70 % of its time. Returns False if the lease had ended before."""
        return self._client.renew(self._lease)

    def __repr__(self) -> str:
        return f"Job({self.record.position}, value={self.value!r}, delivery_count={self.delivery_count})"

    def _settle(self, kind: Acknowledgement) -> bool:
        return self._client.settle_once(self._lease, kind)
