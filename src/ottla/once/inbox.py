"""Declaration of an inbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.config.arguments import names_arguments
from ottla.errors import ConfigError
from ottla.failures.outcomes import Dead
from ottla.once.message_id import IdFunction
from ottla.quantities import Span, milliseconds_of, seconds
from ottla.showing import shown
from ottla.stores.protocols import ClaimStore, Store, TransactionStore

DAY_S: Final = 86_400.0

_LEAST_LEASE_S: Final = 0.1


@names_arguments
@dataclass(frozen=True, slots=True)
class Inbox:
    """Remember the messages that were handled, so that copies of a message are not handled again.

    `store` is one of `ottla.stores`, or one of your own. If the store is a database and the handler asks for
    `transaction`, messages are marked in the transaction in which the handler works. Otherwise a message is claimed,
    handled and then marked; a claim lasts `lease_s` seconds and is renewed while the handler works, so it is only ever
    waited for after a crash.

    A message is remembered for `window_s` seconds (a day if not given). That must be longer than the longest time
    between two copies. 100 messages a second for a week are 60 million rows, or 9 GB.

    `id` returns a record's message id, or None to have it looked for in the headers. `on_duplicate=Dead("seen")` sends
    duplicates to the dead letter topic instead of passing over them. `consumer` is the name under which messages are
    remembered: group and handler if not given. Raises `ConfigError` for what cannot work.
    """

    store: Store
    window_s: Span = DAY_S
    lease_s: Span = 60.0
    id: IdFunction | None = None
    on_duplicate: Dead | None = None
    consumer: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.store, ClaimStore | TransactionStore):
            raise ConfigError(
                f"Inbox: store: found {shown(self.store)}, wanted a store such as Postgres(...) or Redis(...)"
            )
        seconds("Inbox", "window_s", self.window_s, above=0)
        seconds("Inbox", "lease_s", self.lease_s, least=_LEAST_LEASE_S)
        if self.id is not None and not callable(self.id):
            raise ConfigError(f"Inbox: id: found {self.id!r}, wanted a function of the record")
        if self.on_duplicate is not None and not isinstance(self.on_duplicate, Dead):
            raise ConfigError(f"Inbox: on_duplicate: found {self.on_duplicate!r}, wanted Dead(...) or None")

    @property
    def window_ms(self) -> int:
        """Return `window_s` in milliseconds."""
        return max(1, milliseconds_of(self.window_s))

    @property
    def lease_ms(self) -> int:
        """Return `lease_s` in milliseconds."""
        return milliseconds_of(self.lease_s)
