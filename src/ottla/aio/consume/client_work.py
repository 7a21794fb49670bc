"""Executes the session's client commands: at once if they need no wait, otherwise in tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, Unpack

from aiokafka import TopicPartition as ClientPartition
from aiokafka.errors import KafkaError

from ottla.aio.aiokafka_internals import subscription_of
from ottla.aio.client.client_errors import is_fenced
from ottla.aio.consume.lookups import client_offsets, client_partitions, retry_positions
from ottla.app.member.client_commands import ClientCommands, CommandParts
from ottla.consumer.model import events
from ottla.consumer.model.effects import (
    Commit,
    Effect,
    FindRetryPositions,
    LookAtLogs,
    PausePartitions,
    ResumePartitions,
    SeekPartition,
)
from ottla.records import TopicPartition
from ottla.telemetry import log_event

T = TypeVar("T")

_LAST_COMMIT_S: Final = 3.0


class ClientWork(ClientCommands):
    """The calls of one client. `client` is set before anything is done."""

    def __init__(self, **parts: Unpack[CommandParts]) -> None:
        super().__init__(**parts)
        self._commits: set[asyncio.Task[KafkaError | None]] = set()
        self._lookups: set[asyncio.Task[None]] = set()
        self.last: list[Mapping[TopicPartition, tuple[int, str]]] = []
        """What `commit_last` is to commit."""

    def do(self, effect: Effect) -> None:
        """Carry an effect out, or begin to."""
        match effect:
            case PausePartitions(partitions):
                self._call(self.client.pause, *client_partitions(partitions))
            case ResumePartitions(partitions):
                self._call(self.client.resume, *client_partitions(partitions))
            case SeekPartition(name, offset):
                self._call(self.client.seek, ClientPartition(*name), offset)
            case Commit(offsets):
                _begin(self._commit(offsets), self._commits)
            case LookAtLogs(epochs, tails):
                self._look(events.LookedAt(epochs, self._positions(epochs), tails))
            case FindRetryPositions(partitions):
                _begin(self._find_retry_positions(partitions), self._lookups)

    async def commits_sent(self) -> None:
        """Wait until the commits under way are answered."""
        if self._commits:
            await asyncio.gather(*self._commits)

    async def commit(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> KafkaError | None:
        """Commit, and wait for the response. Returns the error, if any. The commit continues if the caller is
        cancelled."""
        return await asyncio.shield(_begin(self._commit(offsets), self._commits))

    async def finish_commits(self) -> None:
        """Let commits under way end: an older position must not arrive after the last one."""
        if self._commits:
            await asyncio.wait(set(self._commits), timeout=_LAST_COMMIT_S)

    async def commit_last(self) -> None:
        """Commit a last time before the partitions are given up. If it fails, their next owner delivers the records
        again."""
        last, self.last = self.last, []
        for offsets in last:
            sent_ms = self._clock.monotonic_ms()
            fenced: bool | None = None
            try:
                # aiokafka retries for ever while no coordinator answers; the partitions go away all the same.
                async with asyncio.timeout(_LAST_COMMIT_S):
                    await self.client.commit(client_offsets(offsets))
            except (KafkaError, TimeoutError) as error:
                fields = {"group": self._group, "error": f"{type(error).__name__}: {error}"}
                fenced = is_fenced(error)
                log_event("final_commit_failed", "warning", {**fields, "is_fenced": fenced})
            self._answered(offsets, sent_ms, fenced)

    async def stop(self) -> None:
        """Cancel pending lookups."""
        tasks = list(self._lookups)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _call(self, call: Callable[..., Any], *arguments: Any) -> None:
        try:
            call(*arguments)
        except (KafkaError, ValueError) as error:
            # The partition may be leaving at this moment; the rebalance settles it.
            self._error_log.write("info", type(error).__name__, str(error))

    async def _commit(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> KafkaError | None:
        sent_ms = self._clock.monotonic_ms()
        try:
            await self.client.commit(client_offsets(offsets))
        except KafkaError as error:
            self._answered(offsets, sent_ms, is_fenced(error))
            self._step(events.CommitFailed(f"{type(error).__name__}: {error}", is_fenced(error)))
            return error
        self._step(events.CommitSucceeded({name: offset for name, (offset, _) in offsets.items()}))
        self._answered(offsets, sent_ms, None)
        return None

    def _answered(self, offsets: Mapping[TopicPartition, object], sent_ms: int, is_fenced: bool | None) -> None:
        now_ms = self._clock.monotonic_ms()
        self._watch.committed(partitions=len(offsets), sent_ms=sent_ms, now_ms=now_ms, is_fenced=is_fenced)

    async def _find_retry_positions(self, asked: Sequence[TopicPartition]) -> None:
        # The session asks again for what is missing.
        found = await retry_positions(self.client, asked, on_error=self.log_lookup_error)
        self._step(events.RetryPositionsFound(asked, found))

    def _positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the client's positions, as far as it has read, without a request."""
        subscription = getattr(subscription_of(self.client), "subscription", None)
        assignment = getattr(subscription, "assignment", None)
        if assignment is None:
            return {}
        states = {name: assignment.state_value(ClientPartition(*name)) for name in partitions}
        return {
            name: state.position for name, state in states.items() if state is not None and state.has_valid_position
        }

    def log_lookup_error(self, error: Exception) -> None:
        """Log that offsets could not be looked up."""
        self._error_log.write("warning", type(error).__name__, str(error))


def _begin(work: Coroutine[Any, Any, T], tasks: set[asyncio.Task[T]]) -> asyncio.Task[T]:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task
