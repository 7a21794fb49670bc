"""What the pulled consumers of both shells share: their declaration, settling records, questions and verbs.

A shell adds what waits: starting, taking the next run, committing, closing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, ClassVar, Final, Generic

from ottla.app.delivery.run_decoder import RunDecoder, malformed_part
from ottla.app.member.dead_letter_producer import DeadLetterProducer
from ottla.app.member.member_base import MakeMember, MemberOptions
from ottla.app.member.member_core import MemberCore
from ottla.app.pull.partition_controls import SLICE_S, PartitionControls
from ottla.app.pull.pull_plan import pull_plan
from ottla.app.pull.receive_spans import report_received
from ottla.clock import SystemClock
from ottla.config import Settings, consumer_settings, settings_beside
from ottla.config.arguments import OTHER_METHODS, MissingMethod
from ottla.config.assignors import with_range
from ottla.config.defaults import PRIORITY_DEFAULTS
from ottla.config.priorities import topics_of
from ottla.config.token_argument import TokenFunction, with_token
from ottla.config.topic_specs import CreateTopics, TopicSpec, declared_topics, warn_of_other_partitions
from ottla.consumer.commit.commits import CommitPolicy, InTransactions
from ottla.consumer.model.events import RunFinished
from ottla.consumer.model.run import Run, RunResult
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.partitions.plan import DEFAULT_TURN_RECORDS
from ottla.consumer.pulled.choice import RunChoice, given_back
from ottla.consumer.pulled.pull import OpenRun, PullBook
from ottla.consumer.pulled.transactional_reads import refuse_to_settle, transactional_reads
from ottla.consumer.readiness.health import DEFAULT_UNREADY_AFTER_S, unready_after_ms
from ottla.errors import ConfigError, LifecycleError
from ottla.failures.exceptions import ExceptionTable, Failure
from ottla.failures.expiry import Expiry
from ottla.failures.outcomes import Dead, Retry, Skip
from ottla.failures.retry import RetryPolicy
from ottla.processes import forks
from ottla.quantities import Span, check_kinds, count, optional_seconds, seconds, seconds_of, timeout
from ottla.raising import again
from ottla.records import FailureKind, Malformed, Record, TopicPartition
from ottla.serdes import as_serde
from ottla.stepping import Steps
from ottla.telemetry import Hooks
from ottla.typevars import V_co

LOOK_S: Final = 0.5
"""How often a loop without records looks whether the consumer was closed."""


class PullConsumer(PartitionControls, ABC, Generic[V_co]):
    """A member of a group whose records are taken and settled by its caller. The shells subclass it."""

    _member_type: ClassVar[MakeMember[MemberCore]]
    _sink_type: ClassVar[type[DeadLetterProducer]]
    _left_behind: ClassVar[str]
    """Resources of a started consumer that a fork leaves in the parent process."""

    def __init__(
        self,
        *topics: str,
        group: str,
        bootstrap_servers: str | Sequence[str] | None = None,
        value: Any = None,
        key: Any = None,
        dead_letter_topic: str | None = None,
        retry: RetryPolicy | None = None,
        commit: CommitPolicy | InTransactions | None = None,
        flow: FlowLimits | None = None,
        max_records_per_turn: int = DEFAULT_TURN_RECORDS,
        drain_s: Span = 5.0,
        start_timeout_s: Span | None = None,
        topics_timeout_s: Span | None = None,
        create_topics: CreateTopics = False,
        unready_after_s: Span = DEFAULT_UNREADY_AFTER_S,
        ttl_s: Span | None = None,
        on_expired: Skip | Dead | None = None,
        expires_grace_s: Span = 0.0,
        settings: Mapping[str, Any] | None = None,
        token: TokenFunction | None = None,
        producer_settings: Mapping[str, Any] | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        check_kinds("Consumer", retry=(retry, RetryPolicy), flow=(flow, FlowLimits))
        unready_after_ms(unready_after_s, "Consumer")
        settings = with_token(type(self).__name__, settings, token)
        self._has_dead_letters = dead_letter_topic is not None
        self._sink = self._sink_type(bootstrap_servers, settings_beside(settings, producer_settings))
        self._drain_s = seconds("Consumer", "drain_s", drain_s)
        self._group = group
        self._decoder = RunDecoder(
            value=as_serde(value), key=as_serde(key), exceptions=ExceptionTable(), fails_in_order=True, origins={}
        )
        self._exceptions = ExceptionTable(keeps_errors=retry is not None and retry.has_strategies)
        self._expiry = Expiry.declared(
            "Consumer",
            ttl_s=ttl_s,
            grace_s=expires_grace_s,
            on_expired=on_expired,
            has_dead_letters=dead_letter_topic is not None,
        )
        self._clock = SystemClock()
        topics, priorities = topics_of("Consumer", topics)
        plan = pull_plan(topics, max_records_per_turn, retry, dead_letter_topic, commit, self._expiry, priorities)
        self._choice = None if plan.priorities is None else RunChoice(plan.priorities)
        used = {*topics, dead_letter_topic} if dead_letter_topic is not None else {*topics}
        self._declared_topics = declared_topics(create_topics, used=used)
        effective = consumer_settings(bootstrap_servers, group_id=group, settings=settings)
        if priorities is not None:
            effective = with_range(effective, bootstrap_servers, group, settings)
            effective = effective.with_defaults(*PRIORITY_DEFAULTS.values())
        self._book = PullBook()
        self._reads = transactional_reads(self._book, commit, settings=effective, dead_letter_topic=dead_letter_topic)
        options = MemberOptions(
            group=group,
            topics=topics,
            plans=[plan],
            settings=effective,
            flow=flow,
            commits=commit,
            drain_s=self._drain_s,
            start_timeout_s=optional_seconds("Consumer", "start_timeout_s", start_timeout_s),
            topics_timeout_s=optional_seconds("Consumer", "topics_timeout_s", topics_timeout_s),
            unready_after_s=seconds_of(unready_after_s),
            hooks=hooks,
        )
        self._member = self._member_type(options, execute={}, dead_letters=self._sink)
        self._waiting: deque[tuple[OpenRun, Record[Any]]] = deque()
        self._current: Record[Any] | None = None
        self._is_started = False
        self._is_closed = False
        self._refusal: LifecycleError | None = None
        forks.refuses(self)

    def __dir__(self) -> Iterable[str]:
        """Return the names without those that only other clients have."""
        return [name for name in super().__dir__() if name not in OTHER_METHODS["consumer"]]

    # Verbs that wait: on an event loop they are to be awaited

    @staticmethod
    @abstractmethod
    def _ensure_topics(settings: Settings, declared: Mapping[str, TopicSpec], /) -> Any:
        """Create the declared topics that are missing."""

    @abstractmethod
    def start(self) -> Any:
        """Connect, create what `create_topics` declares, and subscribe.

        Raises `BrokerUnavailable` if no broker responds, `UnknownTopic` when a topic is still missing after
        `topics_timeout_s` (3 s if not given), `ConfigError` when the cluster does not create one."""

    @abstractmethod
    def poll(self, timeout_s: Span = 1.0, *, max_records: int | None = None) -> Any:
        """Return up to `max_records` records (not given: `max.poll.records`, or 500) as soon as one is available, or an
        empty list after `timeout_s`. Settle each with `ack`, `retry`, `dead` or `failed`. Unsettled records block their
        partition: at most `max_records_per_turn` of a partition are returned before the first of them is settled. With
        priorities a poll returns no more than that, so that no record of a lower priority is returned while the
        partition of a higher one waits for its ack."""

    @abstractmethod
    def commit(self) -> Any:
        """Commit what is done now, and wait for it. Not needed for safety: commits happen by policy and on close.

        Raises `RetriableError` when the coordinator refuses it, as it does while the group rebalances (what it named is
        committed with the next one), and `BrokerUnavailable` if no broker responds.
        """

    @abstractmethod
    def seek_to_time(self, topic_partition: TopicPartition, timestamp_ms: int) -> Any:
        """Go on from the first record at or after `timestamp_ms` (epoch), or from the end. Returns the offset."""

    @abstractmethod
    def close(self) -> Any:
        """Commit what is done and leave the group. Records that were taken and not settled will be delivered again."""

    # Settling records

    def ack(self, *records: Record[Any]) -> None:
        """Settle these records as done."""
        refuse_to_settle(self._reads)
        for record in records:
            self._settle(record, None)

    def retry(self, record: Record[Any], *, after_s: Span | None = None, reason: str = "") -> None:
        """Deliver it again, later; it counts as an attempt."""
        refuse_to_settle(self._reads)
        self._settle(record, Failure.of_outcome(Retry(after_s, reason or "the caller asked for a retry")))

    def dead(self, record: Record[Any], reason: str, *, kind: FailureKind = "failed") -> None:
        """Write it to the dead letter topic. It is done when that is acknowledged."""
        refuse_to_settle(self._reads)
        self._settle(record, Failure.of_outcome(Dead(reason, kind)))

    def failed(self, record: Record[Any], error: BaseException) -> None:
        """Settle a record whose handling raised `error`: it is retried, then dead-lettered with the stack trace."""
        refuse_to_settle(self._reads)
        self._settle(record, self._exceptions.failure_of(error))

    # In a transaction

    @abstractmethod
    def _join_transaction(self, records: Iterable[Record[Any]], owner: object) -> Any:
        """Return (the offsets of these records to commit, the member that commits them), if they are still this
        member's. Called by `transaction.send_offsets`."""

    def _transaction_ended(self, owner: object, *, is_committed: bool) -> None:
        """Settle what joined the transaction; after an abort, hand out everything that was taken again."""
        if self._reads is None or not self._reads.belong_to(owner):
            return
        if not is_committed:
            self._waiting.clear()
            self._current = None
        for finished in self._reads.committed() if is_committed else self._reads.aborted():
            self._member.finish(finished)

    # Procedures: a shell makes their calls

    def _starting(self) -> Steps[None]:
        if self._refusal is not None:
            raise again(self._refusal)
        if self._is_closed:
            raise LifecycleError("the consumer is closed: make a new one")
        if not self._is_started:
            if self._declared_topics:
                yield self._member.reach
                before = yield partial(self._ensure_topics, self._member.settings, self._declared_topics)
                warn_of_other_partitions(self._declared_topics, before)
            yield self._member.start
            self._is_started = True

    def _polling(self, timeout_s: Span, max_records: int | None) -> Steps[list[Record[V_co]]]:
        timeout_s = timeout("poll", timeout_s)
        configured = self._member.settings.get("max.poll.records", 500)
        wanted = int(configured) if max_records is None else count("poll", "max_records", max_records)
        record = yield from self._taking(timeout_s)
        if record is None:
            self._member.log_unsettled(self._book.open_partitions())
            return []
        records = [record]
        while len(records) < wanted:
            record = self._take_waiting()
            # With priorities no other run is opened: the next one of an urgent partition comes when this is settled.
            if record is None and self._choice is None:
                record = yield from self._taking(0)
            if record is None:
                break
            records.append(record)
        return records

    def _taking(self, timeout_s: float = LOOK_S) -> Steps[Record[V_co] | None]:
        """Return the next record, or None after `timeout_s`. Starts the member where that was not done."""
        yield from self._starting()
        deadline_s = monotonic() + timeout_s
        while True:
            record = self._take_waiting()
            if record is not None:
                return record
            came = yield partial(self._member.take_run, self._wait_s(deadline_s - monotonic()))
            if self._is_closed:  # by another thread or task, in the meantime
                if came is not None:
                    self._member.finish(given_back(came))
                return None
            run = self._chosen(came)
            if run is not None:
                yield from self._opening(run)
            elif came is None and monotonic() >= deadline_s:
                return None

    def _opening(self, run: Run) -> Steps[None]:
        opened = self._book.open(run)
        try:
            has_malformed, result = yield partial(self._decode, run)
        except BaseException:  # the caller waits no longer and has not seen the records: they are given out again
            self._member.finish(self._book.close(opened))
            raise
        if self._is_closed:
            self._member.finish(self._book.close(opened))
            return
        self._taken(opened, has_malformed, result)

    def _closing(self) -> Steps[None]:
        if self._is_closed or self._refusal is not None:  # after a fork the parent's is not ours to close
            return
        self._is_closed = True
        if not self._is_started:
            return
        self._waiting.clear()
        for finished in [*self._book.close_all(), *(self._choice.take_all() if self._choice else ())]:
            self._member.finish(finished)
        self._member.stop()
        yield self._member.join
        yield partial(self._sink.close, self._drain_s)

    @abstractmethod
    def _decode(self, run: Run) -> Any:
        """Decode the run as `RunDecoder.decode` does, in the shell's way."""

    # Parts that the shells call

    def _given(self, record: Record[V_co] | None) -> Iterator[Record[V_co]]:
        """Yield this record and the buffered ones, for the body of a loop. Each is acknowledged when the next is
        requested."""
        while record is not None:
            self._current = record
            yield record
            current, self._current = self._current, None
            if current is not None and self._reads is None:  # the loop body did not settle it
                self._settle(current, None)
            record = None if self._is_closed else self._take_waiting()

    def _take_waiting(self) -> Record[V_co] | None:
        """Return the next record of the runs that were taken. Raises the error that ended the member."""
        while self._waiting:
            opened, record = self._waiting.popleft()
            if not opened.run.is_cancelled:
                opened.handed_out += 1
                if opened.deadlines is not None and self._has_expired(opened.deadlines, record):
                    self._expire(opened, record)
                    continue
                return record
            self._give_back_cancelled()
        self._give_back_cancelled()
        if self._member.error is not None:
            raise again(self._member.error)
        return None

    def _taken(self, opened: OpenRun, has_malformed: bool, result: RunResult | None) -> None:
        """Keep the decoded records of a run for the caller. With a `result` they must be decoded later."""
        run = opened.run
        report_received(run, group=self._group)
        if result is not None:
            self._book.close(opened)
            self._member.finish(RunFinished(run, result))
            return
        opened.deadlines = self._expiry.deadlines(run.records)
        malformed: list[tuple[Record[Any], Malformed]] = []
        for record in run.records:
            part = malformed_part(record) if has_malformed and self._has_dead_letters else None
            if part is None:
                self._waiting.append((opened, record))
            else:
                malformed.append((record, part))
        for record, part in malformed:
            finished = self._book.settle(record, Failure.of_malformed(part))
            if finished is not None:
                self._member.finish(finished)

    def _has_expired(self, deadlines: Mapping[int, int], record: Record[Any]) -> bool:
        expires_ms = deadlines.get(record.offset)
        return expires_ms is not None and expires_ms <= self._clock.now_ms()

    def _expire(self, opened: OpenRun, record: Record[Any]) -> None:
        """Settle a record that has expired. Records after it are not held back."""
        outcome = self._expiry.outcome
        if isinstance(outcome, Skip):
            opened.expired.append(record)
        finished = self._book.settle(record, Failure.of_expiry(outcome) if isinstance(outcome, Dead) else None)
        if finished is not None:
            self._member.finish(finished)

    def _offsets_joining(
        self, records: Iterable[Record[Any]], owner: object
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return (the offsets of these records to commit, the epochs that their partitions must still have)."""
        if self._refusal is not None:
            raise again(self._refusal)
        if self._reads is None:
            raise ConfigError(
                "send_offsets: found a consumer that commits by itself, wanted one made with commit=InTransactions()"
            )
        self._reads.begin(owner)
        return self._reads.join(records)

    def _settle(self, record: Record[Any], failure: Failure | None) -> None:
        if self._refusal is not None:
            raise again(self._refusal)
        if record is self._current:
            self._current = None
        if failure is not None and self._waiting and self._waiting[0][0] is self._book.run_of(record):
            # Order is kept: what follows the failed record in its run waits until that is settled.
            self._waiting[0][0].withdraw(len(self._waiting))
            self._waiting.clear()
        finished = self._book.settle(record, failure)
        if finished is not None:
            self._member.finish(finished)

    def _forked(self) -> None:
        """Reset the consumer in a child process after fork: records that were taken are the parent's, and nothing polls
        here."""
        if self._is_started:
            self._refusal = forks.carried_over("consumer", self._left_behind)
            self._waiting.clear()
            self._member = forks.Refusing(self._refusal)  # type: ignore[assignment]  # whatever is asked of it

    def _wait_s(self, left_s: float) -> float:
        """Return how long to wait for a run: not at all where runs wait to be chosen from, all that came are taken
        first."""
        return 0.0 if self._choice else max(0.0, min(SLICE_S, left_s))

    def _chosen(self, came: Run | None) -> Run | None:
        """Return the run to open now. `came` is the run that the member returned; None if it has no more."""
        if self._choice is None:
            return came
        if came is None:
            return self._choice.next()
        replaced = self._choice.put(came)
        if replaced is not None:
            self._member.finish(replaced)
        return None

    def _give_back_cancelled(self) -> None:
        for finished in self._choice.take_cancelled() if self._choice else ():
            self._member.finish(finished)
        for finished in self._book.close_cancelled():
            self._member.finish(finished)


# Not by `__getattr__`: a class that has one reads each of its attributes without CPython's shortcut, for every record.
for _name in OTHER_METHODS["consumer"]:
    setattr(PullConsumer, _name, MissingMethod("consumer", _name))
