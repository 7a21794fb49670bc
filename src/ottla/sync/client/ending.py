"""The end of a librdkafka producer: its threads and connections.

Left to the garbage collector they stay for as long as it pleases: the broker keeps the connections, and a process that
forks meanwhile carries what these threads are at into its child (see `ottla.processes.lookups`).
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaException

LONGEST_S: Final = 1.0
"""How long to wait. A thread that looks up an address cannot be stopped; it ends in its own time."""

_FIRST_SAFE: Final = (2, 16)
"""Before it, confluent-kafka freed the client under the calls of other threads."""


def end(client: Any) -> None:
    """End a producer that has nothing on its way, no open transaction and no fatal error: it would wait."""
    if len(client) or _version() < _FIRST_SAFE:
        return
    ending = threading.Thread(target=_close, args=(client,), name="ottla-producer-end", daemon=True)
    with contextlib.suppress(RuntimeError):  # no threads are started any more when Python itself ends
        ending.start()
        ending.join(LONGEST_S)


def _close(client: Any) -> None:
    # A fatal error in this moment. Nothing of it matters to who sent; a warning that is an error makes a SystemError.
    with contextlib.suppress(KafkaException, RuntimeWarning, SystemError):
        client.close()


def _version() -> tuple[int, ...]:
    version = confluent_kafka.version()
    text = version if isinstance(version, str) else version[0]
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
