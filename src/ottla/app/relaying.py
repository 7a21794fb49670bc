"""The relay of an outbox that runs beside an app, in a thread of its own: `App.relay(outbox)`."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, Protocol

from ottla.app.scheduling import in_thread
from ottla.consumer.readiness.health import Health
from ottla.errors import ConfigError
from ottla.failures.exceptions import described
from ottla.outbox.outbox import Outbox
from ottla.telemetry import log_event

_MODULE: Final = "ottla.sync.serve.outbox_relay"
_AGAIN_S: Final = 5.0


class _Owner(Protocol):
    bootstrap_servers: str | Sequence[str] | None
    drain_s: float


class AppRelay:
    """Opened when the app starts, closed when it has stopped. It waits for no handler, and no handler for it."""

    def __init__(self, owner: _Owner, outbox: Outbox, options: Mapping[str, Any]) -> None:
        if not isinstance(outbox, Outbox):
            raise ConfigError(f"App.relay: found {outbox!r}, wanted an Outbox(...)")
        self._owner = owner
        self._outbox = outbox
        self._options = options
        self._relay: Any = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def open(self) -> Awaitable[None] | None:
        """Begin. Raises `ConfigError` where the tables are missing. A database that is away is waited for."""
        return in_thread(self._open)

    def close(self) -> Awaitable[None] | None:
        """Settle what is on its way, and let another relay work."""
        return in_thread(self._close)

    def health(self) -> Health:
        """Healthy while it does not run: then the app itself does not, and says so."""
        relay = self._relay
        if relay is None:
            return Health(is_alive=True, is_ready=True)
        health: Health = relay.health()
        return health

    def _open(self) -> None:
        self._stopping.clear()
        try:
            self._outbox.session().close()
        except ConfigError:
            raise
        except Exception:
            pass  # the relay says so, and waits
        self._relay = self._made()
        self._thread = threading.Thread(target=self._run, name="ottla-outbox-relay", daemon=True)
        self._thread.start()

    def _close(self) -> None:
        self._stopping.set()
        if self._relay is not None:
            self._relay.stop()
        if self._thread is not None:
            self._thread.join(self._owner.drain_s + 10)
        self._relay = self._thread = None

    def _run(self) -> None:
        while True:
            try:
                self._relay.run()
                return
            except Exception as error:  # its service goes on; what waits is relayed when it works again
                log_event("outbox_relay_failed", "error", {"error": described(error)})
            if self._stopping.wait(_AGAIN_S):
                return
            self._relay = self._made()

    def _made(self) -> Any:
        make = importlib.import_module(_MODULE).OutboxRelay
        return make(self._outbox, self._owner.bootstrap_servers, **self._options)
