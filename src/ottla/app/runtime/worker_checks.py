"""What an app may not have where several processes run it as one service (`ottla run --workers`)."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.app.app import App, declarations_of
from ottla.errors import ConfigError


def check_fits_workers(app: App) -> None:
    """Raise `ConfigError` for what is right in one process only: a store that no other process sees.

    Everything else is right in several: of the relays of an outbox one works, the schedulers of a schedule share its
    slots, and stores of databases and Redis are shared anyway. A store of one's own says so by `stays_in_process`.
    """
    for what, store in _stores(app):
        if getattr(store, "stays_in_process", False):
            raise ConfigError(
                f"--workers: {what}: found {type(store).__name__} in the memory of one process, wanted a store that "
                "all workers share, as Postgres(...), Redis(...) or Sqlite(path)"
            )


def _stores(app: App) -> Iterator[tuple[str, object]]:
    declared = declarations_of(app)
    for route in declared.routes:
        if route.once is not None:
            yield f"inbox= or offsets= of {route.name}", route.once.store
    for relay in declared.relays:
        yield "the outbox of a relay", relay.outbox.store
