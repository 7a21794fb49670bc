"""Delivers a run to its handler: decode, call, turn what comes back into a `RunResult`. The hot path of consuming.

`record_invoker` has the loop of threads, `async_record_invoker` that of asyncio, `batch_invoker` the call with a batch,
`run_decoder` the decoding. `handler_result` reads what a handler returned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import Mapping
from typing import Any, ClassVar, TypedDict, Unpack

from ottla.app.delivery.handler_spans import HandlerSpans
from ottla.app.delivery.pending_sends import AwaitingAcks, AwaitingAcksOnLoop
from ottla.app.delivery.run_decoder import RunDecoder, Yield
from ottla.app.handler.binding import Binding
from ottla.app.handler.handler_context import Context
from ottla.clock import Clock, SystemClock
from ottla.consumer.model.run import Run, RunResult
from ottla.consumer.partitions.lanes import Ordering
from ottla.current_task import is_being_cancelled
from ottla.failures.exceptions import ExceptionTable
from ottla.failures.expiry import Expiry
from ottla.producer.record_sends import HandlerSends
from ottla.records import TopicPartition


class InvokerParts(TypedDict):
    """What an invoker is made of, beside its decoder."""

    name: str
    group: str
    binding: Binding
    exceptions: ExceptionTable
    ordering: Ordering
    is_at_most_once: bool
    state: dict[str, Any]
    origins: Mapping[str, str]
    """Retry topic → the topic of its records."""
    expiry: Expiry
    clock: Clock | None


class Invoker(ABC):
    """One handler with its decoder and its exception table. Thread-safe: it keeps nothing between runs."""

    __slots__ = (
        "_clock",
        "_exceptions",
        "_expiry",
        "_group",
        "_ordering",
        "_origins",
        "_sends",
        "_spans",
        "_state",
        "binding",
        "decoder",
        "name",
    )

    is_batch: ClassVar = False
    """It calls the handler with the records of a run together."""

    def __init__(self, *, decoder: RunDecoder, **parts: Unpack[InvokerParts]) -> None:
        self.name = parts["name"]
        self.binding = parts["binding"]
        self.decoder = decoder
        self._group = parts["group"]
        self._exceptions = parts["exceptions"]
        self._expiry = parts["expiry"]
        self._clock = parts["clock"] or SystemClock()
        self._ordering = parts["ordering"]
        # Under at-most-once its records are committed before it begins: nothing waits for what it sends.
        self._sends = None if parts["is_at_most_once"] else HandlerSends(self._group, self.name)
        self._state = parts["state"]
        self._origins = parts["origins"]
        self._spans = HandlerSpans(group=self._group, handler=self.name, is_batch=self.is_batch)

    @abstractmethod
    def deliver(self, run: Run) -> RunResult | AwaitingAcks:
        """Deliver with a synchronous handler. What the handler sent on may still be under way."""

    @abstractmethod
    async def deliver_async(self, run: Run, yield_now: Yield) -> RunResult | AwaitingAcksOnLoop:
        """Deliver with an asynchronous handler; `yield_now` lets the loop breathe. As `deliver`."""

    @property
    def _may_grow(self) -> bool:
        """Return whether a run may grow: nothing is done once per run for the records that it has."""
        return self._expiry.ttl_ms is None and self._spans.are_off

    def _context(self, run: Run) -> Context:
        return Context(
            group=self._group,
            handler=self.name,
            topic_partition=self._origin_of(run.topic_partition),
            attempt=run.attempt,
            state=self._state,
            clock=self._clock,
            run=run,
        )

    def _origin_of(self, topic_partition: TopicPartition) -> TopicPartition:
        origin = self._origins.get(topic_partition.topic)
        return topic_partition if origin is None else TopicPartition(origin, topic_partition.partition)


def raise_unless_of_record(error: BaseException, exceptions: ExceptionTable) -> None:
    """Raise what a handler raised again if it does not concern the record.

    | raised | then |
    |---|---|
    | an `Exception` | a failure of the record, by the exception table |
    | `CancelledError`, while the handler's task is not being cancelled | the same: its awaited call was cancelled |
    | `SystemExit`, `KeyboardInterrupt` | the app stops gracefully and raises it from `run` or `serve` |
    | what the exception table names, whatever it is | a failure of the record, as declared |
    | any other `BaseException` | the worker is dead: the partition stops, the app is not alive |
    """
    if isinstance(error, CancelledError):
        if is_being_cancelled():
            raise error
    elif isinstance(error, GeneratorExit) or not (isinstance(error, Exception) or exceptions.declares(error)):
        raise error
