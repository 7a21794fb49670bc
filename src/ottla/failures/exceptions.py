"""The table from exceptions to outcomes. An exception that is not declared is retried, never skipped."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from weakref import WeakKeyDictionary

from ottla.errors import ConfigError, RegistryUnavailable, ResourceUnavailable, SerializationError, StoreUnavailable
from ottla.failures.outcomes import Dead, InvalidRecord, Outcome, Retry
from ottla.records import Malformed
from ottla.showing import shown

STACK_TRACE_LIMIT_BYTES: Final = 8_192
"""A stack trace travels in a record header, and a topic takes a megabyte per record by default."""

MESSAGE_LIMIT_BYTES: Final = 2_048

_OUTAGES: Final = (RegistryUnavailable, ResourceUnavailable, StoreUnavailable)

_INVALID: Final = Dead(reason="the record is invalid", kind="invalid")

FATAL_NAMES: Final[Mapping[str, Outcome]] = {
    # By name, so that Ottla imports none of them: pydantic and msgspec raise these when a value breaks its type.
    "pydantic_core._pydantic_core.ValidationError": _INVALID,
    "msgspec.ValidationError": _INVALID,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why one delivery of a record did not end in `Ack` or `Skip`, as text: it keeps no frames and no record alive.

    `is_outage` marks a failure that is not the record's fault (a schema registry does not answer): it is retried
    without counting attempts, and never makes a dead letter. `is_expiry` marks a record that was not
    delivered because it had expired: it costs no attempt and nothing of the dead letter budget.
    """

    outcome: Outcome
    kind: str = "failed"
    error_type: str = ""
    message: str = ""
    stack_trace: str = ""
    is_outage: bool = False
    is_expiry: bool = False
    part: str = ""
    """The part that could not be decoded: ``key`` or ``value``."""
    serde: str = ""
    """And by which serde."""
    error: BaseException | None = field(default=None, repr=False, compare=False)
    """The exception itself, where a retry policy of strategies asks about it; not kept beyond that decision."""
    is_declared: bool = False
    """The user's exception table names the exception."""

    @property
    def summary(self) -> str:
        """The error's type and message in one line."""
        return f"{self.error_type}: {self.message}" if self.error_type else self.message

    def without_error(self) -> Failure:
        """Return the same failure as text alone."""
        return self if self.error is None else replace(self, error=None)

    @classmethod
    def of_expiry(cls, outcome: Dead) -> Failure:
        """Return the failure of a record that expired before it was delivered."""
        return cls(outcome=outcome, kind="expired", message=outcome.reason, is_expiry=True)

    @classmethod
    def of_malformed(cls, malformed: Malformed) -> Failure:
        """Return the failure of a record of which a part could not be deserialized."""
        return cls(
            outcome=Dead(reason=malformed.error, kind=malformed.kind),
            kind=malformed.kind,
            error_type=malformed.error_type,
            message=f"{malformed.part}: {malformed.error}",
            part=malformed.part,
            serde=malformed.serde,
        )

    @classmethod
    def of_outcome(cls, outcome: Retry | Dead) -> Failure:
        """Return the failure of a record for which the handler returned `Retry` or `Dead`."""
        kind = outcome.kind if isinstance(outcome, Dead) else "failed"
        return cls(outcome=outcome, kind=kind, error_type=type(outcome).__name__, message=outcome.reason)


def exception_entries(on_error: object) -> Mapping[type[BaseException], Outcome]:
    """Return the entries of `on_error=`. Raises `ConfigError` if it is not a mapping; the table checks the entries."""
    if on_error is not None and not isinstance(on_error, Mapping):
        raise ConfigError(f"on_error: found {shown(on_error)}, wanted outcomes by exception: {{ValueError: Dead()}}")
    return on_error or {}


