"""The relay of an outbox that runs beside an app: `App.relay(outbox)`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

from ottla.app.background.background_task import AppSettings, BackgroundTask
from ottla.errors import ConfigError
from ottla.outbox.outbox import Outbox
from ottla.showing import shown
from ottla.telemetry import log_event

_MODULE: Final = "ottla.sync.serve.outbox_relay"
_BEYOND_DRAIN_S: Final = 10.0


class AppRelay(BackgroundTask):
    """`open` raises `ConfigError` where the tables are missing. A database that is away is waited for."""

    def __init__(self, owner: AppSettings, outbox: Outbox, options: Mapping[str, Any]) -> None:
        if not isinstance(outbox, Outbox):
            raise ConfigError(f"App.relay: found {shown(outbox)}, wanted an Outbox(...)")
        super().__init__("outbox relay", close_s=owner.drain_s + _BEYOND_DRAIN_S)
        self._owner = owner
        self.outbox = outbox
        self._options = options

    def _made(self) -> Any:
        make = importlib.import_module(_MODULE).OutboxRelay
        return make(self.outbox, self._owner.bootstrap_servers, **self._options)

    def _begin(self, work: Any) -> None:
        try:
            self.outbox.session().close()
        except ConfigError:
            raise
        except Exception:
            pass  # the relay says so, and waits

    def _log_failure(self, error: str) -> None:
        log_event("outbox_relay_failed", "error", {"error": error})
