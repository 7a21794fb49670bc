"""Converts aiokafka's delivery errors to Ottla's errors, sorted by what the caller should do."""

from __future__ import annotations

import asyncio
from typing import Final

from aiokafka import errors

from ottla.aio.client.client_errors import NOT_ACCEPTED, InvalidRecordError, code_of
from ottla.errors import FencedError, InputError, LifecycleError, OttlaError, RetriableError
from ottla.producer.explain import Explain

_FENCED: Final = (errors.ProducerFenced, errors.InvalidProducerEpoch)
_UNREACHABLE: Final = (
    errors.KafkaConnectionError,
    errors.KafkaTimeoutError,
    errors.NodeNotReadyError,
    errors.NoBrokersAvailable,
    errors.RequestTimedOutError,
    ConnectionError,
    asyncio.TimeoutError,
)
TOO_LARGE: Final = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)
_TOO_FEW_REPLICAS: Final = (errors.NotEnoughReplicasError, errors.NotEnoughReplicasAfterAppendError)
_REFUSED_RECORDS: Final = (
    errors.InvalidTopicError,
    errors.CorruptRecordException,
    errors.InvalidTimestampError,
    TypeError,
    ValueError,
)
_CLOSED: Final = (errors.ProducerClosed, asyncio.CancelledError)


class ErrorTranslator(Explain):
    """Turns aiokafka's exceptions into errors."""

    def of_batch(self, error: BaseException, topic: str, partition: int, *, size_bytes: int) -> OttlaError:
        """Return the error for the records of a batch. `size_bytes`: encoded, of a batch of one record; 0 for more."""
        if isinstance(error, TOO_LARGE):
            return self.too_large(topic, size_bytes)
        if isinstance(error, errors.UnknownTopicOrPartitionError):
            return self.unknown_topic(topic)
        if isinstance(error, InvalidRecordError):
            return self.refused_record(topic)
        if isinstance(error, AssertionError):  # how aiokafka says that a partition does not exist
            return self.unknown_partition(topic, partition)
        if isinstance(error, _TOO_FEW_REPLICAS):
            return RetriableError(f"{topic}: fewer replicas are in sync than min.insync.replicas requires ({error})")
        if isinstance(error, _CLOSED):
            return self.given_up(topic)
        return self.of_call(error, what=topic, topic=topic)

    def of_call(self, error: BaseException, *, what: str, topic: str = "") -> OttlaError:
        """Return the error for anything else that the client refused or could not do."""
        if isinstance(error, OttlaError):
            return error
        if isinstance(error, _FENCED):
            return FencedError(f"{what}: a newer producer with the same transactional.id took over ({error})")
        if isinstance(error, _UNREACHABLE):
            return self.unavailable(f"{what}: {error!r}")
        if isinstance(error, NOT_ACCEPTED):
            return self.not_accepted(f"{what}: {error}")
        code = code_of(error)
        if code:
            return self.refused(what, error, code=code, topic=topic)
        if isinstance(error, errors.OutOfOrderSequenceNumber | errors.UnknownProducerId):
            return RetriableError(f"{what}: lost with an earlier batch of its partition ({error})")
        if isinstance(error, errors.IllegalOperation | errors.InvalidTxnState):
            return LifecycleError(f"{what}: {error}")
        if isinstance(error, _REFUSED_RECORDS):
            return InputError(f"{what}: {error}")
        return RetriableError(f"{what}: {type(error).__name__}: {error}")
