"""What a handler sends belongs to the record that it handles, whether the handler returns the deliveries or not.

Whoever calls a handler sets `handled` to a `RecordSends` in the context of the call. A producer's `send` adds its
delivery there, as long as the handler has not returned. Tasks inherit the context, and so do threads that are given a
copy of it. One that sends later sends for nobody, which is logged once for each handler.

A `RecordSends` for each record costs 0.3 µs, a fifth of what a fast handler costs in all. Only heirs of the context
need it: a thread that was started for the first record of a run and sends while the second one is handled must not send
for the second. What a handler sends in its own thread or task is known to belong to the record that it is at. So a
handler without heirs that send has one for each run after its first thousand records. From the first send of an heir
on, each record has its own again; that one send, if it comes late, may be waited for by a later record of its run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextvars import ContextVar
from threading import get_ident
from typing import Any, Final, Protocol
from weakref import WeakSet

from ottla.telemetry import log_event


class Sent(Protocol):
    """The delivery of one record or of many, of either shell."""

    @property
    def topic(self) -> str: ...

    @property
    def is_handled(self) -> bool:
        """Return whether its failure was raised to a caller, or marked as handled."""
        ...

    def done(self) -> bool: ...

    def exception(self) -> BaseException | None: ...

    def mark_handled(self) -> None: ...

    def is_kept_in(self, tracker: Any, /) -> bool:
        """Return whether the next flush of this tracker's producer raises its failure."""
        ...

    def add_done_callback(self, callback: Callable[[Any], None], /) -> None: ...


class HandlerSends:
    """State of the sends of one handler."""

    __slots__ = ("_is_warned", "_left", "group", "handler", "has_heirs")

    def __init__(self, group: str, handler: str) -> None:
        self.group = group
        self.handler = handler
        self.has_heirs = False
        """Whether a thread or task that inherited the context of the handler has sent something."""
        self._left = _EXACT_RECORDS
        self._is_warned = False

    def begin(self, loop: Any = None, here: Callable[[], object] = get_ident) -> RecordSends:
        """Begin to collect sends, before the handler is called in this context. `end_sends` ends it.

        `loop` is the event loop that it runs on, and `here` names the task or thread that runs.
        """
        sends = RecordSends(self, loop, here)
        handled.set(sends)
        return sends

    def is_exact(self, records: int) -> bool:
        """Return whether each of the next records is to have a `RecordSends` of its own."""
        if self._left > 0:
            self._left -= records
            return True
        return self.has_heirs

    def sent_late(self, topic: str) -> None:
        """Warn once that something was sent after the handler had returned."""
        if not self._is_warned:
            self._is_warned = True
            fields = {"group": self.group, "handler": self.handler, "topic": topic}
            log_event("sent_after_handler", "warning", fields)

    def sent_late_in(self, sends: Iterable[Sent]) -> None:
        """Warn of what was sent after the handler of the last record had returned."""
        for sent in sends:
            self.sent_late(sent.topic)


class RecordSends(list[Any]):
    """Sends of a handler for its record so far."""

    __slots__ = ("_here", "_home", "_loop", "_of", "is_over")

    def __init__(self, of: HandlerSends, loop: Any, here: Callable[[], object]) -> None:
        self._of = of
        self._loop = loop
        self._here = here
        self._home = here()
        self.is_over = False

    def add(self, sent: Sent) -> None:
        """Add what was sent in the context of the call."""
        if self._here() != self._home:
            self._of.has_heirs = True
        # The handler may return in another thread meanwhile. It closes before it looks, this adds before it looks: so
        # what is not logged is waited for.
        self.append(sent)
        if self.is_over:
            self._of.sent_late(sent.topic)

    def add_of_loop(self, sent: Sent, loop: Any) -> None:
        """Add what belongs to an event loop, and must be awaited there."""
        self.add(sent if self._loop is loop else _OfAnotherLoop(sent))

    def take(self) -> list[Sent]:
        """Return the sends so far, for a record whose handler has returned."""
        count = len(self)  # an heir may add to it meanwhile
        taken = self[:count]
        del self[:count]
        return taken

    def end(self) -> list[Sent]:
        """Return the last `take`: from here on nothing is added that is not logged."""
        self.is_over = True
        return self.take()


def end_sends(sends: RecordSends | None) -> None:
    """Stop collecting: the handler has returned, or raised. What is sent from here on belongs to no record."""
    if sends is not None:
        sends.is_over = True


_EXACT_RECORDS: Final = 1_000

handled: Final[ContextVar[RecordSends | None]] = ContextVar("ottla_record_sends", default=None)
"""The sends of the handler in this context; None outside a handler."""

_senders: Final[WeakSet[Any]] = WeakSet()


def is_sender(producer: object) -> None:
    """Note that handlers may send with this producer."""
    _senders.add(producer)


def never_in_handlers(producer: object) -> None:
    """Note that no handler sends with this producer: it writes dead letters, for example."""
    _senders.discard(producer)


def has_senders() -> bool:
    """Return whether a handler may send anything: a process without producers need not pay for it."""
    return len(_senders) > 0


def disown(sends: Iterable[Sent]) -> None:
    """Mark what a failed handler had sent, so that a flush does not raise its failures as well: the record's failure
    covers them. They are logged."""
    for sent in sends:
        sent.add_done_callback(_disowned)


def _disowned(sent: Sent) -> None:
    error = sent.exception()
    if error is not None and not sent.is_handled:
        sent.mark_handled()
        log_event("send_of_failed_record_lost", "warning", {"topic": sent.topic, "error": str(error)})


class _OfAnotherLoop:
    """A delivery that belongs to an event loop, for a handler that does not run on it. Made on that loop."""

    def __init__(self, sent: Sent) -> None:
        self._sent = sent
        self._settled: Future[BaseException | None] = Future()
        sent.add_done_callback(lambda settled: self._settled.set_result(settled.exception()))

    @property
    def topic(self) -> str:
        return self._sent.topic

    @property
    def is_handled(self) -> bool:
        return self._sent.is_handled

    def done(self) -> bool:
        return self._settled.done()

    def exception(self) -> BaseException | None:
        return self._settled.result()

    def mark_handled(self) -> None:
        self._sent.mark_handled()

    def is_kept_in(self, tracker: Any) -> bool:
        return self._sent.is_kept_in(tracker)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._settled.add_done_callback(lambda _: callback(self))
