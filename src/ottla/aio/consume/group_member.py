"""One asyncio group member: an aiokafka client, a session, and worker tasks between them.

The twin of `ottla.sync.consume.group_member`, with the same steps and effects. One event loop runs all of it: no locks.

- the *fetch task* takes what the client has, in slices, and never calls a handler;
- *worker tasks* run handlers; one that finished a run reports it to the session and usually gets its next run in the
  same step;
- the *tick task* wakes the session's timers also while the fetch task waits for a rebalance to end.

aiokafka calls the rebalance listener on this loop and awaits it. Draining there is safe, because the workers are other
tasks: only the coordinator waits, and it goes on with its heartbeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Unpack

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka import TopicPartition as ClientPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import InconsistentGroupProtocolError, KafkaError

from ottla.aio.aiokafka_internals import coordinator_of, network_of
from ottla.aio.client.broker_calls import BrokerCalls
from ottla.aio.client.client_errors import commit_error_of, error_of
from ottla.aio.client.no_new_topics import create_no_topics
from ottla.aio.client.reachable import wait_for_broker
from ottla.aio.client.transactional_groups import TransactionalMember, read_stable_offsets
from ottla.aio.consume.client_work import ClientWork
from ottla.aio.consume.lookups import (
    begin_at_start,
    client_partitions,
    committed_offsets,
    connect,
    log_ends_of,
    offset_at_time,
)
from ottla.aio.consume.messages import size_of, slices_of, to_batches
from ottla.aio.consume.subscribed_topics import await_topics, find_again
from ottla.aio.consume.transactions import Transactions
from ottla.aio.consume.unreadable import Unreadable
from ottla.aio.consume.workers import Execute, Workers
from ottla.app.member.member_base import MemberOptions, MemberParts
from ottla.app.member.member_core import HINDERED_S, LEAVE_S, MemberCore
from ottla.app.member.start_offsets import known_starts
from ottla.app.member.static_members import SharedInstanceId
from ottla.config.assignors import offered
from ottla.consumer.commit.commits import InTransactions
from ottla.consumer.model import events
from ottla.consumer.model.effects import Effect
from ottla.consumer.model.run import Run
from ottla.consumer.readiness.health import Health
from ottla.consumer.scheduling.intake import Intake
from ottla.errors import ConfigError, RetriableError
from ottla.processes import forks
from ottla.records import TopicPartition
from ottla.stepping import run_async
from ottla.telemetry import log_event
from ottla.wire_client.errors import CorruptBatch
from ottla.wire_client.group.group_offsets import leave_group

_FETCH_S: Final = 0.1
_HOLD_S: Final = 0.001
_TICK_S: Final = 0.02
_ASSIGNORS: Final = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class GroupMember(MemberCore):
    """Runs one group membership from `start` to `close`. Base of the runner's members and of `AsyncConsumer`."""

    _on_asyncio = True
    _wait_for_broker = staticmethod(wait_for_broker)

    def __init__(self, options: MemberOptions, *, execute: Mapping[str, Execute], **parts: Unpack[MemberParts]) -> None:
        super().__init__(options, **parts)
        settings = options.settings
        names = offered(settings, on_asyncio=True)
        self._assignor = {"partition_assignment_strategy": tuple(_ASSIGNORS[name] for name in names)}
        instance_id = settings.get("group.instance.id")
        self._shared_id = instance_id and SharedInstanceId(
            instance_id, session_timeout_ms=settings["session.timeout.ms"]
        )
        self._joins_transactions = isinstance(options.commits, InTransactions) or options.transactions is not None
        self._changed = asyncio.Event()
        self._has_changed = self._changed.set
        self._is_assigned = asyncio.Event()
        """Return False while the session has yet to get an assignment that the client already fetches for."""
        self._is_assigned.set()
        self._is_stopping = asyncio.Event()
        self._is_stopped = asyncio.Event()
        self._main: asyncio.Task[None] | None = None
        self._calls: BrokerCalls | None = None
        self._intake = Intake(self._priority_of)
        self._unreadable = Unreadable(isolation_level=settings["isolation.level"])
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work = ClientWork(**self._command_parts())
        self._workers: Workers = Workers(is_stopping=self._is_stopping, **self._worker_parts(execute))
        self._transactions: Transactions | None = None
        if options.transactions is not None:
            self._transactions = Transactions(options.transactions, join=self.membership, **self._commit_parts())

    # Life

    async def start(self, should_give_up: Callable[[], bool] = lambda: False) -> None:
        await self.reach(should_give_up)
        self._client = AIOKafkaConsumer(**self.settings.to_aiokafka(), **self._assignor)
        self._calls = BrokerCalls(
            network_of(self._client),
            self.throttling,
            hooks=self._hooks,
            name=self.client_name,
            now_ms=self._clock.monotonic_ms,
        )
        if not self.settings["allow.auto.create.topics"]:
            create_no_topics(network_of(self._client))
        try:
            await connect(self._client, self._servers, self._answer_s, self.asking)
            if self._joins_transactions:
                read_stable_offsets(self._client)
            self._begin.joined(await await_topics(network_of(self._client), self._own_topics_awaited(should_give_up)))
            if self._transactions is not None:
                await self._transactions.start()
            self._unreadable.guard(self._client)
            self._client.subscribe(topics=self._topics, listener=_Listener(self))
        except BaseException:
            if self._transactions is not None:
                await self._transactions.stop()
            await self._client.stop()
            raise
        self._work.client = self._client
        self._workers.start()
        self._loop = asyncio.get_running_loop()
        self._main = asyncio.create_task(self._fetch_forever(), name=f"ottla-{self.group}-fetch")

    def stop(self) -> None:
        """Ask for a graceful stop; returns at once. On the loop's thread."""
        self._is_stopping.set()

    async def join(self) -> None:
        """Wait until everything is committed and the group left."""
        await self._is_stopped.wait()

    @property
    def is_running(self) -> bool:
        return self._main is not None and not self._is_stopped.is_set()

    # Questions and verbs

    def health(self) -> Health:
        return self._health(loop="fetch", is_running=self.is_running, has_started=self._main is not None)

    async def seek_to_time(self, topic_partition: TopicPartition, timestamp_ms: int) -> int:
        self._check_time_to_seek(topic_partition, timestamp_ms)
        try:
            offset = await offset_at_time(self._client, topic_partition, timestamp_ms)
        except KafkaError as error:
            raise error_of(error, self._servers, asking=self.asking) from error
        self.seek(topic_partition, offset)
        return offset

    async def drain(self, timeout_s: float) -> bool:
        self._step(events.DrainRequested())
        return await self._wait(lambda: self._session.is_idle, timeout_s)

    # For callers that pull

    async def take_run(self, timeout_s: float) -> Run | None:
        return await self._workers.take(timeout_s)

    async def commit_now(self) -> None:
        """Commit finished records and wait for the response. Raises if the coordinator refuses."""
        await self._work.commits_sent()
        offsets = self._session.committable(self._clock.monotonic_ms())
        error = await self._work.commit(offsets) if offsets else None
        if error is not None:
            raise commit_error_of(error, self._servers, self.asking) from error

    async def membership(self, epochs: Mapping[TopicPartition, int]) -> TransactionalMember:
        """Return what names this member and its generation to the coordinator (KIP-447).

        Raises `RetriableError` unless it has these partitions, without interruption since these epochs.
        """
        coordinator = coordinator_of(self._client)
        self._check_still_has(epochs, coordinator.generation)
        return TransactionalMember(
            group=self.group,
            generation=coordinator.generation,
            member_id=coordinator.member_id,
            instance_id=self.settings.get("group.instance.id"),
        )

    def _forked(self) -> None:
        """Reset the member in a child process after fork: the event loop and its connections stayed in the parent."""
        if self._client is None:
            return
        self.error = forks.carried_over("consumer", "event loop and connections")
        self._main = None

    def run_of(self, task: asyncio.Task[Any] | None) -> Run | None:
        """Return what one of the member's tasks handles. Safe in any thread."""
        return self._workers.run_of(task)

    # The fetch task

    async def _fetch_forever(self) -> None:
        ticker = asyncio.create_task(self._tick_forever(), name=f"ottla-{self.group}-tick")
        fetcher = asyncio.create_task(self._fetch_until_error(), name=f"ottla-{self.group}-poll")
        stopping = asyncio.create_task(self._is_stopping.wait())
        finding = asyncio.create_task(
            find_again(self._client, self._topics, gone=self._missing.gone, found=self._missing.found)
        )
        try:
            await asyncio.wait({fetcher, ticker, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for ended in (fetcher, ticker):  # without its ticks a member would retry nothing and commit nothing
                if ended.done() and not ended.cancelled() and self.error is None:
                    error = ended.exception()
                    assert error is not None  # both go on for ever
                    self._failed(error)
        finally:
            for task in (fetcher, stopping, finding):
                task.cancel()
            await asyncio.gather(fetcher, stopping, finding, return_exceptions=True)
            try:
                await self._close()
            finally:
                ticker.cancel()
                await asyncio.gather(ticker, return_exceptions=True)
                self._is_stopped.set()
                self._on_stop()

    async def _fetch_until_error(self) -> None:
        while True:
            try:
                await self._fetch_once()
            except KafkaError as error:
                ends = error_of(error, self._servers, topics=self._topics, asking=self.asking)
                if isinstance(error, InconsistentGroupProtocolError):
                    ends = await asyncio.to_thread(self._assignor_conflict)
                if not isinstance(ends, RetriableError):
                    raise ends from error
                self._error_log.write("warning", type(error).__name__, str(error))
                await asyncio.sleep(_FETCH_S)

    async def _fetch_once(self) -> None:
        if self._session.should_hold(self._clock.monotonic_ms()):
            await asyncio.sleep(_HOLD_S)
            self._step(events.Tick())
            return
        if self._intake.has_room(self._session.free_bytes):
            await self._fetch()
        await self._take_in_round()
        for name, error in self._unreadable.take().items():
            while not self._intake.is_empty:
                await self._take_in_round()  # what was read before comes before
            await self._read_past(name, error)

    async def _fetch(self) -> None:
        # Everything that is prefetched, of all partitions: with `max_records` aiokafka would serve the first one only.
        # The client's own method, behind what an instrumentor wrapped around it: the wrapper decodes headers and keys.
        getmany = inspect.unwrap(self._client.getmany)
        fetched = await getmany(timeout_ms=round(_FETCH_S * 1_000) if self._intake.is_empty else 0)
        await self._is_assigned.wait()
        for place, messages in fetched.items():
            name = TopicPartition(*place)
            epoch = self._session.epoch_of(name)
            if epoch is not None:
                # Without priorities a round takes all records: none is left waiting.
                size_bytes = 0 if self._priority_of is None else size_of(messages)
                self._intake.put(name, messages, epoch=epoch, size_bytes=size_bytes)

    async def _take_in_round(self) -> None:
        for each in self._intake.round():
            name = each.topic_partition
            if not await self._take_in(to_batches(name, each.messages, behind=each.behind), name, each.epoch):
                self._intake.forget(name)

    async def _take_in(self, batches: Iterable[events.Fetched], name: TopicPartition, epoch: int | None) -> bool:
        """Return whether all of the batches count."""
        for batch in batches:
            if self._session.epoch_of(name) != epoch:
                return False  # Sought, or revoked and assigned again, while earlier slices were taken in.
            self._step(batch)
            self._count_fetched(batch)
            await asyncio.sleep(0)
        return self._session.epoch_of(name) == epoch

    async def _read_past(self, name: TopicPartition, error: Exception) -> None:
        """Read a partition where the client cannot, and move the client behind that."""
        epoch = self._session.epoch_of(name)
        if epoch is None:
            return
        try:
            chunk = await self._unreadable.read(name)
        except CorruptBatch as corrupt:
            text = f"{corrupt} ({type(error).__name__}: {error})"
            self._error_log.write("error", "records_unreadable", text)
            self._step(events.ClientFailed(name, text))
            await asyncio.sleep(_FETCH_S)
            return
        if await self._take_in(slices_of(name, chunk.records), name, epoch):
            self._client.seek(ClientPartition(*name), chunk.next_offset)

    async def _tick_forever(self) -> None:
        while True:
            now_ms = self._clock.monotonic_ms()
            wait_s = (self._session.next_wakeup_ms(now_ms) - now_ms) / 1_000
            await asyncio.sleep(min(_TICK_S, max(0.001, wait_s)))
            self._step(events.Tick())
            self._renew_wall_time()
            for _ in self._measure_if_due():
                await asyncio.sleep(0)

    async def _close(self) -> None:
        """Drain, commit, leave."""
        try:
            self._step(events.CloseRequested())
            self._workers.give_back_cancelled()
            await self._wait(self._session.is_quiet, self._drain_s)
            await self._work.finish_commits()
            self._step(events.Closed())
            await self._work.commit_last()
        except Exception as error:
            self.error = self.error or error
        finally:
            await self._workers.stop()
            if self._transactions is not None:
                await self._transactions.stop()
            await self._work.stop()
            self._offset_poller.stop()
            if self._calls is not None:
                self._calls.end()
            self._stop_reporting()
            try:
                async with asyncio.timeout(LEAVE_S):
                    await self._leave()
            except TimeoutError:
                log_event("client_close_abandoned", "warning", {"group": self.group, "after_s": LEAVE_S})
            except Exception as error:
                self.error = self.error or error

    async def _leave(self) -> None:
        """Stop the client. It waits for the answer to its JoinGroup, and that for the slowest member of the group."""
        stopping = asyncio.ensure_future(self._client.stop())
        try:
            await asyncio.wait([stopping], timeout=HINDERED_S)
            name = str(getattr(coordinator_of(self._client), "member_id", ""))
            if not stopping.done() and name and not self.settings.get("group.instance.id"):
                goodbye = partial(leave_group, self.settings, group=self.group, member_id=name)
                await asyncio.to_thread(goodbye)
            await stopping
        finally:
            stopping.cancel()

    # The client's listener

    async def on_assign(self, partitions: list[TopicPartition]) -> None:
        if self._shared_id:
            self._shared_id.assigned(self._clock.monotonic_ms())
        committed, starts = None, {}
        self._is_assigned.clear()
        # The client has begun already. What it gives before it is known where it is to begin would come out of order.
        held = client_partitions(partitions) if self._begin.decides else []
        if held:
            self._client.pause(*held)
        for name in self._begin.at_start(partitions, {}):
            begin_at_start(self._client, name)
        try:
            if partitions:
                committed = await committed_offsets(self._client, partitions, group=self.group)
            if committed is not None and held:
                for name in self._begin.at_start(committed, {}):
                    self._client.seek(ClientPartition(*name), committed[name][0])
                starts = known_starts(await run_async(self._begin.find(partitions, committed)))
                for name, start in starts.items():
                    self._client.seek(ClientPartition(*name), start)
        finally:
            if held:
                self._client.resume(*held)
            try:
                self._step(events.Assigned(partitions, committed, starts))
                self._watch.assigned(len(partitions), self._clock.monotonic_ms())
            finally:
                self._is_assigned.set()

    def _log_ends_of(self, partitions: Sequence[TopicPartition]) -> Any:
        return log_ends_of(self._client, partitions, on_error=self._work.log_lookup_error)

    def _committed_of(self, partitions: Sequence[TopicPartition]) -> Any:
        return committed_offsets(self._client, partitions, group=self.group)

    async def on_revoke(self, partitions: list[TopicPartition]) -> None:
        is_lost = self._is_lost()
        began_ms = self._clock.monotonic_ms()
        if is_lost and partitions:
            self._step(events.Lost(partitions))
            self._watch.partitions_left("lost", len(partitions), began_ms=began_ms, now_ms=self._clock.monotonic_ms())
        fenced = self._shared_id.lost(self._clock.monotonic_ms()) if is_lost and self._shared_id else None
        if fenced is not None:
            self._end(fenced)
            # Ends aiokafka's coordination before it joins once more: that would throw the other member out.
            raise asyncio.CancelledError
        if is_lost or not partitions:
            return
        self._step(events.Revoking(partitions))
        self._workers.give_back_cancelled()
        await self._wait(lambda: self._session.is_quiet(partitions), self._drain_s)
        await self._work.finish_commits()
        self._step(events.Revoked(partitions))
        await self._work.commit_last()
        self._watch.partitions_left("revoked", len(partitions), began_ms=began_ms, now_ms=self._clock.monotonic_ms())

    def _is_lost(self) -> bool:
        """Return whether the coordinator has thrown this member out already: aiokafka has no `on_lost`, but it resets
        its generation to -1 when its session expired, and then the partitions may have another owner."""
        coordinator = coordinator_of(self._client)
        return getattr(coordinator, "generation", 0) == -1

    # Effects

    def _for_client(self, effect: Effect) -> None:
        self._work.do(effect)

    def _commit_last(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        self._work.last.append(offsets)

    def _from_another_thread(self, call: Callable[..., object], *arguments: Any) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(call, *arguments)

    # Small parts

    async def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return condition()
        return True


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: GroupMember) -> None:
        self._member = member

    async def on_partitions_revoked(self, revoked: set[ClientPartition]) -> None:
        await self._member.on_revoke([TopicPartition(*name) for name in sorted(revoked)])

    async def on_partitions_assigned(self, assigned: set[ClientPartition]) -> None:
        try:
            await self._member.on_assign([TopicPartition(*name) for name in sorted(assigned)])
        except ConfigError as error:  # of `weight_of`. aiokafka would log it, and the partition would have no handler
            self._member._end(error)
