"""Usage of clients, and throttle times. One per broker: quotas are per broker, as in Kafka.

Every use is recorded and answered with a throttle time in milliseconds, 0 for most. A quota that is changed keeps what
was measured; one that is removed is measured no more. As in Kafka

- a fetch that would be too much is not recorded: it is answered without records, and asked again;
- time of handlers throttles for at most one window;
- changes of topics save up a whole span of tokens; a strict client is refused while there is a debt, one that does not
  know that error may go on and is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from broker_embedded.common.config_definition import INT_MAX
from broker_embedded.quotas import names
from broker_embedded.quotas.limits import ClientQuotas, QuotaLimits
from broker_embedded.quotas.mutations import UNLIMITED, LimitedMutations, MutationQuota
from broker_embedded.quotas.token_bucket import TokenBucket
from ottla_wire.facts import fact

M = TypeVar("M")

SWEEP_FROM = 1_000
"""Number of meters above which meters of disconnected clients are dropped; afterwards twice the remaining number."""


@fact
class Windows:
    """How use is measured: quota.window.* and controller.quota.window.*."""

    count: int = 11
    length_ms: int = 1_000


class ClientQuotaPolicy:
    """The quotas of one broker."""

    def __init__(self, *, windows: Windows, mutation_windows: Windows, now_ms: Callable[[], int]) -> None:
        self._windows = windows
        self._mutation_windows = mutation_windows
        self._now_ms = now_ms
        self._produced = _Meters(self._new_rate, WindowedRate.is_idle)
        self._fetched = _Meters(self._new_rate, WindowedRate.is_idle)
        self._handled = _Meters(self._new_rate, WindowedRate.is_idle)
        self._connected = _Meters(self._new_rate, WindowedRate.is_idle)
        self._mutated = _Meters(self._new_bucket, TokenBucket.is_idle)
        self.replace({})

    def replace(self, quotas: ClientQuotas) -> None:
        """Replace the quotas."""
        self._produce = QuotaLimits(quotas, names.PRODUCER_BYTE_RATE)
        self._fetch = QuotaLimits(quotas, names.CONSUMER_BYTE_RATE)
        self._request = QuotaLimits(quotas, names.REQUEST_PERCENTAGE)
        self._mutation = QuotaLimits(quotas, names.CONTROLLER_MUTATION_RATE)
        self._connection = QuotaLimits(quotas, names.CONNECTION_CREATION_RATE)

    @property
    def measures_time(self) -> bool:
        """Return whether any quota needs the duration of requests."""
        return bool(self._request)

    def produced(self, user: str, client_id: str | None, size: int) -> int:
        """Count a Produce request of `size` bytes."""
        return self._record(self._produce, self._produced, user, client_id, size)

    def fetched(self, user: str, client_id: str | None, size: int) -> int:
        """Count records of `size` bytes that are about to be sent; if the result is above 0 they must not be."""
        found = self._fetch.of_client(user, client_id)
        if found is None:
            return 0
        limit, meter = found
        now_ms = self._now_ms()
        rate = self._fetched.of(meter, now_ms)
        rate.record(size, now_ms=now_ms)
        throttle_ms = rate.wait_ms(limit, now_ms=now_ms)
        if throttle_ms:
            rate.record(-size, now_ms=now_ms)
        return throttle_ms

    def leased(self, user: str, client_id: str | None, size: int) -> int:
        """Count records of `size` bytes that are sent in any case, as they are leased to the client already."""
        return self._record(self._fetch, self._fetched, user, client_id, size)

    def fetchable(self, user: str, client_id: str | None) -> int | None:
        """Return the most bytes that one fetch may return; None without a limit."""
        found = self._fetch.of_client(user, client_id)
        return None if found is None else int(found[0] * (self._windows.count - 1) * self._windows.length_ms / 1000)

    def handled(self, user: str, client_id: str | None, seconds: float) -> int:
        """Record the time that a request took."""
        throttle_ms = self._record(self._request, self._handled, user, client_id, 100 * seconds)
        return min(throttle_ms, self._windows.length_ms)

    def mutations(self, user: str, client_id: str | None, *, is_strict: bool) -> MutationQuota:
        """Return the quota for one request that changes topics."""
        found = self._mutation.of_client(user, client_id)
        if found is None:
            return UNLIMITED
        rate, meter = found
        bucket = self._mutated.of(meter, self._now_ms())
        return LimitedMutations(bucket, rate=rate, now_ms=self._now_ms, is_strict=is_strict)

    def connected(self, address: str) -> int:
        """Record a new connection. If the result is above 0 the connection is closed after that time."""
        limit = self._connection.of_address(address)
        if limit is None:
            return 0
        now_ms = self._now_ms()
        rate = self._connected.of(address, now_ms)
        rate.record(1, now_ms=now_ms)
        throttle_ms = rate.wait_ms(limit, now_ms=now_ms)
        if throttle_ms:
            rate.record(-1, now_ms=now_ms)
        return min(throttle_ms, self._windows.length_ms)

    def _record(
        self, limits: QuotaLimits, meters: _Meters[WindowedRate], user: str, client_id: str | None, amount: float
    ) -> int:
        found = limits.of_client(user, client_id)
        if found is None:
            return 0
        limit, meter = found
        now_ms = self._now_ms()
        rate = meters.of(meter, now_ms)
        rate.record(amount, now_ms=now_ms)
        return rate.wait_ms(limit, now_ms=now_ms)

    def _new_rate(self) -> WindowedRate:
        return WindowedRate(windows=self._windows.count, window_ms=self._windows.length_ms)

    def _new_bucket(self) -> TokenBucket:
        return TokenBucket(span_s=self._mutation_windows.count * self._mutation_windows.length_ms / 1000)


class _Meters(Generic[M]):
    """Meters by scope. Idle ones are dropped."""

    def __init__(self, new: Callable[[], M], is_idle: Callable[[M, int], bool]) -> None:
        self._new = new
        self._is_idle = is_idle
        self._meters: dict[Hashable, M] = {}
        self._sweep_from = SWEEP_FROM

    def of(self, key: Hashable, now_ms: int) -> M:
        meter = self._meters.get(key)
        if meter is None:
            if len(self._meters) >= self._sweep_from:
                self._meters = {key: kept for key, kept in self._meters.items() if not self._is_idle(kept, now_ms)}
                self._sweep_from = max(SWEEP_FROM, 2 * len(self._meters))
            meter = self._meters[key] = self._new()
        return meter


class _Window:
    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = self.last_ms = start_ms
        self.total = 0.0


class WindowedRate:
    """A rate over windows of time, and the wait until it is back within a limit. Measured as in Kafka.

    Amounts go into the current window. A window ends when something is recorded after its length, and counts until
    nothing has been recorded in it for the whole span, so the oldest one may have begun earlier than that. The rate is
    the sum of the windows over the time since the oldest began, and over all windows but one at the least: a client
    that has just connected has used little of a long time, and not much of a short one.
    """

    __slots__ = ("_count", "_length_ms", "_windows")

    def __init__(self, *, windows: int, window_ms: int) -> None:
        self._count = windows
        self._length_ms = window_ms
        self._windows: deque[_Window] = deque()

    def record(self, amount: float, *, now_ms: int) -> None:
        """Record an amount. A negative one undoes an amount of the same moment."""
        windows = self._windows
        if not windows or now_ms - windows[-1].start_ms >= self._length_ms:
            windows.append(_Window(now_ms))
        current = windows[-1]
        current.total += amount
        current.last_ms = now_ms

    def per_second(self, *, now_ms: int) -> float:
        span_ms = self._span_ms(now_ms)
        return sum(window.total for window in self._windows) * 1000 / span_ms

    def wait_ms(self, limit: float, *, now_ms: int) -> int:
        """Return the time until the rate is `limit` without further use; 0 if it is not above."""
        excess = self.per_second(now_ms=now_ms) - limit
        if excess <= 0:
            return 0
        return min(int(excess / limit * self._span_ms(now_ms) + 0.5), INT_MAX)

    def is_idle(self, now_ms: int) -> bool:
        """Return whether no recorded amount counts any more."""
        self._forget(now_ms)
        return not self._windows

    def _span_ms(self, now_ms: int) -> int:
        self._forget(now_ms)
        elapsed_ms = now_ms - self._windows[0].start_ms if self._windows else 0
        missing = self._count - 1 - elapsed_ms // self._length_ms
        if missing > 0:
            elapsed_ms += missing * self._length_ms
        return max(elapsed_ms, 1)

    def _forget(self, now_ms: int) -> None:
        oldest_allowed_ms = now_ms - self._count * self._length_ms
        while self._windows and self._windows[0].last_ms <= oldest_allowed_ms:
            self._windows.popleft()
