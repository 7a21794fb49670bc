"""aiokafka's exceptions as Ottla's errors, which are sorted by what the caller should do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiokafka import errors

from ottla.config import Principal, unknown_topics
from ottla.errors import (
    BrokerUnavailable,
    ConfigError,
    FencedError,
    NoCommittedOffset,
    RetriableError,
)


class FencedInstanceIdError(errors.BrokerResponseError):  # type: ignore[misc]
    """Another member has taken this one's `group.instance.id` (KIP-345). aiokafka has no class for it."""

    errno = 82
    message = "FENCED_INSTANCE_ID"


class InvalidRecordError(errors.BrokerResponseError):  # type: ignore[misc]
    """A broker does not take a record as it is (KIP-467). aiokafka has no class for it, and drops the code."""

    errno = 87
    message = "INVALID_RECORD"


errors.kafka_errors.setdefault(InvalidRecordError.errno, InvalidRecordError)
# Where it joins a group, aiokafka raises an error that has the name of this one and nothing else of it.
errors.kafka_errors.setdefault(FencedInstanceIdError.errno, FencedInstanceIdError)

_FENCED: Final = (
    errors.CommitFailedError,
    errors.IllegalGenerationError,
    errors.UnknownMemberIdError,
    errors.RebalanceInProgressError,
    errors.IllegalStateError,
)
NOT_ACCEPTED: Final = (
    errors.AuthenticationFailedError,
    errors.AuthenticationMethodNotSupported,
    errors.SaslAuthenticationFailed,
    errors.UnsupportedSaslMechanismError,
)
"""A login that failed."""
_CODES: Final = {29: "TOPIC", 30: "GROUP", 31: "CLUSTER", 53: "TRANSACTIONAL_ID"}
_MISCONFIGURED: Final = (
    errors.InvalidSessionTimeoutError,
    errors.InconsistentGroupProtocolError,
    errors.InvalidGroupIdError,
)


def code_of(error: BaseException) -> str:
    """Return Kafka's name of a refused authorization; empty for anything else: an OSError may have the same number."""
    what = _CODES.get(error.errno) if isinstance(error, errors.BrokerResponseError) else None
    return "" if what is None else f"{what}_AUTHORIZATION_FAILED"


def is_fenced(error: BaseException) -> bool:
    """Return whether a commit failed because this member is not, or no longer, part of the group's current
    generation."""
    return isinstance(error, _FENCED)


def commit_error_of(error: BaseException, servers: str, asking: Principal | None = None) -> BaseException:
    """Return the error to raise for a commit that was refused: the next one may succeed when the rebalance has
    ended."""
    if is_fenced(error):
        return RetriableError(f"{type(error).__name__}: {error}")
    return error_of(error, servers, asking=asking)


def error_of(
    error: BaseException, servers: str, *, topics: Sequence[str] = (), asking: Principal | None = None
) -> BaseException:
    """Return the error to raise for what the client reported. `RetriableError`s do not end the consumer."""
    if isinstance(error, errors.UnknownTopicOrPartitionError):
        return unknown_topics(topics or [str(error)], servers)
    if isinstance(error, errors.NoOffsetForPartitionError | errors.OffsetOutOfRangeError):
        return NoCommittedOffset(
            f"no committed offset, or one that is no longer in the log: {error}. "
            "Set auto.offset.reset to earliest or latest, or reset the group's offsets"
        )
    who = asking or Principal(topics=topics)
    code = code_of(error)
    if code:
        return who.refused(code, f"{type(error).__name__}: {error}", servers=servers)
    if isinstance(error, NOT_ACCEPTED):
        return who.not_accepted(f"{type(error).__name__}: {error}", servers=servers)
    if isinstance(error, _MISCONFIGURED):
        return ConfigError(f"the group coordinator at {servers} refused the consumer's settings: {error}")
    if FencedInstanceIdError.__name__ in repr(error):
        return FencedError(f"another member runs with the same group.instance.id: {error}")
    if isinstance(error, errors.KafkaConnectionError | errors.KafkaTimeoutError | errors.NodeNotReadyError):
        return BrokerUnavailable(f"no Kafka broker answers at {servers}: {error}")
    if isinstance(error, errors.KafkaError) and error.retriable:
        return RetriableError(f"{type(error).__name__}: {error}")
    return error
