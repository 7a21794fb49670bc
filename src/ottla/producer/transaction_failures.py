"""What went wrong inside the open transaction: with any of it, the transaction cannot be committed.

It does not matter whether a failure was raised to anyone. Code that logs a refused record and goes on would otherwise
commit the others without it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ottla.errors import (
    BrokerUnavailable,
    DeliveryError,
    FencedError,
    InputError,
    LifecycleError,
    OttlaError,
    RetriableError,
    UndeliveredRecord,
)
from ottla.producer.deliveries import DeliveryFailure, DeliveryTracker, delivery_error


class TransactionFailures:
    """The failures of one producer's open transaction. Thread-safe: reports come in other threads than sends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_open = False
        self._records: list[DeliveryFailure] = []
        self._total = 0
        self._fenced: FencedError | None = None
        self._of_call: OttlaError | None = None
        self._last_raised: BaseException | None = None
        self._unreported: str | None = None

    def begin(self) -> None:
        """Begin a transaction: earlier failures do not concern it."""
        with self._lock:
            self._is_open = True
            self._records = []
            self._total = 0
            self._fenced = self._of_call = self._last_raised = self._unreported = None

    @property
    def has_reason(self) -> bool:
        """Return whether the cause that prevents the commit is known. Records that a client gave up are no cause: it
        gives up the records behind a refused one."""
        return self._fenced is not None or self._of_call is not None or any(map(_is_reason, self._records))

    @property
    def has_any(self) -> bool:
        """Return whether any record of it was not delivered, for whatever reason."""
        return self._total > 0

    def end(self) -> None:
        """End the transaction, committed or aborted."""
        with self._lock:
            self._is_open = False

    def add(self, failure: DeliveryFailure) -> None:
        """Record that a record was not delivered."""
        with self._lock:
            if not self._is_open:
                return
            self._total += 1
            if len(self._records) < DeliveryTracker.KEEP_FAILURES:
                self._records.append(failure)
            if isinstance(failure.error, FencedError):
                self._fenced = self._fenced or failure.error

    def send_raised(self, topic: str, key: object, partition: int | None, error: BaseException) -> None:
        """Record that `send` raised: too large, not serializable, no room. Each error counts once."""
        if error is self._last_raised:
            return
        self._last_raised = error
        explained = error if isinstance(error, OttlaError) else InputError(f"{topic}: {error!r}")
        encoded_key = key if isinstance(key, bytes) else None
        record = UndeliveredRecord(topic=topic, partition=partition, key=encoded_key, error=str(explained))
        self.add(DeliveryFailure(record, explained))

    def call_raised(self, error: BaseException) -> None:
        """Record that another call of the transaction failed, such as `send_offsets`."""
        with self._lock:
            if isinstance(error, FencedError):
                self._fenced = self._fenced or error
            elif self._of_call is None:
                self._of_call = error if isinstance(error, OttlaError) else InputError(repr(error))

    def no_reports_from(self, topic: str) -> None:
        """Record that the transaction has records to this topic without reports of their own."""
        self._unreported = topic

    def refused(self, error: BaseException) -> BaseException:
        """Return what to raise where the client gave the transaction up and said `error`. With records that have no
        reports one of these may be meant: a DeliveryError, which does not know which. Nor is the outcome of a commit
        open."""
        if self._unreported is None or not isinstance(error, OttlaError) or isinstance(error, FencedError):
            return error
        record = UndeliveredRecord(topic=self._unreported, partition=None, key=None, error=str(error))
        found = DeliveryError([record])
        found.__cause__ = error
        return found

    @property
    def fenced(self) -> FencedError | None:
        """Why this producer cannot be used any more, if one of the failures says so."""
        return self._fenced

    def error(self, still_out: Sequence[UndeliveredRecord] = (), cause: OttlaError | None = None) -> OttlaError | None:
        """Return why the transaction cannot be committed; None if all went well. `still_out`: records without an
        answer. `cause`: the client's message, if any.

        Never a `BrokerUnavailable`: out of a commit, that says that the outcome is open.
        """
        with self._lock:
            if self._fenced is not None:
                return self._fenced
            records = sorted(self._records, key=_is_reason, reverse=True)
            undelivered: DeliveryError | None = delivery_error(records, self._total, list(still_out), cause=cause)
            if undelivered is not None:
                if cause is not None and records and not _is_reason(records[0]):
                    undelivered.__cause__ = cause
                return undelivered
            if isinstance(self._of_call, BrokerUnavailable):
                error = RetriableError(
                    f"the transaction cannot be committed because a call in it failed: {self._of_call}"
                )
                error.__cause__ = self._of_call
                return error
            return self._of_call


def _is_reason(failure: DeliveryFailure) -> bool:
    return not isinstance(failure.error, LifecycleError)
