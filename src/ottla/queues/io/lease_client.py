"""A share group's member with its threads: one for heartbeats and leaders, one for time, one for each broker.

1.  The pure member is guarded by one lock. A thread asks it for a request, sends it without the lock, and brings back
    the answer.
2.  Effects are passed to `on_effects` without the lock, in the thread where they arose. It must not wait.
3.  A broker that does not answer delays its own thread alone: the locks of other brokers' leases are renewed.
4.  Any thread may call `finished`, `waits`, `settle`, `hold`, `renew` and `close`.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import uuid4

from ottla.clock import Clock, SystemClock
from ottla.queues.core.acknowledgements import Acknowledgement, Place
from ottla.queues.core.effects import Disconnect, Effect, FindLeaders
from ottla.queues.core.lease import Lease, LeaseState
from ottla.queues.core.share_member import ShareMember
from ottla.queues.io.broker_thread import BrokerThread
from ottla.queues.io.group_thread import GroupThread
from ottla.topics import TopicPartition
from ottla.wire_client.client_settings import WireSettings

_LOOK_EVERY_S: Final = 1.0

OnEffects = Callable[[list[Effect]], None]


class LeaseClient:
    """See the module. `on_ended` is called when the member cannot go on, with the reason, and when it has closed."""

    def __init__(
        self,
        settings: WireSettings,
        *,
        group: str,
        topics: Sequence[str],
        concurrency: int,
        max_job_ms: int,
        max_waiting: int,
        most_ahead: int = 0,
        on_effects: OnEffects,
        on_ended: Callable[[BaseException | None], None],
        on_time: Callable[[int], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings
        self.group = group
        self.topics = list(topics)
        self.member_id = base64.urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()
        self.clock = clock or SystemClock()
        self.lock = threading.RLock()
        self.member = ShareMember(
            concurrency=concurrency, max_job_ms=max_job_ms, max_waiting=max_waiting, most_ahead=most_ahead
        )
        self.addresses: dict[int, tuple[str, int]] = {}
        self.names: dict[Place, TopicPartition] = {}
        self.is_closing = False
        self._on_effects = on_effects
        self._on_ended = on_ended
        self._on_time = on_time
        """Called about once a second, and more often, with the monotonic time."""
        self._timer_changed = threading.Condition(self.lock)
        self._timer_ms: int | None = None
        self._idle = threading.Condition(self.lock)
        self._brokers: dict[int, BrokerThread] = {}
        self._group_thread = GroupThread(self)
        self._timer = threading.Thread(target=self._keep_time, name=f"ottla-{group}-leases", daemon=True)
        self._is_over = False
        self.has_failed = False
        """Whether a thread of the member has ended with an error."""

    # Life

    def start(self) -> None:
        """Join the group, and begin to lease records."""
        self._group_thread.start()
        self._timer.start()

    def close(self) -> None:
        """Lease nothing more, release what was not begun, and leave when all that is in work was finished."""
        with self.lock:
            self.is_closing = True
            effects = self.member.close(self.now_ms())
            self.wake()
        self.perform(effects)

    def abandon(self) -> None:
        """Release what is still in work, and leave."""
        with self.lock:
            self.is_closing = True
            effects = self.member.abandon(self.now_ms())
            self.wake()
        self.perform(effects)

    def pause(self, is_paused: bool) -> None:
        """Lease nothing more, or go on."""
        with self.lock:
            self.member.is_paused = is_paused
            self.wake()

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Wait until no record is leased. Returns False when `timeout_s` was too short for that."""
        with self._idle:
            return self._idle.wait_for(lambda: not len(self.member.leases), timeout_s)

    @property
    def has_joined(self) -> bool:
        """Return whether the group coordinator has answered."""
        return self._group_thread.membership.has_joined

    def problems(self) -> tuple[str, ...]:
        """Return why records are not leased as they should be."""
        with self.lock:
            brokers = [thread.problem for thread in self._brokers.values()]
        found = [self._group_thread.problem, *brokers]
        return tuple(problem for problem in found if problem is not None)

    # What became of a lease

    def begin(self, lease: Lease) -> bool:
        """A worker begins with a lease. Returns False if it ended meanwhile."""
        with self.lock:
            return self.member.begin(lease, self.now_ms())

    def finished(self, lease: Lease, kind: Acknowledgement | None, *, then: Lease | None = None) -> bool:
        """Free the worker, and acknowledge the lease with `kind`; None keeps it. `then` is the lease the worker begins
        next. Returns whether it began."""
        with self.lock:
            begins, effects = self.finish(lease, kind, then)
        if effects:
            self.perform(effects)
        return begins

    def finish(
        self, lease: Lease, kind: Acknowledgement | None, then: Lease | None = None
    ) -> tuple[bool, list[Effect]]:
        """With the lock: do as `finished`, and return the effects too. Pass them to `perform` after the lock's
        release: a dead letter that is written again may wait for its producer."""
        now_ms = self.now_ms()
        effects = self.member.finished(lease, kind, now_ms)
        begins = then is not None and self.member.begin(then, now_ms)
        self._wake_brokers(now_ms)
        if self.member.work.waiting or not len(self.member.leases):
            self.wake()
        return begins, effects

    def waits(self, lease: Lease, due_ms: int) -> None:
        """Take in that the worker is free again, and the record is handled once more at `due_ms`."""
        with self.lock:
            effects = self.member.waits(lease, due_ms, self.now_ms())
            self.wake()
        self.perform(effects)

    def waits_again(self, lease: Lease, due_ms: int) -> None:
        """Hand out a lease that was kept once more at `due_ms`."""
        with self.lock:
            effects = self.member.waits_again(lease, due_ms, self.now_ms())
            self.wake()
        self.perform(effects)

    def settle(self, lease: Lease, kind: Acknowledgement) -> bool:
        """Say this of a lease. Returns False if it ended before."""
        with self.lock:
            is_held = lease.is_held
            effects = self.member.settle(lease, kind, self.now_ms())
            self.wake()
        self.perform(effects)
        return is_held

    def settle_once(self, lease: Lease, kind: Acknowledgement) -> bool:
        """Say this of a lease in its caller's hands, and free the worker that stands for the caller. Returns False if
        the lease ended before, or was settled."""
        with self.lock:
            is_held = lease.state is LeaseState.RUNNING
            if not lease.has_worker:
                return False
            _, effects = self.finish(lease, kind)
        self.perform(effects)
        return is_held

    @property
    def has_no_free_worker(self) -> bool:
        """Return whether no record is leased because all workers are busy."""
        return self.member.work.busy >= self.member.work.concurrency

    def hold(self, lease: Lease) -> None:
        """Keep a lease that was taken from its worker."""
        with self.lock:
            self.member.hold(lease)

    def renew(self, lease: Lease) -> bool:
        """Renew the lock now. Returns False if the lease ended before."""
        with self.lock:
            is_held = self.member.renew(lease)
            self.wake()
        return is_held

    # For the threads

    def now_ms(self) -> int:
        """Return the monotonic time."""
        return self.clock.monotonic_ms()

    def perform(self, effects: Sequence[Effect]) -> None:
        """Carry out what is the threads' own, and pass on the rest."""
        passed_on: list[Effect] = []
        for effect in effects:
            match effect:
                case FindLeaders():
                    self._group_thread.find_leaders()
                case Disconnect():
                    pass  # the broker's thread closes its connection with each such answer
                case _:
                    passed_on.append(effect)
        if passed_on:
            self._on_effects(passed_on)

    def lead(
        self,
        leaders: Mapping[int, Sequence[tuple[Place, TopicPartition]]],
        addresses: Mapping[int, tuple[str, int]],
    ) -> None:
        """Lease records of these partitions from these brokers."""
        with self.lock:
            self.addresses = dict(addresses)
            self.names.update(pair for places in leaders.values() for pair in places)
            self.member.lead(leaders)
            for node in self.member.nodes:
                thread = self._brokers.get(node)
                if thread is None or thread.is_over:
                    self._brokers[node] = BrokerThread(self, node)
                    self._brokers[node].start()
            self.wake()

    def _wake_brokers(self, now_ms: int) -> None:
        for thread in self._brokers.values():
            thread.wake(now_ms)

    def wake(self) -> None:
        """With the lock: have idle threads look whether there is something for them."""
        self._wake_brokers(self.now_ms())
        timer_ms = self.member.next_timer_ms(self.now_ms())
        if self.is_closing or (timer_ms is not None and (self._timer_ms is None or timer_ms < self._timer_ms)):
            self._timer_changed.notify()
        if self.is_closing and self.member.is_closed:
            self._group_thread.wake()
        if not len(self.member.leases):
            self._idle.notify_all()

    def ended(self, error: BaseException | None) -> None:
        """Take in that the member has left its group, or cannot go on."""
        with self.lock:
            if self._is_over:
                return
            self._is_over = self.is_closing = True
            self.has_failed = error is not None
            effects = self.member.abandon(self.now_ms())  # what is still leased, where the membership failed
            self.wake()
            self._timer_changed.notify()
        self.perform(effects)
        self._on_ended(error)

    def _keep_time(self) -> None:
        while not self._is_over:
            with self.lock:
                now_ms = self.now_ms()
                self._timer_ms = self.member.next_timer_ms(now_ms)
                if self._timer_ms is None or self._timer_ms > now_ms:
                    self._timer_changed.wait(_wait_s(self._timer_ms, now_ms))
                now_ms = self.now_ms()
                effects = self.member.tick(now_ms)
                self._wake_brokers(now_ms)
            self.perform(effects)
            if self._on_time is not None:
                self._on_time(now_ms)


def _wait_s(due_ms: int | None, now_ms: int) -> float:
    return _LOOK_EVERY_S if due_ms is None else min(_LOOK_EVERY_S, (due_ms - now_ms) / 1_000)
