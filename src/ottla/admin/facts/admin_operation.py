"""What administration asks brokers, as steps that any caller can carry out: no socket, thread, loop or clock in here.

An operation is a procedure (`ottla.stepping`). It yields a list of questions that may be asked side by side, and gets
as many answers: a response, or the error with which a question failed. Where only time helps it yields `RetryLater`,
and the caller waits, or raises its error when the time for the whole operation is up. The callers are in
`ottla.admin.operation_runner`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from ottla.errors import OttlaError, RetriableError
from ottla.stepping import Procedure
from ottla.wire_client.errors import BrokerRefused, PartitionUnavailable
from ottla_wire.facts import fact
from ottla_wire.protocol import ApiKey, ErrorCode

T = TypeVar("T")


@fact
class AdminRequest:
    """One request. `broker` is the id of its receiver (None: any broker).

    `newest` is the newest version of the API that the asking code is written for, where that is not the wire client's.
    """

    api: ApiKey
    body: dict[str, Any]
    broker: int | None = None
    newest: int | None = None


@fact
class RetryLater:
    """Wait before the next step. `reason` is raised if no time is left."""

    reason: OttlaError


Answer: TypeAlias = Any
"""The decoded response, or the OttlaError with which the question failed."""

Step: TypeAlias = Sequence[AdminRequest] | RetryLater
AdminOperation: TypeAlias = Procedure[Step, Sequence[Answer], T]

TRANSIENT: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Errors that a later try may not meet."""


_LOOKS: Final = 20
"""How often a broker is asked whether it has a change, with the backoff between."""


def reading(ask: AdminRequest) -> AdminOperation[Any]:
    """Ask for something that changes nothing, until a broker answers."""
    while True:
        (answer,) = yield [ask]
        if not isinstance(answer, OttlaError):
            return answer
        if not isinstance(answer, RetriableError):
            raise answer
        yield RetryLater(reason=answer)


def changing(ask: AdminRequest) -> AdminOperation[Any]:
    """Request a change, once: after a lost response it is unknown whether the change was made, so the error is
    raised."""
    (answer,) = yield [ask]
    if isinstance(answer, OttlaError):
        if isinstance(answer, RetriableError):
            raise type(answer)(f"{answer}; whether {ask.api.name} was done is not known") from answer
        raise answer
    return answer


def until(attempt: Callable[[], AdminOperation[T | RetriableError]]) -> AdminOperation[T]:
    """Repeat an attempt while it returns an error that a later try may not meet."""
    while True:
        found = yield from attempt()
        if not isinstance(found, RetriableError):
            return found
        yield RetryLater(reason=found)


def until_seen(is_seen: Callable[[], AdminOperation[bool]], *, what: str) -> AdminOperation[None]:
    """Wait until a broker describes a change, which reaches it shortly after the controller's response. The change is
    made already, so errors are ignored; a broker may print a value differently, so attempts are bounded."""
    for _ in range(_LOOKS):
        try:
            if (yield from is_seen()):
                return
            yield RetryLater(reason=PartitionUnavailable(f"{what}: changed, but not yet visible at a broker"))
        except OttlaError:
            return


def problem_of(what: str, code: int, message: str | None = None) -> OttlaError | None:
    """Return the error that an answer's code means, None for no error: retriable where a later try may not meet it."""
    found = ErrorCode.of(code)
    if found is ErrorCode.NONE:
        return None
    said = f": {message}" if message and message != found.name else ""
    if found in TRANSIENT:
        return PartitionUnavailable(f"{what}: {found.name}{said}")
    return BrokerRefused(f"{what}: {found.name}{said}")


def raise_problem(what: str, code: int, message: str | None = None) -> None:
    """Raise the error that an answer's code means, if it means one."""
    problem = problem_of(what, code, message)
    if problem is not None:
        raise problem
