"""The transaction coordinator of a broker: the shard of each transactional id, and operations across shards."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import NO_LEADER, TRANSACTION_STATE_TOPIC, TopicPartition
from broker_embedded.metadata.delta import MetadataDelta
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.replication.broker_parts import BrokerParts
from ottla_wire.protocol import ErrorCode

from ..runtime.coordinator import Coordinator
from ..runtime.reply import Reply

if TYPE_CHECKING:
    from ..runtime.shard import ShardContext
    from .enlistment import Enlistment, OnChecked
    from .marker_writer import MarkerWriter, OffsetsOfTransactions
    from .markers import MarkerSender
    from .requests import AddPartitions, InitProducer, PartitionsChecked
    from .shard import OnProducerId, TransactionShard
    from .transaction import Transaction


class TransactionCoordinator(Coordinator["TransactionShard"]):
    """The modules of transactions, its shards among them, are loaded when the first transaction needs them."""

    topic = TRANSACTION_STATE_TOPIC

    def __init__(
        self,
        parts: BrokerParts,
        *,
        offsets: OffsetsOfTransactions,
        new_producer_id: Callable[[OnProducerId], None],
    ) -> None:
        super().__init__(parts)
        self.config = parts.config
        self._new_producer_id = new_producer_id
        self._offsets = offsets
        self._markers: MarkerSender | None = None

    @cached_property
    def marker_writer(self) -> MarkerWriter:
        """Writes how transactions end where this broker leads."""
        from .marker_writer import MarkerWriter

        return MarkerWriter(replicas=self._parts.replicas, clock=self._parts.clock, offsets=self._offsets)

    @cached_property
    def enlistment(self) -> Enlistment:
        """Asks whether a partition is in a transaction, or adds it, where its coordinator is."""
        from .enlistment import Enlistment

        return Enlistment(
            node_id=self._parts.node_id,
            leader_of=self._leader_of,
            verify=self._verify,
            add=self._add,
            peers=self._parts.peers,
        )

    def start(self) -> None:
        super().start()
        self._parts.metadata.add_listener(self._on_metadata)

    def stop(self) -> None:
        super().stop()
        if self._markers is not None:
            self._markers.close()

    def _make_shard(self, partition: int, context: ShardContext) -> TransactionShard:
        from .markers import MarkerSender
        from .shard import TransactionShard

        if self._markers is None:
            self._markers = MarkerSender(
                node_id=self._parts.node_id,
                metadata=self._parts.metadata,
                writer=self.marker_writer,
                loop=self._parts.loop,
                peers=self._parts.peers,
            )
        return TransactionShard(
            partition, context, config=self.config, markers=self._markers, new_producer_id=self._new_producer_id
        )

    # -- finding

    def shard_of(self, transactional_id: str) -> TransactionShard:
        """Return the shard, or BrokerError: an unusable id, another broker's, or still loading."""
        if not transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        return self.runtime.shard(self.partition_of(transactional_id))

    # -- requests that are checked against the settings

    def check_init(self, request: InitProducer) -> None:
        longest_ms = self.config().transaction_max_timeout_ms
        if not 0 < request.timeout_ms <= longest_ms:
            raise BrokerError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transaction timeout: found {request.timeout_ms} ms, wanted 1 to {longest_ms} ms "
                "(transaction.max.timeout.ms)",
            )

    # -- across shards

    def list_transactions(self) -> list[Transaction]:
        """Return the transactional ids that this broker coordinates."""
        return [each for shard in self._loaded_shards("transactions") for each in shard.transactions()]

    # -- for leaders

    def _leader_of(self, transactional_id: str) -> int | None:
        try:
            number = self.partition_of(transactional_id)
        except BrokerError:
            return None
        state = self._parts.metadata.image.partition(TopicPartition(TRANSACTION_STATE_TOPIC, number))
        return None if state is None or state.leader == NO_LEADER else state.leader

    def _verify(self, request: AddPartitions) -> PartitionsChecked:
        try:
            return self.shard_of(request.transactional_id).verify_partitions(request)
        except BrokerError as error:
            return _unchecked(error)

    def _add(self, request: AddPartitions, on_done: OnChecked) -> None:
        try:
            shard = self.shard_of(request.transactional_id)
        except BrokerError as error:
            on_done(_unchecked(error))
            return
        shard.add_partitions(request, _Listening(on_done))

    def _on_metadata(self, delta: MetadataDelta, image: ClusterImage) -> None:
        if self._markers is not None:
            self._markers.on_metadata()


def _unchecked(error: BrokerError) -> PartitionsChecked:
    from .requests import PartitionsChecked

    return PartitionsChecked(error=error.code)


class _Listening(Reply["PartitionsChecked"]):
    """A reply to this broker itself: nothing to convert into a response."""

    __slots__ = ("_on_done",)

    def __init__(self, on_done: OnChecked) -> None:
        super().__init__(lambda _: {})
        self._on_done = on_done

    def settle(self, answer: PartitionsChecked) -> None:
        super().settle(answer)
        self._on_done(answer)
