"""One ShareFetch request: acquires, waits until there is something to acquire, answers.

Who waits is woken by an append, and by records that become available again. It acquires the moment it is woken: of a
hundred members that wait for one record, one answers and the others wait on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import Promise
from broker_embedded.common.types import TopicPartition
from broker_embedded.purgatory.purgatory import DelayedOperation
from broker_embedded.server.requests.context import Body, RequestContext
from broker_embedded.share.session import ShareSession, TopicIdPartition
from broker_embedded.share.share_host import waiting_key
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

from .needs import leader_fields, led_partition
from .reading import Found, Wanted, acquire, isolation_of, readable_bytes

if TYPE_CHECKING:
    from .needs import ShareNeeds

STRICT = 1
"""`share_acquire_mode`: never more records than asked for (KIP-1206)."""


class ShareFetch(DelayedOperation[TopicPartition]):
    """A request, answered now or when woken."""

    __slots__ = (
        "_body",
        "_ctx",
        "_errors",
        "_found",
        "_isolation",
        "_promise",
        "_request",
        "_session",
        "_waiting",
        "_wanted",
    )

    def __init__(
        self,
        ctx: RequestContext[ShareNeeds],
        request: Message,
        session: ShareSession,
        promise: Promise[Body],
        body: Callable[[dict[TopicIdPartition, dict[str, Any]], int], Body],
    ) -> None:
        """Prepare the request. `body` builds the response from the result of each partition and the throttle time in
        ms."""
        super().__init__()
        self._ctx = ctx
        self._request = request
        self._session = session
        self._promise = promise
        self._body = body
        settings, _ = ctx.services.shares.settings_of(session.key.group_id)
        self._isolation = isolation_of(settings.share_isolation_level)
        is_strict = ctx.api_version >= 2 and request.share_acquire_mode == STRICT
        max_bytes = min(request.max_bytes, ctx.services.config.fetch_max_bytes)
        if ctx.services.quotas is not None:
            max_bytes = ctx.services.quotas.fetchable(ctx.connection, ctx.client_id, max_bytes)
        self._wanted = Wanted(
            member_id=session.key.member_id,
            max_records=request.max_records if request.max_bytes > 0 else 0,  # else one batch would be read anyway
            max_bytes=max_bytes,
            batch_size=request.batch_size,
            is_strict=is_strict,
        )
        self._found: dict[TopicIdPartition, Found] = {}
        self._errors: dict[TopicIdPartition, BrokerError] = {}
        self._waiting: dict[TopicPartition, TopicIdPartition] = {}

    # --- acquiring

    def run(self, *, must_answer: bool) -> None:
        """Acquire and answer, or wait."""
        request = self._request
        is_enough = self._is_enough(self._session.partitions, must_answer=must_answer or request.max_wait_ms <= 0)
        if is_enough:
            self._acquire(list(self._session.partitions))
        if must_answer or self._found or self._errors or request.max_wait_ms <= 0 or not self._session.partitions:
            self._answer()
            return
        for partition in self._session.partitions:
            self._watch(partition)
        if self._errors:
            self._answer()
            return
        self._promise.add_done_callback(self._forget_if_cancelled)
        self._ctx.services.replicas.fetches.watch(self, self._waiting, timeout_ms=request.max_wait_ms)

    def _is_enough(self, partitions: Iterable[TopicIdPartition], *, must_answer: bool) -> bool:
        """Return whether there are min_bytes to acquire."""
        min_bytes = self._request.min_bytes
        if must_answer or min_bytes <= 1:
            return True
        size = 0
        for each in partitions:
            try:
                led = led_partition(self._ctx, *each)
                host = self._ctx.services.shares.host(self._session.key.group_id, led)
                size += readable_bytes(host, led, self._isolation, at_most=min_bytes)
            except BrokerError:
                return True  # it is answered with the error
            if size >= min_bytes:
                return True
        return False

    def _acquire(self, partitions: Iterable[TopicIdPartition]) -> None:
        for partition in partitions:
            if self._wanted.max_records <= 0:
                return
            try:
                self._acquire_one(partition)
            except BrokerError as error:
                self._errors[partition] = error

    def _acquire_one(self, partition: TopicIdPartition) -> None:
        led = led_partition(self._ctx, *partition)
        faults = self._ctx.services.faults
        if faults.is_armed:
            name, number = led.topic_partition
            faults.check_partition(ApiKey.SHARE_FETCH, self._ctx.client_id, self._request, name, number)
        host = self._ctx.services.shares.host(self._session.key.group_id, led)
        if host.error is not None:
            raise host.error
        if host.partition is None:
            return
        try:
            found = acquire(host, led, self._wanted, self._isolation)
        except OSError as error:
            raise led.log.failed(error, path=led.log.directory, doing="reading") from error
        if found.ranges:
            self._found[partition] = found
            wanted = self._wanted
            self._wanted = replace(
                wanted, max_records=wanted.max_records - found.count, max_bytes=wanted.max_bytes - found.size
            )
            self._session.rotate(partition)

    # --- waiting

    def _watch(self, partition: TopicIdPartition) -> None:
        try:
            led = led_partition(self._ctx, *partition)
        except BrokerError as error:
            self._errors[partition] = error
            return
        host = self._ctx.services.shares.host(self._session.key.group_id, led)
        self._waiting[led.topic_partition] = partition
        self._waiting[waiting_key(host.key)] = partition

    def is_satisfied(self, key: TopicPartition, amount: int) -> bool:
        if not (self._found or self._errors) and self._is_enough(self._session.partitions, must_answer=False):
            self._acquire([self._waiting[key]])
        return bool(self._found or self._errors)

    def on_complete(self) -> None:
        self._answer()

    def on_expire(self) -> None:
        self._acquire(list(self._session.partitions))
        self._answer()

    def _forget_if_cancelled(self, promise: Promise[Body]) -> None:
        if promise.cancelled():  # the client has gone
            self._ctx.services.replicas.fetches.cancel(self)

    # --- answering

    def _answer(self) -> None:
        if self._promise.done():
            return
        partitions: dict[TopicIdPartition, dict[str, Any]] = {}
        for partition, found in self._found.items():
            partitions[partition] = {
                "records": found.records,
                "acquired_records": [
                    {"first_offset": first, "last_offset": last, "delivery_count": count}
                    for first, last, count in found.ranges
                ],
            }
        for partition, error in self._errors.items():
            partitions[partition] = {
                "error_code": int(error.code),
                "error_message": error.message or None,
                **leader_fields(self._ctx, *partition, ErrorCode(error.code)),
            }
        quotas = self._ctx.services.quotas
        throttle_ms = 0
        if quotas is not None:
            size = sum(found.size for found in self._found.values())
            throttle_ms = quotas.leased(self._ctx.connection, self._ctx.client_id, size)
        try:
            body = self._body(partitions, throttle_ms)
        except Exception as failure:
            self._promise.set_exception(failure)
        else:
            self._promise.set_result(body)
