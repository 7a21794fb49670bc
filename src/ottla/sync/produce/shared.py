"""The process's own producer: made by the first caller, shared by all threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ottla.producer.sharing import Shared, closing, identity_of
from ottla.stepping import run
from ottla.sync.produce.producer import Producer

_shared: Shared[Producer[Any, Any]] = Shared()


def shared_producer(
    bootstrap_servers: str | Sequence[str] | None = None,
    *,
    profile: str | None = None,
    settings: Mapping[str, Any] | None = None,
    partitioner: Any = None,
    key: Any = None,
    value: Any = None,
) -> Producer[Any, Any]:
    """Return the process's producer with these settings: every call gives the same one, from any thread.

    All sends meet in it: one connection per broker, one buffer, metadata fetched once, and the fullest batches. Serdes
    count as the same when they are equal, so keep them in a variable. It is flushed when the process ends, or by
    `close_shared_producers`; do not close it where others may be sending. In the child of a fork it is another one.
    """
    make = partial(
        Producer, bootstrap_servers, profile=profile, settings=settings, partitioner=partitioner, key=key, value=value
    )
    return _shared.get(identity_of(make), make)


def close_shared_producers(timeout_s: float | None = None) -> None:
    """Flush and close them all. Raises the first `DeliveryError`, after all are closed."""
    run(closing(_shared.take_all(), timeout_s))
