"""Producer ids of one broker, from blocks of the controller. Unused ids are lost."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.peers import ControllerRequests
from broker_embedded.common.promises import Promise
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

VERSION = 0


class ProducerIds:
    """Producer ids that no other broker allocates. Callers wait while a block is fetched, once for all of them."""

    def __init__(self, *, node_id: int, controller: ControllerRequests, broker_epoch: Callable[[], int]) -> None:
        self._node_id = node_id
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._block = iter(range(0))
        self._waiting: deque[Promise[int]] = deque()

    def next(self) -> Promise[int]:
        """Return the next id; the promise fails with BrokerError if no block is available."""
        promise: Promise[int] = Promise()
        following = None if self._waiting else next(self._block, None)
        if following is not None:
            promise.set_result(following)
            return promise
        self._waiting.append(promise)
        if len(self._waiting) == 1:
            self._fetch()
        return promise

    def call_with_next(self, then: Callable[[int | BrokerError], None]) -> None:
        """Call `then` with the next id or the error."""

        def done(promise: Promise[int]) -> None:
            error = promise.exception()
            if error is None:
                then(promise.result())
            else:
                assert isinstance(error, BrokerError)
                then(error)

        self.next().add_done_callback(done)

    def _fetch(self) -> None:
        body = {"broker_id": self._node_id, "broker_epoch": self._broker_epoch()}
        self._controller.send(ApiKey.ALLOCATE_PRODUCER_IDS, VERSION, body).add_done_callback(self._fetched)

    def _fetched(self, done: asyncio.Future[Message]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._fail(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the controller hands out no producer ids now"))
            return
        answer = done.result()
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            self._fail(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no producer ids: {code.name}"))
            return
        self._block = iter(range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len))
        while self._waiting:
            following = next(self._block, None)
            if following is None:
                self._fetch()
                return
            self._waiting.popleft().set_result(following)

    def _fail(self, error: BrokerError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for promise in waiting:
            promise.set_exception(error)
