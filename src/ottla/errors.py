"""Errors, sorted by what the caller should do. The first line of each docstring says it.

OttlaError
├── InputError           fix what was passed or configured; a retry gives the same answer
│   ├── ConfigError (├── AuthenticationError └── NoCommittedOffset)
│   └── RecordTooLarge · SerializationError · UnknownTopic
├── RetriableError       try again later; nothing is wrong with the input
│   ├── BrokerUnavailable   ├── BufferFull   ├── RegistryUnavailable   └── StoreUnavailable
├── DeliveryError        some records did not arrive: the error lists them
├── DeliveryPending      what was waited for is over, the record is still on its way: do not send it again
├── FencedError          a newer instance took over: close this one, never retry
└── LifecycleError       the object is closed, or was carried over a fork: make a new one
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

from ottla_wire.facts import fact


class OttlaError(Exception):
    """The base of every error Ottla raises on purpose.

    Where Python shows an uncaught error, its last line says where the page about its class is. It is a note (PEP 678),
    so `str(error)` is the message alone.
    """

    _explained_as = "OttlaError"

    def __init_subclass__(cls, *, has_page: bool = True, **more: Any) -> None:
        """Register the error. `has_page=False` keeps the page of the base class, as do classes that programs add."""
        super().__init_subclass__(**more)
        if has_page and cls.__module__.partition(".")[0] == "ottla":
            cls._explained_as = cls.__name__

    @property
    def __notes__(self) -> list[str]:  # as `add_note` and tracebacks use it
        """Build the note on first access: most errors are handled, and finding the documentation takes long."""
        notes: list[str] | None = self.__dict__.get("_notes")
        if notes is None:
            notes = self._notes = [where_explained(self._explained_as)]
        return notes

    @__notes__.setter
    def __notes__(self, notes: list[str]) -> None:
        self._notes = notes


class InputError(OttlaError):
    """Fix the arguments or the configuration; a retry fails the same way."""

    is_too_large = False
    """Whether a limit on sizes is the reason, whichever it is."""


class ConfigError(InputError, ValueError):
    """Fix the setting that the message names."""


class AuthenticationError(ConfigError):
    """Fix the password, user, mechanism or certificate: cluster and client do not accept each other. Never retry."""


class BrokerTooOld(ConfigError):
    """Upgrade the broker, or do without what the message names: this version of Kafka does not have it."""


class NoCommittedOffset(ConfigError):
    """Decide where to start: the group has no valid offset, and auto.offset.reset=error forbids a guess."""


class SerializationError(InputError, ValueError):
    """Fix the value: it does not fit the declared schema or type."""


class UnknownTopic(InputError, LookupError):
    """Create the topic, or fix its name: the cluster does not have it, and the message says how to create it."""


class RecordTooLarge(InputError, ValueError):
    """Send less: the encoded record is over a limit, and the message names the setting that set it."""

    is_too_large = True

    def __init__(self, *, topic: str, size_bytes: int, limit_bytes: int, setting: str) -> None:
        self.topic = topic
        self.size_bytes = size_bytes
        """Its encoded size in bytes."""
        self.limit_bytes = limit_bytes
        """The exceeded limit in bytes."""
        self.setting = setting
        """The name of the setting that sets the limit."""
        super().__init__(
            f"{topic}: record is {size_bytes:,} bytes encoded, the limit is {limit_bytes:,} bytes, set by {setting}"
        )


class RetriableError(OttlaError):
    """Try again later; nothing is wrong with the input."""


class BrokerUnavailable(RetriableError, ConnectionError):
    """Check the address in the message, then try again: no broker answered there."""


class BufferFull(RetriableError, TimeoutError):
    """Slow down, or wait longer: the send buffer stayed full for the whole time given (back-pressure)."""


class RegistryUnavailable(RetriableError, ConnectionError):
    """Wait and retry: the schema registry did not answer. The bytes may be fine, so they are not dead letters."""


class ResourceUnavailable(RetriableError):
    """Wait and retry: a resource of a handler (`Provide`) did not open. The record is not at fault, and waits."""


class StoreUnavailable(RetriableError, ConnectionError):
    """Wait and retry: the store of an inbox or of offsets did not answer. Nothing of the run was handled twice."""


@fact
class UndeliveredRecord:
    """One record that was not acknowledged, and why. `key` is the encoded key."""

    topic: str
    partition: int | None
    key: bytes | None
    error: str


class DeliveryError(OttlaError):
    """Decide about the listed records: they were not acknowledged (they may or may not be in the topic)."""

    def __init__(self, undelivered: Sequence[UndeliveredRecord], *, total: int | None = None) -> None:
        self.undelivered = tuple(undelivered)
        """Failures: an entry per record, of at most 1,000 records. `total` counts all of them."""
        self.total = len(self.undelivered) if total is None else total
        """Number of records that were not delivered."""
        by_error: dict[str, list[UndeliveredRecord]] = {}
        for each in self.undelivered:
            by_error.setdefault(each.error, []).append(each)
        shown = list(by_error.items())[:3]
        details = [f"{_named(records)}: {error}" for error, records in shown]
        left = self.total - sum(len(records) for _, records in shown)
        if details and left > 0:
            details.append(f"and {left} more")
        said = f"{self.total} record(s) not delivered"
        super().__init__(f"{said}: {'; '.join(details)}" if details else said)


def _named(records: Sequence[UndeliveredRecord]) -> str:
    """Return the positions and keys of three records, and how many more there are."""
    shown = ", ".join(f"{u.topic}[{'?' if u.partition is None else u.partition}] key={u.key!r}" for u in records[:3])
    return f"{shown} and {len(records) - 3} more" if len(records) > 3 else shown


class DeliveryPending(OttlaError, TimeoutError):
    """Ask again later, and do not send the record again: it is not settled yet, and the wait timed out."""


class FencedError(OttlaError):
    """A newer instance took over. Close this one; never retry."""


class LifecycleError(OttlaError, RuntimeError):
    """Make a new object: this one is closed, not started, or was carried over a fork."""


def where_explained(name: str) -> str:
    """Return a line with the page of an error class: its address, or a command without one."""
    address = _documentation()
    return f"What to do: {f'{address}errors/{page_of(name)}/' if address else f'ottla explain {name}'}"


def page_of(name: str) -> str:
    """Return the page of an error class: `unknown-topic` of `UnknownTopic`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


@functools.cache
def _documentation() -> str | None:
    """Return the documentation's address: the project URL of this name, with a slash at its end."""
    from importlib import metadata

    try:
        urls = metadata.metadata("ottla").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # the code is used without having been installed
        return None
    named = dict(url.partition(", ")[::2] for url in urls)
    found = named.get("Documentation")
    return found.rstrip("/") + "/" if found else None
