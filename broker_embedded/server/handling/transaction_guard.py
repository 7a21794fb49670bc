"""Whether a leader may take a transactional batch: the transaction coordinator is asked before the first (KIP-890).

A producer that is in the middle of its transaction at a partition is let through: the open transaction itself is the
proof. Otherwise the coordinator, here or on another broker, confirms that the partition is part of the transaction, or,
for a client that leaves it to the leader (Produce 12 and later, TxnOffsetCommit 5), adds it.

While another broker is being asked, a marker of this producer may come to the partition. Then nothing is appended on
the strength of that answer. Where the client added its partitions itself, the marker ended this very transaction: the
client could add them only when the last one's markers were written. Where they are left to the leader, the marker may
be the last transaction's, since EndTxn is answered before markers are written: the coordinator is asked again, and a
client is told CONCURRENT_TRANSACTIONS if that goes on for too long (KAFKA-18575).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import Promise, run_into
from broker_embedded.common.types import TopicPartition
from broker_embedded.coordinator.transaction.enlistment import Enlisting
from broker_embedded.coordinator.transaction.requests import PartitionsChecked
from broker_embedded.coordinator.transaction.transaction import ProducerIdentity
from broker_embedded.replication.replica_manager import ReplicaManager
from broker_embedded.storage.producer_entry import NO_OFFSET, ProducerEntry
from ottla_wire.protocol import ErrorCode, ProtocolError
from ottla_wire.protocol.message import Message
from ottla_wire.records.batch import parse_header

if TYPE_CHECKING:
    from broker_embedded.server.requests.context import RequestContext, Response
    from broker_embedded.server.requests.services import HasLoop, HasMetadata, HasReplicas, HasTransactions

    class EnlistNeeds(HasTransactions, HasReplicas, HasLoop, Protocol): ...

    class GuardNeeds(EnlistNeeds, HasMetadata, Protocol): ...


PRODUCE_WITH_ABORTABLE_ERROR = 11
PRODUCE_ADDS_PARTITIONS = 12

_A_MARKER_CAME = {
    Enlisting.VERIFY: ErrorCode.TRANSACTION_ABORTABLE,
    Enlisting.ADD: ErrorCode.CONCURRENT_TRANSACTIONS,
}
"""What a confirmation is worth when a marker of the producer came between the question and the answer."""

Refusals = Mapping[TopicPartition, BrokerError]
NO_REFUSALS: Refusals = {}

_ASK_AGAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def guarded(ctx: RequestContext[GuardNeeds], request: Message, append: Callable[[Refusals], Response]) -> Response:
    """Append what is allowed of a transactional Produce request, now or after the coordinator's response."""
    checked = _check_produce(ctx, request)
    if not isinstance(checked, Promise):
        return append(checked)
    _own_the_records(request)
    promise: Promise[Any] = Promise()

    def go(done: Promise[Refusals]) -> None:
        if not promise.done():
            run_into(promise, lambda: append(done.result()))

    checked.add_done_callback(go)
    return promise


