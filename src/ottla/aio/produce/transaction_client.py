"""Access to aiokafka's transactions beyond its public methods."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiokafka import errors
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.protocol.transaction import EndTxnRequest

from ottla.aio import aiokafka_internals as internals
from ottla.retrying import NotYet, try_again_async

_FIRST_S: Final = 0.05
_LONGEST_S: Final = 0.5
_ABORT: Final = 0
_AGAIN: Final = (
    errors.CoordinatorLoadInProgressError,
    errors.CoordinatorNotAvailableError,
    errors.ConcurrentTransactions,
    errors.NotCoordinatorError,
)
_NOTHING_OPEN: Final = (errors.InvalidTxnState,)


def sender_of(client: Any) -> asyncio.Task[None]:
    """Return the task of a started client that sends its batches."""
    task: asyncio.Task[None] = internals.sender_of(client).sender_task
    return task


def why_ended(client: Any) -> BaseException | None:
    """Return the error that ended aiokafka's sender, after which every call fails with errors that do not name the
    reason."""
    task: asyncio.Task[None] | None = internals.sender_of(client).sender_task
    if task is None or not task.done() or task.cancelled():
        return None
    waiter: asyncio.Future[None] | None = internals.transactions_of(client).wait_for_transaction_end()
    if waiter is not None and waiter.done() and not waiter.cancelled():
        waiter.exception()  # asked for, or asyncio writes a traceback when it is collected
    return task.exception()


async def end_transaction(client: Any) -> None:
    """Have the coordinator abort what this producer has open, beside aiokafka's own state.

    It also tells whether the producer is still the newest of its transactional.id: raises `InvalidProducerEpoch` or
    `ProducerFenced` if not. Waits while the coordinator does not answer.
    """
    sender, manager = internals.sender_of(client), internals.transactions_of(client)
    if not manager.has_pid():
        return

    async def attempt() -> None:
        request = EndTxnRequest(
            transactional_id=manager.transactional_id,
            producer_id=manager.producer_id,
            producer_epoch=manager.producer_epoch,
            transaction_result=_ABORT,
        )
        node = await internals.find_coordinator(sender, CoordinationType.TRANSACTION, manager.transactional_id)
        try:
            answer = await client.client.send(node, request, group=ConnectionGroup.COORDINATION)
        except (errors.NodeNotReadyError, errors.RequestTimedOutError) as error:
            internals.forget_coordinator(sender, CoordinationType.TRANSACTION)
            raise NotYet(str(error)) from error
        problem = errors.for_code(answer.error_code)
        if problem is errors.NoError or issubclass(problem, _NOTHING_OPEN):
            return
        if not issubclass(problem, _AGAIN):
            raise problem()
        if not issubclass(problem, errors.CoordinatorLoadInProgressError | errors.ConcurrentTransactions):
            internals.forget_coordinator(sender, CoordinationType.TRANSACTION)
        raise NotYet(problem.__name__)

    await try_again_async(attempt, what="end of a transaction", first_s=_FIRST_S, longest_s=_LONGEST_S)
