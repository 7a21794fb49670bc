"""`consumer_for`: what becomes of records, without a broker. The real consumer core with a clock that you hold.

    consumer = consumer_for(app)
    assert consumer.deliver(Order(1)).outcome == "done"
    assert consumer.deliver(b"not an order").dead_letter.kind == "malformed"

Values are encoded with the handler's serde and decoded again, as on the wire; bytes are delivered as they are.
Decoding, middleware, outcomes, retries, dead letters, ordering and commits are the code that runs in production; only
fetching and waiting are replaced. Back-offs take no time: the clock jumps, and `waited_s` tells how far.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final, Literal, TypeAlias

from ottla.app import App
from ottla.app.app import declarations_of
from ottla.app.declaration.route import Route
from ottla.app.handler.handler_context import Context
from ottla.app.once.exactly_once_invoker import AnyInvoker
from ottla.clock import ManualClock
from ottla.consumer.model import events
from ottla.consumer.model.effects import (
    Commit,
    Dispatch,
    Effect,
    Expired,
    FindRetryPositions,
    FindStarts,
    Notice,
)
from ottla.consumer.model.failed_writes import WriteDeadLetter, WriteRetry
from ottla.consumer.model.run import Run, RunResult
from ottla.consumer.session import Session
from ottla.current_task import is_on_event_loop
from ottla.errors import ConfigError, LifecycleError
from ottla.failures.foreign import DeadLetterView, describe_dead_letter
from ottla.failures.outcomes import Outcome, Skip
from ottla.failures.retry_headers import original_of
from ottla.once.transaction_parts import TransactionPart
from ottla.records import Headers, Record, TopicPartition
from ottla.serdes import SerdeContext, as_serde
from ottla.stepping import Procedure, drive, drive_async
from ottla.testing.captured import Boundary, Captured

GIVE_UP_AFTER_S: Final = 3_600.0
"""Clock time after which a record that is still retried (`max_attempts=None`, an outage) is reported, not awaited."""

_Work: TypeAlias = Procedure[tuple[AnyInvoker, Run], RunResult, None]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that would have been written to the dead letter topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    view: DeadLetterView

    @property
    def kind(self) -> str | None:
        """``"malformed"``, ``"invalid"``, ``"failed"`` or ``"expired"``."""
        return self.view.kind

    @property
    def reason(self) -> str:
        """The error's type and message."""
        return f"{self.view.error_type}: {self.view.message}"


@dataclass(frozen=True, slots=True)
class DeliveredRecord:
    """The outcome of one record.

    `done`, `skipped` and `expired` records are committed, `dead` ones once their dead letter is written. `stopped` is
    the record that holds its partition (`reason` says why), `waiting` one that was not reached because of it.
    """

    record: Record[Any]
    """The record that was delivered."""
    outcome: Literal["done", "skipped", "expired", "dead", "stopped", "waiting"]
    """The record's outcome."""
    attempts: int
    """How often its handler was called."""
    waited_s: float
    """Seconds of back-off between the calls; nothing waits for them in a test."""
    dead_letter: DeadLetter | None = None
    """The dead letter, if one was written."""
    reason: str = ""
    """Why it stopped its partition."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a handler: its argument, the attempt, and the returned value or the error."""

    handler: str
    subject: Any
    attempt: int
    outcome: Outcome | Any = None
    error: BaseException | None = None


def consumer_for(
    target: App | Callable[..., Any], *, seed: int = 0, real_producers: bool = False, **declaration: Any
) -> OfflineConsumer:
    """Return a consumer without a broker, for an app or for one handler.

    A function is declared as `@app.handler("test", **declaration)` would: `consumer_for(on_order, value=Json(Order),
    dead_letter_topic="dead")`. `seed` fixes the jitter of back-offs.

    What handlers send with `app.producer(...)` is kept in `sent`. Any other `Producer` that they use raises
    `LifecycleError` here at once, because there is no Kafka; `real_producers=True` lets them send to one that runs.

    Raises `ConfigError` for an app that was given a declaration too.
    """
    if isinstance(target, App):
        if declaration:
            raise ConfigError(f"an app has its declarations already, got {', '.join(declaration)}")
        return OfflineConsumer(target, seed=seed, real_producers=real_producers)
    app = App("test")
    app.handler(*declaration.pop("topics", ("test",)), **declaration)(target)
    return OfflineConsumer(app, seed=seed, real_producers=real_producers)