class ExceptionTable:
    """Finds the outcome of an exception: the entry of its nearest base class, else `Retry`.

    `entries` are the user's; they win over the built-in ones: `InvalidRecord`, `SerializationError`, and the validation
    errors of pydantic and msgspec are dead at the first failure; `RegistryUnavailable` and `StoreUnavailable` are
    outages, and so is what `is_outage` says of other errors. With `keeps_errors` a failure has its exception, for a
    retry policy that asks about it.
    """

    __slots__ = ("_declared", "_entries", "_found", "_is_outage", "_keeps_errors")

    def __init__(
        self,
        entries: Mapping[type[BaseException], Outcome] | None = None,
        *,
        is_outage: Callable[[BaseException], bool] | None = None,
        keeps_errors: bool = False,
    ) -> None:
        for exception_type, outcome in (entries or {}).items():
            if not (isinstance(exception_type, type) and issubclass(exception_type, BaseException)):
                raise ConfigError(
                    f"the exception table maps exception classes to outcomes, got the key {exception_type!r}"
                )
            if not isinstance(outcome, Outcome):
                raise ConfigError(
                    f"the exception table maps {exception_type.__name__} to {outcome!r}; "
                    "it must be Ack(), Retry(), Dead(reason) or Skip(reason)"
                )
        self._entries: dict[type[BaseException], Outcome] = {
            InvalidRecord: _INVALID,
            SerializationError: _INVALID,
            **(entries or {}),
        }
        self._declared = tuple(entries or ())
        self._is_outage = is_outage
        self._keeps_errors = keeps_errors
        # Weak: some libraries make classes of exceptions for each client, or each error (botocore).
        self._found: WeakKeyDictionary[type[BaseException], Outcome] = WeakKeyDictionary()

    def declares(self, error: BaseException) -> bool:
        """Return whether the user's entries name this exception, or a base class of it."""
        return isinstance(error, self._declared)

    def outcome_of(self, error: BaseException) -> Outcome:
        """Return the declared outcome of `error`; `Retry()` if none is declared."""
        error_type = type(error)
        found = self._found.get(error_type)
        if found is None:
            found = self._found[error_type] = self._look_up(error_type)
        return found

    def failure_of(self, error: BaseException) -> Failure:
        """Return `error` as a failure: its outcome, its text and its capped stack trace."""
        outcome = self.outcome_of(error)
        return Failure(
            outcome=outcome,
            kind=outcome.kind if isinstance(outcome, Dead) else "failed",
            error_type=_qualified_name(type(error)),
            message=cap_text(_text_of(error), MESSAGE_LIMIT_BYTES),
            stack_trace=stack_trace_of(error),
            is_outage=self._says_outage(error),
            error=error if self._keeps_errors else None,
            is_declared=self.declares(error),
        )

    def _says_outage(self, error: BaseException) -> bool:
        if isinstance(error, _OUTAGES):
            return not any(kind in self._entries for kind in _OUTAGES if isinstance(error, kind))
        return self._is_outage is not None and not isinstance(error, self._declared) and self._is_outage(error)

    def _look_up(self, error_type: type[BaseException]) -> Outcome:
        for base in error_type.__mro__:
            if base in self._entries:
                return self._entries[base]
            by_name = FATAL_NAMES.get(f"{base.__module__}.{base.__qualname__}")
            if by_name is not None:
                return by_name
        return Retry(reason="an exception that is not in the exception table")


def _text_of(error: BaseException) -> str:
    # An exception whose text cannot be read must still be reported.
    try:
        return str(error)
    except Exception as problem:
        return f"<no text: {type(problem).__name__} in __str__>"


def stack_trace_of(error: BaseException, limit_bytes: int = STACK_TRACE_LIMIT_BYTES) -> str:
    """Return the traceback as text, at most `limit_bytes` of UTF-8. The end is kept: it names the error."""
    text = "".join(traceback.format_exception(error))
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= limit_bytes:
        return encoded.decode()
    mark = "[… cut]\n"
    tail = encoded[-(limit_bytes - len(mark.encode())) :].decode("utf-8", "ignore")
    return mark + tail


def cap_text(text: str, limit_bytes: int) -> str:
    """Return `text` with at most `limit_bytes` of UTF-8, its beginning kept, never cut inside a character."""
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= limit_bytes:
        return encoded.decode()
    return encoded[: limit_bytes - 3].decode("utf-8", "ignore") + "…"


def described(error: BaseException) -> str:
    """Return the error in one line: its type and its text."""
    return f"{type(error).__name__}: {_text_of(error)}"


def _qualified_name(error_type: type[BaseException]) -> str:
    module = error_type.__module__
    return error_type.__qualname__ if module == "builtins" else f"{module}.{error_type.__qualname__}"
