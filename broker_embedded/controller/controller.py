"""The controller: checks a request against the image, turns it into metadata records, answers when they are committed.

It never changes the image itself; replaying what the quorum committed does. So what a follower of the metadata log
knows, and what a restart finds, is exactly what the controller acted on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from random import Random
from typing import TypeVar

from broker_embedded.common.config import BrokerConfig
from broker_embedded.common.errors import BrokerError
from broker_embedded.controller import brokers, configs, topics
from broker_embedded.controller.quorum import CommittedBatch, MetadataQuorum
from broker_embedded.controller.requests import ConfigChange, NewPartitions, NewTopic, TopicResult
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.metadata.delta import MetadataDelta
from broker_embedded.metadata.image import ClusterImage, TopicImage
from broker_embedded.metadata.records import MetadataRecord, RegisterBroker, ReserveProducerIds
from ottla_wire.protocol import ErrorCode

PRODUCER_ID_BLOCK = 1000

T = TypeVar("T")
Outcome = BrokerError | None


class Controller:
    """The active controller of a cluster. Lives on the loop that owns the cluster."""

    def __init__(
        self,
        *,
        cluster_id: str,
        quorum: MetadataQuorum,
        config: BrokerConfig,
        random: Random,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._quorum = quorum
        self._config = config
        self._random = random
        self._loop = loop
        self._cache = MetadataCache(cluster_id)
        quorum.subscribe(self._replay)

    @property
    def image(self) -> ClusterImage:
        return self._cache.image

    def _replay(self, batch: CommittedBatch) -> None:
        self._cache.replay(
            batch.records, offset=batch.last_offset, epoch=batch.epoch, controller_id=self._quorum.leader_id
        )

    def _commit(self, records: Sequence[MetadataRecord], answer: T) -> asyncio.Future[T]:
        """A promise of `answer`: kept when `records` are committed, broken when another node leads the quorum."""
        future: asyncio.Future[T] = self._loop.create_future()

        def done(error: BrokerError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)

        self._quorum.append(records, done)
        return future

    # --- brokers

    def register_broker(self, registration: RegisterBroker) -> asyncio.Future[None]:
        return self._commit(brokers.register(self.image, registration), None)

    def next_broker_epoch(self) -> int:
        """Kafka's rule: the offset of the registration in the metadata log."""
        return self.image.offset + 1

    def fence_brokers(self, nodes: Collection[int]) -> asyncio.Future[None]:
        return self._commit(brokers.fence(self.image, nodes), None)

    # --- topics

    def create_topics(self, wanted: Sequence[NewTopic], *, validate_only: bool) -> asyncio.Future[list[TopicResult]]:
        """Create what can be created; each topic has its own result, in order."""
        results: list[TopicResult] = []
        records: list[MetadataRecord] = []
        image = self.image
        for topic in wanted:
            try:
                created, result = topics.create_topic(image, topic, config=self._config, random=self._random)
            except BrokerError as error:
                results.append(TopicResult(name=topic.name, error=error))
                continue
            results.append(result)
            records += created
            if len(wanted) > 1:  # the next topic is checked against, and its leaders are placed beside, this one
                image = _after(image, created)
        return self._commit([] if validate_only else records, results)

    def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool
    ) -> asyncio.Future[list[Outcome]]:
        outcomes: list[Outcome] = []
        records: list[MetadataRecord] = []
        for topic in wanted:
            try:
                records += topics.grow_topic(self.image, topic)
            except BrokerError as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        return self._commit([] if validate_only else records, outcomes)

    def delete_topics(self, doomed: Sequence[TopicImage]) -> asyncio.Future[list[Outcome]]:
        outcomes: list[Outcome] = []
        records: list[MetadataRecord] = []
        for topic in doomed:
            try:
                records += topics.delete_topic(topic, config=self._config)
            except BrokerError as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        return self._commit(records, outcomes)

    # --- settings

    def change_configs(self, changes: Sequence[ConfigChange], *, validate_only: bool) -> asyncio.Future[list[Outcome]]:
        outcomes: list[Outcome] = []
        records: list[MetadataRecord] = []
        for change in changes:
            try:
                records += configs.change_configs(self.image, change)
            except BrokerError as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        return self._commit([] if validate_only else records, outcomes)

    # --- producer ids

    def allocate_producer_ids(self, broker_id: int) -> asyncio.Future[range]:
        """The next block of producer ids for a broker. What it does not use is lost, as in Kafka."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            raise BrokerError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered")
        first = self.image.next_producer_id
        block = range(first, first + PRODUCER_ID_BLOCK)
        record = ReserveProducerIds(broker_id=broker_id, broker_epoch=broker.epoch, next_producer_id=block.stop)
        return self._commit([record], block)


def _after(image: ClusterImage, records: Sequence[MetadataRecord]) -> ClusterImage:
    """The image as it would be with `records`."""
    delta = MetadataDelta(image)
    delta.replay_all(records)
    return delta.apply(offset=image.offset, epoch=image.epoch, controller_id=image.controller_id)
