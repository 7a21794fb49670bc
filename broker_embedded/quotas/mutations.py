"""The changes of topics that one request makes, counted in partitions and held against tokens (KIP-599)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.quotas.token_bucket import TokenBucket
from ottla_wire.protocol import ErrorCode


class MutationQuota(Protocol):
    """The quota of one request."""

    def charge(self, partitions: int) -> None:
        """Charge the change. Raises THROTTLING_QUOTA_EXCEEDED if the quota does not allow it."""
        ...

    def throttle_ms(self) -> int:
        """Return how long the client has to be throttled now."""
        ...


class _Unlimited:
    def charge(self, partitions: int) -> None:
        pass

    def throttle_ms(self) -> int:
        return 0


UNLIMITED: MutationQuota = _Unlimited()


class LimitedMutations:
    """The debt is checked when a change is charged, and again when the response is sent: part of it may be paid by
    then."""

    def __init__(self, bucket: TokenBucket, *, rate: float, now_ms: Callable[[], int], is_strict: bool) -> None:
        """`is_strict`: refuse the client while it has a debt; otherwise only delay its responses."""
        self._bucket = bucket
        self._rate = rate
        self._now_ms = now_ms
        self._is_strict = is_strict
        self._is_over = False

    def charge(self, partitions: int) -> None:
        if self._is_strict and self._wait_ms():
            self._is_over = True
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        self._bucket.take(partitions, rate=self._rate, now_ms=self._now_ms())
        if not self._is_strict and self._wait_ms():
            self._is_over = True

    def throttle_ms(self) -> int:
        return self._wait_ms() if self._is_over else 0

    def _wait_ms(self) -> int:
        return self._bucket.wait_ms(rate=self._rate, now_ms=self._now_ms())
