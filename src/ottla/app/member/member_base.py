"""What every member of a group has, whether the group assigns it partitions or leases it records: its options, its log
events, metrics and spans, and the verbs that an app's runner calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from time import monotonic
from typing import Any, NotRequired, Protocol, TypedDict, TypeVar, Unpack

from ottla.app.member.handler_workers import WorkerParts
from ottla.app.once.exactly_once_invoker import TransactionOptions
from ottla.app.once.once_settings import OnceSettings
from ottla.app.once.result_settings import ResultOptions
from ottla.clock import Clock, SystemClock
from ottla.config import Principal, Settings, TopicWait, check_servers, principal_of, tokens_of_client
from ottla.config.chosen_address import say_which_address
from ottla.consumer.commit.commits import AtMostOnce, CommitPolicy, InTransactions
from ottla.consumer.model import events
from ottla.consumer.model.effects import Notice
from ottla.consumer.model.failed_writes import OnWritten, Write
from ottla.consumer.model.run import Run
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.partitions.plan import RoutePlan
from ottla.consumer.readiness.health import DEFAULT_UNREADY_AFTER_S, Health
from ottla.processes import lookups
from ottla.telemetry import Hooks, log_event
from ottla.telemetry.metrics.member_metrics import MemberMetrics
from ottla.telemetry.traces.open_attempts import open_attempts
from ottla.wire_client.net.reachability import START_TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """How one member of a group behaves. None stands for the default."""

    group: str
    topics: Sequence[str]
    plans: Sequence[RoutePlan]
    settings: Settings
    flow: FlowLimits | None = None
    commits: CommitPolicy | AtMostOnce | InTransactions | None = None
    drain_s: float = 10.0
    start_timeout_s: float | None = None
    topics_timeout_s: float | None = None
    unready_after_s: float = DEFAULT_UNREADY_AFTER_S
    hooks: Hooks | None = None
    clock: Clock | None = None
    random: Random | None = None
    stores: Mapping[str, OnceSettings] = field(default_factory=dict)
    """By topic, of handlers whose offsets are in a store."""
    transactions: TransactionOptions | None = None
    """Settings of handlers that commit their offsets in transactions."""
    results: ResultOptions | None = None
    """Settings of handlers that return rows, and commit without transactions."""


class FailedWriteSink(Protocol):
    """Writes failed records to dead letter topics and retry topics."""

    def write(self, failed_write: Write, on_written: OnWritten, /) -> None:
        """Start writing. Must not raise, and must eventually call `on_written`."""


class MemberParts(TypedDict):
    """What a member is given by its owner."""

    dead_letters: FailedWriteSink
    """Writes failed records, to retry topics as well."""
    on_stop: NotRequired[Callable[[], object]]
    """Called when the member has ended."""


M_co = TypeVar("M_co", covariant=True)


class MakeMember(Protocol[M_co]):
    """A class of group members. `execute` is the code of each handler; a plan without it is pulled."""

    def __call__(
        self, options: MemberOptions, *, execute: Mapping[str, Callable[[Run], Any]], **parts: Unpack[MemberParts]
    ) -> M_co: ...


class MemberBase(ABC):
    """See the module."""

    @staticmethod
    @abstractmethod
    def _wait_for_broker(settings: Settings, timeout_s: float, should_give_up: Callable[[], bool]) -> Any:
        """Wait until a broker listens at the address. On an event loop this is to be awaited."""

    def __init__(self, options: MemberOptions, **parts: Unpack[MemberParts]) -> None:
        check_servers(options.settings)
        say_which_address(options.settings)
        self.group = options.group
        self.settings = options.settings
        self._topics = list(options.topics)
        self._plans = list(options.plans)
        self._servers: str = options.settings["bootstrap.servers"]
        self.asking = Principal(
            principal=principal_of(options.settings),
            topics=self._topics,
            group=options.group,
            tokens=tokens_of_client(options.settings),
        )
        self._failed_writes = parts["dead_letters"]
        self._on_stop = parts.get("on_stop", lambda: None)
        self._drain_s = options.drain_s
        self._start_timeout_s = START_TIMEOUT_S if options.start_timeout_s is None else options.start_timeout_s
        self._topics_timeout_s = options.topics_timeout_s
        self._attempts = open_attempts(options.group)
        self._clock = options.clock or SystemClock()
        self.client_name: str = options.settings.get("client.id") or options.group
        self._watch = MemberMetrics(
            options.hooks, group=options.group, client=self.client_name, now_ms=self._clock.monotonic_ms()
        )
        self._hooks = self._watch.hooks
        self.error: BaseException | None = None
        """The error that ended the member; None after `stop`."""

    def reach(self, should_give_up: Callable[[], bool] = lambda: False) -> Any:
        """Wait until something listens at the address. Raises `BrokerUnavailable` when nothing does. On an event loop
        this is to be awaited."""
        lookups.check()
        return self._wait_for_broker(self.settings, self._start_timeout_s, should_give_up)

    @abstractmethod
    def start(self, should_give_up: Callable[[], bool] = lambda: False) -> Any:
        """Connect, join the group, and begin to handle. Raises `BrokerUnavailable`, `ConfigError` or `UnknownTopic`
        with the facts. On an event loop this is to be awaited."""

    @abstractmethod
    def join(self) -> Any:
        """Wait until everything is committed and the group left. On an event loop this is to be awaited."""

    @abstractmethod
    def stop(self) -> None:
        """Ask for a graceful stop; returns at once."""

    @property
    @abstractmethod
    def is_running(self) -> bool: ...

    @abstractmethod
    def health(self) -> Health: ...

    @abstractmethod
    def _forked(self) -> None:
        """Reset the member in a child process after fork."""

    def topics_awaited(self, topics: Collection[str], should_give_up: Callable[[], bool] = lambda: False) -> TopicWait:
        """Return the wait for topics that begins now."""
        return TopicWait(
            topics,
            servers=self._servers,
            timeout_s=self._topics_timeout_s,
            now_s=monotonic(),
            asking=self.asking,
            should_give_up=should_give_up,
        )

    @abstractmethod
    def _step(self, event: events.Event, *, takes_run: bool = False) -> Run | None:
        """Apply an event of a worker. With `takes_run` its next run is returned instead of queued."""

    def _worker_parts(self, execute: Mapping[str, Callable[[Run], Any]]) -> WorkerParts:
        """Return what the workers that run handlers need of the member. A plan without code to execute is pulled: its
        runs are taken with `take_run`."""
        return {
            "count": sum(plan.concurrency for plan in self._plans if plan.name in execute),
            "group": self.group,
            "execute": execute,
            "step": self._step,
            "end": self._end,
            "batches": {plan.name for plan in self._plans if plan.is_batch},
            "hooks": self._hooks,
            "clock": self._clock,
        }

    def _event(self, event: str, level: str, fields: Mapping[str, object]) -> None:
        """Log an event of the group, and count it."""
        log_event(event, level, {"group": self.group, **fields})
        self._watch.noticed(event, fields)

    def _notice(self, notice: Notice) -> None:
        """Log what happened, and count it."""
        event, fields = notice.event, notice.fields
        ids = self._attempts.noted(event, fields) if self._attempts else {}
        log_event(event, notice.level, {"group": self.group, **ids, **fields})
        self._watch.noticed(event, fields)

    def _end(self, error: BaseException) -> None:
        """End the member with `error`: it cannot continue."""
        self.error = self.error or error
        self.stop()

    def _log_failure(self, error: BaseException) -> None:
        """Log the error that ended the member."""
        log_event("consumer_failed", "error", {"group": self.group, "error": f"{type(error).__name__}: {error}"})