class OfflineConsumer:
    """See the module. `calls`, `sent`, `dead_letters` and `notices` collect everything that happened, in order.

    Raises `ConfigError` for an app without handlers.
    """

    def __init__(
        self, app: App, *, seed: int = 0, clock: ManualClock | None = None, real_producers: bool = False
    ) -> None:
        if not declarations_of(app).routes:
            raise ConfigError(f"app {app.group!r} has no handlers")
        self.clock = clock or ManualClock()
        self.calls: list[Call] = []
        self.sent: list[Record[Any]] = []
        """Records that handlers sent with the app's producers and with `out`, with their encoded bytes."""
        self.dead_letters: list[DeadLetter] = []
        self.notices: list[Notice] = []
        self._routes = tuple(declarations_of(app).routes)
        self._boundary = Boundary(app, self.sent, self.clock, real_producers=real_producers)
        self._invokers = {
            (route.group, route.name): route.invoker(
                [self._record_call, *declarations_of(app).all_middlewares], app.state, clock=self.clock
            )
            for route in declarations_of(app).routes
        }
        self._sessions = {
            group: Session(
                [route.plan() for route in routes],
                group=group,
                now_ms=self.clock.monotonic_ms(),
                random=Random(seed),
                flow=app.flow,
                commits=app.commit,
                epoch_offset_ms=self.clock.now_ms() - self.clock.monotonic_ms(),
            )
            for group, routes in declarations_of(app).routes_by_group().items()
        }
        captured = Captured(self.sent, {}, self.clock)
        for route in declarations_of(app).routes:
            for committer in (route.exactly, route.results):
                if committer is not None:
                    committer.submit = partial(_commit_now, captured)
        self._offsets: dict[TopicPartition, int] = {}
        self._started_ms: dict[tuple[TopicPartition, int], int] = {}
        self._retries: dict[tuple[TopicPartition, int], int] = {}
        self._retry_places: dict[tuple[TopicPartition, int], TopicPartition] = {}
        self._ended_ms: dict[tuple[TopicPartition, int], int] = {}
        self._letters: dict[tuple[TopicPartition, int], DeadLetter] = {}
        self._skipped: set[tuple[TopicPartition, int]] = set()
        self._expired: set[tuple[TopicPartition, int]] = set()

    def deliver(self, value: Any = None, **options: Any) -> DeliveredRecord:
        """Deliver one record and follow it to its final outcome. Takes the options of `deliver_all`, and `key`."""
        key = options.pop("key", None)
        return self.deliver_all([value], keys=[key], **options)[0]

    async def deliver_async(self, value: Any = None, **options: Any) -> DeliveredRecord:
        """Deliver as `deliver` does, inside a running event loop, for async handlers in async tests."""
        key = options.pop("key", None)
        return (await self.deliver_all_async([value], keys=[key], **options))[0]

    def deliver_all(
        self,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        topic: str | None = None,
        partition: int = 0,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        group: str | None = None,
    ) -> list[DeliveredRecord]:
        """Deliver records as one fetched batch of a partition, and follow all of them to their end."""
        route, records = self._records(values, keys, topic, partition, headers, timestamp_ms, group)

        def handled(request: tuple[AnyInvoker, Run]) -> RunResult:
            with self._boundary.closed():
                result = _call_now(*request)
            self._boundary.check()
            return result

        drive(self._deliver(route, records), handled)
        return self._deliveries(route, records)

    async def deliver_all_async(
        self,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        topic: str | None = None,
        partition: int = 0,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        group: str | None = None,
    ) -> list[DeliveredRecord]:
        """Deliver all as `deliver_all` does, inside a running event loop."""
        route, records = self._records(values, keys, topic, partition, headers, timestamp_ms, group)

        async def handled(request: tuple[AnyInvoker, Run]) -> RunResult:
            with self._boundary.closed():
                if request[0].binding.is_async:
                    result = await _deliver_and_confirm(*request)
                else:
                    result = await asyncio.to_thread(_call_now, *request)
            self._boundary.check()
            return result

        await drive_async(self._deliver(route, records), handled)
        return self._deliveries(route, records)

    def position(self, topic: str | None = None, partition: int = 0, *, group: str | None = None) -> int:
        """Return the offset that is (or is about to be) committed: everything before it is finished."""
        route = self._route(topic, group)
        name = TopicPartition(topic or next(iter(route.topics)), partition)
        return self._sessions[route.group].position(name) or 0

    # One batch

    def _records(
        self,
        values: Iterable[Any],
        keys: Iterable[Any] | None,
        topic: str | None,
        partition: int,
        headers: Headers,
        timestamp_ms: int | None,
        group: str | None,
    ) -> tuple[Route, list[Record[Any]]]:
        route = self._route(topic, group)
        name = TopicPartition(topic or next(iter(route.topics)), partition)
        given = list(values)
        with_keys = zip(given, [None] * len(given) if keys is None else keys, strict=True)
        at_ms = self.clock.now_ms() if timestamp_ms is None else timestamp_ms
        records = []
        for value, key in with_keys:
            offset = self._offsets.get(name, 0)
            self._offsets[name] = offset + 1
            self._started_ms[name, offset] = self.clock.monotonic_ms()
            raw_value = _encode(value, route.value_serde, SerdeContext(name.topic, "value"))
            raw_key = _encode(key, route.key_serde, SerdeContext(name.topic, "key"))
            own = list(headers if route.events is None else route.events.tagged(value, headers))
            records.append(Record(name.topic, partition, offset, at_ms, raw_key, raw_value, own, raw_key, raw_value))
        return route, records

    def _route(self, topic: str | None, group: str | None) -> Route:
        fitting = [
            route
            for route in self._routes
            if (topic is None or topic in route.topics) and (group is None or route.group == group)
        ]
        is_clear = len(fitting) == 1 and (topic is not None or len(fitting[0].topics) == 1)
        if not is_clear:
            topics = sorted({name for route in self._routes for name in route.topics})
            groups = sorted({route.group for route in fitting})
            wanted = f"topic= one of {topics}" if topic is None or not fitting else f"group= one of {groups}"
            raise ConfigError(f"which handler is meant? Give {wanted}")
        return fitting[0]

    def _deliver(self, route: Route, records: list[Record[Any]]) -> _Work:
        if not records:
            return
        session = self._sessions[route.group]
        name = records[0].topic_partition
        line = [name, *(TopicPartition(retry, name.partition) for retry in route.retry_chains.get(name.topic, ()))]
        if name not in session.assignment:
            yield from self._perform(route.group, session.step(events.Assigned(line), self.clock.monotonic_ms()))
        size_bytes = sum(len(record.raw_value or b"") for record in records)
        fetched = events.Fetched(name, list(records), size_bytes)
        give_up_ms = self.clock.monotonic_ms() + round(GIVE_UP_AFTER_S * 1_000)
        yield from self._perform(route.group, session.step(fetched, self.clock.monotonic_ms()))
        while not session.is_finished and not any(self._is_stopped(session, part) for part in line):
            now_ms = self.clock.monotonic_ms()
            if now_ms > give_up_ms:
                last = self.calls[-1].error if self.calls else None
                raise TimeoutError(f"{name} is still being retried after {GIVE_UP_AFTER_S:.0f} s, last error: {last!r}")
            self.clock.advance(max(1, session.next_wakeup_ms(now_ms) - now_ms))
            yield from self._perform(route.group, session.step(events.Tick(), self.clock.monotonic_ms()))

    def _perform(self, group: str, effects: Sequence[Effect]) -> _Work:
        session, waiting = self._sessions[group], list(effects)
        while waiting:
            effect = waiting.pop(0)
            now_ms = self.clock.monotonic_ms()
            match effect:
                case Dispatch(run):
                    result = yield self._invokers[group, run.route], run
                    for done in run.records if result.done is None else result.done:
                        record = original_of(done)
                        self._ended_ms[record.topic_partition, record.offset] = self.clock.monotonic_ms()
                    waiting += session.step(events.RunFinished(run, result), self.clock.monotonic_ms())
                case WriteDeadLetter():
                    self._keep_dead_letter(effect)
                    at = effect.topic_partition, effect.epoch, effect.record.offset
                    waiting += session.step(events.WriteAcknowledged(*at), now_ms)
                case WriteRetry():
                    waiting += self._postpone(session, effect)
                case FindStarts(epochs):
                    waiting += session.step(self._claimed(epochs), now_ms)
                case FindRetryPositions(partitions):
                    found = dict.fromkeys(partitions, (0, 0))
                    waiting += session.step(events.RetryPositionsFound(partitions, found), now_ms)
                case Commit(offsets):
                    stored = {name: offset for name, (offset, _) in offsets.items()}
                    waiting += session.step(events.CommitSucceeded(stored), now_ms)
                case Expired(_, _, records):
                    for record in map(original_of, records):
                        self._expired.add((record.topic_partition, record.offset))
                        self._ended_ms[record.topic_partition, record.offset] = self.clock.monotonic_ms()
                case Notice(event, _, fields):
                    self.notices.append(effect)
                    if event == "record_retried":
                        at_offset = (_partition_named(str(fields["partition"])), int(str(fields["offset"])))
                        self._retries[at_offset] = self._retries.get(at_offset, 0) + 1
                    elif event == "record_skipped":
                        self._skipped.add((_partition_named(str(fields["partition"])), int(str(fields["offset"]))))

    def _claimed(self, epochs: Mapping[TopicPartition, int]) -> events.StartsFound:
        """Claim the partitions in their handler's store. The records of a test begin where the test says."""
        for name in epochs:
            (once,) = (route.once for route in self._routes if name.topic in route.topics and route.once is not None)
            store_session = once.store.session()
            try:
                start = store_session.claim_offsets(once.group, "offline", [name])[name]
            finally:
                store_session.close()
            once.epochs[name] = start.epoch
        return events.StartsFound(epochs, dict.fromkeys(epochs))

    def _postpone(self, session: Session, effect: WriteRetry) -> list[Effect]:
        """Hand the record back as the retry topic would: when it is due is the session's business."""
        name = TopicPartition(effect.target, effect.target_partition)
        offset = self._offsets.get(name, 0)
        self._offsets[name] = offset + 1
        built = effect.build()
        record: Record[Any] = Record(
            *name, offset, self.clock.now_ms(), built.key, built.value, list(built.headers), built.key, built.value
        )
        origin = TopicPartition(effect.state.topic, effect.state.partition), effect.state.offset
        self._retries[origin] = effect.state.attempts
        self._retry_places[origin] = name
        now_ms = self.clock.monotonic_ms()
        at = effect.topic_partition, effect.epoch, effect.record.offset
        effects = session.step(events.WriteAcknowledged(*at), now_ms)
        return effects + session.step(events.Fetched(name, [record], len(built.value or b"")), now_ms)

    def _keep_dead_letter(self, effect: WriteDeadLetter) -> None:
        record = original_of(effect.record)
        letter = effect.build()
        view = describe_dead_letter(letter.headers)
        assert view is not None
        kept = DeadLetter(effect.dead_letter_topic, letter.key, letter.value, letter.headers, view)
        self.dead_letters.append(kept)
        self._letters[record.topic_partition, record.offset] = kept
        self._ended_ms[record.topic_partition, record.offset] = self.clock.monotonic_ms()

    def _is_stopped(self, session: Session, name: TopicPartition) -> bool:
        return self._stop_reason(session, name) is not None

    def _stop_reason(self, session: Session, name: TopicPartition) -> str | None:
        partitions = session.health(self.clock.monotonic_ms()).partitions
        return next((found.stopped for found in partitions if found.topic_partition == name), None)

    def _deliveries(self, route: Route, records: Sequence[Record[Any]]) -> list[DeliveredRecord]:
        session = self._sessions[route.group]
        found = []
        for record in records:
            at = (record.topic_partition, record.offset)
            attempts = self._retries.get(at, 0) + 1
            letter = self._letters.get(at)
            ended_ms = self._ended_ms.get(at)
            waited_s = 0.0 if ended_ms is None else (ended_ms - self._started_ms[at]) / 1_000
            reason = ""
            outcome: Literal["done", "skipped", "expired", "dead", "stopped", "waiting"]
            if letter is not None:
                outcome, reason = "dead", letter.reason
            elif at in self._expired:
                outcome = "expired"
            elif at in self._skipped:
                outcome = "skipped"
            elif ended_ms is not None:
                outcome = "done"
            else:
                stopped = self._stop_reason(session, self._retry_places.get(at, record.topic_partition)) or ""
                is_first = at in self._retry_places or session.position(record.topic_partition) == record.offset
                outcome, reason = ("stopped", stopped) if is_first else ("waiting", stopped)
                attempts = attempts if is_first else 0
            found.append(DeliveredRecord(record, outcome, attempts, waited_s, letter, reason))
        return found

    # Every call of a handler, seen by an outermost middleware

    def _record_call(self, subject: Any, context: Context, call_next: Callable[[Any], Any]) -> Any:
        try:
            outcome = call_next(subject)
        except Exception as error:
            self._add_call(subject, context, None, error)
            raise
        if inspect.iscoroutine(outcome):  # of an async handler; a delivery that can be awaited is an outcome
            return self._record_awaited(subject, context, outcome)
        self._add_call(subject, context, outcome, None)
        return outcome

    async def _record_awaited(self, subject: Any, context: Context, awaitable: Any) -> Any:
        try:
            outcome = await awaitable
        except Exception as error:
            self._add_call(subject, context, None, error)
            raise
        self._add_call(subject, context, outcome, None)
        return outcome

    def _add_call(self, subject: Any, context: Context, outcome: Any, error: BaseException | None) -> None:
        self.calls.append(Call(context.handler, subject, context.attempt, outcome, error))
        records = subject if isinstance(subject, list) else [subject]
        outcomes = outcome if isinstance(outcome, list | tuple) else [outcome] * len(records)
        for record, became in zip(records, outcomes, strict=False):
            if isinstance(became, Skip):
                self._skipped.add((record.topic_partition, record.offset))


def _encode(part: Any, serde: Any, ctx: SerdeContext) -> bytes | None:
    return part if part is None or isinstance(part, bytes) else as_serde(serde).serialize(part, ctx)


def _commit_now(captured: Captured, work: TransactionPart) -> None:
    """Commit the transaction of one run, or its rows."""
    for output in work.outputs:
        captured.send_many(output.topic, output.records())
    work.committed()


def _call_now(invoker: AnyInvoker, run: Run) -> RunResult:
    if not invoker.binding.is_async:
        result = invoker.deliver(run)
        return result if isinstance(result, RunResult) else result.wait()
    if is_on_event_loop():
        raise LifecycleError(f"{invoker.name} is async and a loop is running: use `await consumer.deliver_async(...)`")
    return asyncio.run(_deliver_and_confirm(invoker, run))


async def _deliver_and_confirm(invoker: AnyInvoker, run: Run) -> RunResult:
    result = await invoker.deliver_async(run, _breathe)
    return result if isinstance(result, RunResult) else await result.wait()


async def _breathe() -> None:
    await asyncio.sleep(0)


def _partition_named(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))
