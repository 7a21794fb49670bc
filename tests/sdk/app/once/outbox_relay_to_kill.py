"""A relay that kills or stops itself: `python outbox_relay_to_kill.py BOOTSTRAP STORE [STEP SIDE NTH [SIGNAL]]`.

STEP is a method of the relay (`_read`, `_hand_over`, `_delete`, ...), SIDE ``before`` or ``after`` it,
NTH which call of it, SIGNAL ``SIGKILL`` or ``SIGSTOP``. Without a step it relays until it is killed.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from ottla import Outbox
from ottla.stores import Postgres, Sqlite
from ottla.sync.serve.outbox_relay import OutboxRelay


def main(
    servers: str, place: str, step: str = "", side: str = "", nth: str = "0", signal_name: str = "SIGKILL"
) -> None:
    def die() -> None:
        signal.raise_signal(signal.Signals[signal_name])

    store: Any = Sqlite(place) if place.endswith(".db") else Postgres(place)
    relay = OutboxRelay(Outbox(store), servers, interval_s=0.02, lease_s=0.3, batch_rows=20)
    if step:
        inner = getattr(relay, step)
        calls = 0

        def wrapped(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == int(nth) and side == "before":
                die()
            found = inner(*arguments)
            if calls == int(nth) and side == "after":
                die()
            return found

        setattr(relay, step, wrapped)
    relay.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
