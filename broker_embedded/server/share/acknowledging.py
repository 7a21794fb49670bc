"""The acknowledgements of a ShareFetch or ShareAcknowledge request: checked, stepped, and awaited."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.share.events import Acknowledge, AcknowledgedRange, Answer
from broker_embedded.share.session import SessionKey, TopicIdPartition
from broker_embedded.share.states import AcknowledgeType
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

from .needs import led_partition

if TYPE_CHECKING:
    from broker_embedded.server.requests.context import RequestContext

    from .needs import ShareNeeds

Result = tuple[ErrorCode, str]
_NONE: Result = (ErrorCode.NONE, "")


class Acknowledgements:
    """Results per partition. `start` calls back once all are there, perhaps at once."""

    def __init__(self, ctx: RequestContext[ShareNeeds], key: SessionKey, *, is_renewal: bool) -> None:
        self._ctx = ctx
        self._key = key
        self._is_renewal = is_renewal
        self.results: dict[TopicIdPartition, Result] = {}
        self._open = 0
        self._on_done: Callable[[], None] | None = None

    @property
    def have_failed(self) -> bool:
        return any(error for error, _ in self.results.values())

    def start(self, topics: Iterable[Message], on_done: Callable[[], None]) -> None:
        self._open = 1
        self._on_done = on_done
        for topic in topics:
            for each in topic.partitions:
                if each.acknowledgement_batches:
                    self._acknowledge((bytes(topic.topic_id), each.partition_index), each.acknowledgement_batches)
        self._finish_one()

    def _acknowledge(self, partition: TopicIdPartition, batches: Iterable[Message]) -> None:
        self.results[partition] = _NONE
        try:
            ranges = checked_ranges(batches, allows_renewal=self._is_renewal)
            self._check_renewal(ranges)
            led = led_partition(self._ctx, *partition)
            host = self._ctx.services.shares.loaded(self._key.group_id, led)
            if host is None:
                raise BrokerError(
                    ErrorCode.INVALID_RECORD_STATE, f"{led.topic_partition}: nothing is acquired on this broker"
                )
        except BrokerError as error:
            self.results[partition] = (error.code, error.message)
            return
        self._open += 1
        ticket = object()
        event = Acknowledge(ticket=ticket, member_id=self._key.member_id, ranges=ranges)
        host.acknowledge(event, ticket, partial(self._answered, partition))

    def _check_renewal(self, ranges: Iterable[AcknowledgedRange]) -> None:
        renews = self._is_renewal and any(AcknowledgeType.RENEW in each.types for each in ranges)
        settings, _ = self._ctx.services.shares.settings_of(self._key.group_id)
        if renews and not settings.share_renew_acknowledge_enable:
            raise BrokerError(
                ErrorCode.INVALID_RECORD_STATE,
                f"group {self._key.group_id!r} renews no locks: share.renew.acknowledge.enable is false",
            )

    def _answered(self, partition: TopicIdPartition, answer: Answer) -> None:
        if answer.error is not ErrorCode.NONE:
            self.results[partition] = (answer.error, answer.message)
        self._finish_one()

    def _finish_one(self) -> None:
        self._open -= 1
        if self._open == 0 and self._on_done is not None:
            self._on_done()


def checked_ranges(batches: Iterable[Message], *, allows_renewal: bool) -> tuple[AcknowledgedRange, ...]:
    """Return the ranges of one partition. Raises INVALID_REQUEST if they overlap, run backwards, or mean nothing."""
    ranges: list[AcknowledgedRange] = []
    end = 0
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first < end or last < first:
            raise _invalid(f"offsets {first} to {last} are out of order: the next may be {end}")
        if not types or (len(types) > 1 and len(types) != last - first + 1):
            raise _invalid(f"offsets {first} to {last}: found {len(types)} types, wanted 1 or {last - first + 1}")
        highest = AcknowledgeType.RENEW if allows_renewal else AcknowledgeType.REJECT
        unknown = [each for each in types if not 0 <= each <= highest]
        if unknown:
            raise _invalid(f"offsets {first} to {last}: acknowledge type {unknown[0]}, wanted 0 to {highest}")
        ranges.append(AcknowledgedRange(first, last, tuple(map(AcknowledgeType, types))))
        end = last + 1
    return tuple(ranges)


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)
