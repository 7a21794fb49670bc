"""Settings of a handler that handles each record once, and the store's sessions that its workers share."""

from __future__ import annotations

import contextlib
import itertools
import threading
import uuid
from collections.abc import Callable
from typing import Any

from ottla.errors import ConfigError, StoreUnavailable
from ottla.failures.exceptions import described
from ottla.once.inbox import Inbox
from ottla.records import TopicPartition
from ottla.showing import shown
from ottla.stepping import Steps, run, run_async
from ottla.stores.protocols import ClaimStore, TransactionStore
from ottla.telemetry import Hooks, Listeners, log_event


class OnceSettings:
    """One handler's. `wants_transaction` says that it has a parameter of that name."""

    def __init__(
        self, *, name: str, group: str, inbox: Inbox | None, offsets: Any, wants_transaction: bool, hooks: Hooks | None
    ) -> None:
        if inbox is not None and not isinstance(inbox, Inbox):
            raise ConfigError(f"{name}: inbox: found {shown(inbox)}, wanted Inbox(store)")
        if offsets is not None and not isinstance(offsets, TransactionStore):
            raise ConfigError(f"{name}: offsets: found {shown(offsets)}, wanted a database store such as Postgres(...)")
        if inbox is not None and offsets is not None and inbox.store is not offsets:
            raise ConfigError(
                f"{name}: inbox= and offsets= are one transaction, which needs one store: found {inbox.store!r} and "
                f"{offsets!r}"
            )
        self.name = name
        self.group = group
        self.inbox = inbox
        self.offsets = offsets
        self.hooks = Listeners.of(hooks)
        store: Any = offsets
        if store is None and inbox is not None:
            store = inbox.store
        self.store = store
        self.is_transactional = offsets is not None or (wants_transaction and isinstance(store, TransactionStore))
        if not self.is_transactional and not isinstance(store, ClaimStore):
            raise ConfigError(
                f"{name}: {store!r} has no claims, only transactions: give the handler a parameter named transaction"
            )
        if wants_transaction and not self.is_transactional:
            raise ConfigError(f"{name}: it asks for a transaction, and {store!r} has none: use a database store")
        self.consumer = f"{group}/{name}" if inbox is None or inbox.consumer is None else inbox.consumer
        self.window_ms = 0 if inbox is None else inbox.window_ms
        self.lease_ms = 0 if inbox is None else inbox.lease_ms
        self.epochs: dict[TopicPartition, int] = {}
        """The fencing tokens of the partitions that are claimed now."""
        self.saved: dict[TopicPartition, int] = {}
        """Offsets that the last transactions saved, so that they are not saved again."""
        self.on_fenced: Callable[[TopicPartition], None] = _nobody
        self.closers: list[Callable[[], Any]] = []
        """Called at the end; on an event loop each is awaited."""
        self._member = uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self._free: list[Any] = []
        self._lock = threading.Lock()

    @property
    def epoch_of(self) -> Callable[[TopicPartition], int | None] | None:
        return None if self.offsets is None else self.epochs.get

    def is_outage(self, error: BaseException) -> bool:
        return bool(self.store.is_outage(error))

    def new_owner(self) -> str:
        """Return a new name for the claims of one run: two runs of one process must not mistake each other's claims for
        their own."""
        return f"{self._member}|{next(self._numbers)}"

    def new_session(self) -> Any:
        return self.store.session() if self.is_transactional else self.store.claims()

    async def new_async_session(self) -> Any:
        return await (self.store.async_session() if self.is_transactional else self.store.async_claims())

    # Sessions: on an event loop their calls are awaited

    def taking(self, new_session: Callable[[], Any]) -> Steps[Any]:
        """Return a session that is free, or a new one."""
        try:
            return self._free.pop()
        except IndexError:
            return (yield new_session)

    def give(self, session: Any) -> None:
        self._free.append(session)

    def discarding(self, *failed: Any) -> Steps[None]:
        """Close the sessions that failed, and those that wait."""
        with self._lock:
            sessions, self._free = [*failed, *self._free], []
        for session in sessions:
            with contextlib.suppress(Exception):
                yield session.close

    # Start and stop

    def open(self, *, is_async: bool) -> Any:
        """Check the store before the first record. Raises `ConfigError` for one that cannot be used; one that is away
        is waited for by the runs."""
        return run_async(self._opening(self.new_async_session)) if is_async else run(self._opening(self.new_session))

    def close(self, *, is_async: bool) -> Any:
        """Close what is open. A later start opens it again."""
        return run_async(self._closing()) if is_async else run(self._closing())

    def _opening(self, new_session: Callable[[], Any]) -> Steps[None]:
        try:
            self.give((yield from self.taking(new_session)))
        except ConfigError:
            raise
        except Exception as error:
            self._away(error)

    def _closing(self) -> Steps[None]:
        yield from self.closers
        yield from self.discarding()
        self.closers.clear()

    def _away(self, error: Exception) -> None:
        if not isinstance(error, StoreUnavailable) and not self.is_outage(error):
            raise error
        log_event(
            "store_unavailable",
            "warning",
            {"group": self.group, "handler": self.name, "store": repr(self.store), "error": described(error)},
        )


def _nobody(name: TopicPartition) -> None:
    """Do nothing: no member runs the handler."""