def _own_the_records(request: Message) -> None:
    """Copy the records out of the connection's buffer, which is only lent for this turn of the loop."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


def _check_produce(ctx: RequestContext[GuardNeeds], request: Message) -> Refusals | Promise[Refusals]:
    """Return the partitions of a transactional Produce request that must not be appended to, with the reason."""
    version = ctx.api_version
    how = Enlisting.ADD if version >= PRODUCE_ADDS_PARTITIONS else Enlisting.VERIFY
    unproven = _unproven(ctx, request)
    if not unproven:
        return NO_REFUSALS
    refusals: dict[TopicPartition, BrokerError] = {}
    promise: Promise[Refusals] = Promise()
    open_questions = len(unproven)

    def checked(answer: Mapping[TopicPartition, ErrorCode]) -> None:
        nonlocal open_questions
        for partition, error in answer.items():
            if error is not ErrorCode.NONE:
                refusals[partition] = _refusal(partition, error, version)
        open_questions -= 1
        if open_questions == 0 and not promise.done():
            promise.set_result(refusals)

    for producer, partitions in unproven.items():
        enlist(ctx.services, how, request.transactional_id, producer, partitions, checked)
    return refusals if promise.done() else promise


def enlist(
    services: EnlistNeeds,
    how: Enlisting,
    transactional_id: str,
    producer: ProducerIdentity,
    partitions: list[TopicPartition],
    on_done: Callable[[Mapping[TopicPartition, ErrorCode]], None],
) -> None:
    """Ask the coordinator about partitions that this broker leads, unless an open transaction is proof enough. One
    error for each that was asked about; perhaps answered at once."""
    if how is Enlisting.VERIFY and not services.transactions.config().transaction_partition_verification_enable:
        on_done(dict.fromkeys(partitions, ErrorCode.NONE))
        return
    replicas = services.replicas
    partitions = [each for each in partitions if not _is_proven(replicas, each, producer)]
    if not partitions:
        on_done({})
        return
    loop, config = services.loop, services.transactions.config()
    adds_until = loop.time() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000

    def ask() -> None:
        markers_before = {each: _last_marker(replicas, each, producer) for each in partitions}

        def checked(answer: PartitionsChecked) -> None:
            errors = {each: answer.error_of(each) for each in partitions}
            for each, error in errors.items():
                if error is ErrorCode.NONE and _last_marker(replicas, each, producer) != markers_before[each]:
                    errors[each] = _A_MARKER_CAME[how]
            is_too_early = ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
            if is_too_early and how is Enlisting.ADD and loop.time() < adds_until:
                # The last transaction's markers are being written, or another leader's partition is just being added.
                # A client that is told so may not come again for seconds.
                loop.call_later(config.add_partitions_to_txn_retry_backoff_ms / 1000, ask)
                return
            on_done(errors)

        services.transactions.enlistment.ask(how, transactional_id, producer, partitions, checked)

    ask()


def _unproven(ctx: RequestContext[GuardNeeds], request: Message) -> dict[ProducerIdentity, list[TopicPartition]]:
    """Return the partitions led here at which the producer of the request's batch has no transaction open."""
    image = ctx.services.metadata.image
    replicas = ctx.services.replicas
    found: dict[ProducerIdentity, list[TopicPartition]] = {}
    for topic in request.topic_data:
        name = image.name_in(topic)
        for data in topic.partition_data:
            partition = TopicPartition(name or "", data.index)
            replica = replicas.partition(partition)
            if replica is None or not replica.is_leader or data.records is None:
                continue  # refused for another reason when it is appended
            try:
                header = parse_header(data.records)
            except ProtocolError:
                continue
            if not header.is_transactional:
                continue
            producer = ProducerIdentity(header.producer_id, header.producer_epoch)
            if not _is_proven(replicas, partition, producer):
                found.setdefault(producer, []).append(partition)
    return found


def _entry(replicas: ReplicaManager, partition: TopicPartition, producer: ProducerIdentity) -> ProducerEntry | None:
    replica = replicas.partition(partition)
    return None if replica is None else replica.log.producers.entries.get(producer.producer_id)


def _is_proven(replicas: ReplicaManager, partition: TopicPartition, producer: ProducerIdentity) -> bool:
    """Return whether the producer's transaction is open at the partition, under the same epoch."""
    entry = _entry(replicas, partition, producer)
    if entry is None or entry.producer_epoch != producer.epoch:
        return False
    return entry.current_transaction_first_offset != NO_OFFSET


def _last_marker(replicas: ReplicaManager, partition: TopicPartition, producer: ProducerIdentity) -> int:
    entry = _entry(replicas, partition, producer)
    return NO_OFFSET if entry is None else entry.last_marker_offset


def _refusal(partition: TopicPartition, error: ErrorCode, version: int) -> BrokerError:
    """Return the error code for the producer's version."""
    code = error
    is_too_early = error is ErrorCode.CONCURRENT_TRANSACTIONS and version < PRODUCE_ADDS_PARTITIONS
    if error in _ASK_AGAIN or is_too_early:
        code = ErrorCode.NOT_ENOUGH_REPLICAS
    elif error is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif error is ErrorCode.TRANSACTION_ABORTABLE and version < PRODUCE_WITH_ABORTABLE_ERROR:
        code = ErrorCode.INVALID_TXN_STATE
    return BrokerError(
        code, f"{partition}: not confirmed by the transaction coordinator as part of the transaction: {error.name}"
    )
