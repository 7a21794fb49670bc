"""What an app may not have where several processes run it as one service (`ottla run --workers`)."""

from __future__ import annotations

from ottla.app.app import App, declarations_of
from ottla.errors import ConfigError
from ottla.stores.memory import Memory


def check_fits_workers(app: App) -> None:
    """Raise `ConfigError` for what is right in one process only.

    Everything else is right in several: of the relays of an outbox one works, the schedulers of a schedule share its
    slots, and stores of databases and Redis are shared anyway.
    """
    for route in declarations_of(app).routes:
        if route.once is not None and isinstance(route.once.store, Memory):
            raise ConfigError(
                f"--workers: {route.name}: found inbox=Inbox(Memory()), whose marks stay in one process, wanted a "
                "store that all workers share, as Postgres(...), Redis(...) or Sqlite(...): the copy of a message may "
                "come to another worker"
            )
