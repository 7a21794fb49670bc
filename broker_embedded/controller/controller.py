"""The controller: checks a request against the image, writes metadata records, and responds when they are committed.

It never changes the image itself; replaying what the quorum committed does. So what a follower of the metadata log
knows, and what a restart finds, is exactly what the controller acted on. Every node has one; only that of the node
which leads the quorum is active, the others refuse with NOT_CONTROLLER.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, TypeVar

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.clock import Clock
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.peers import DeathProbe
from broker_embedded.controller import brokers, configs, elections, features, topics
from broker_embedded.controller.broker_heartbeats import BrokerHeartbeats
from broker_embedded.controller.change_queue import ChangeQueue, Decision
from broker_embedded.controller.commits import CommittedBatch
from broker_embedded.controller.failure_detector import FailureDetector
from broker_embedded.controller.features import FeatureUpdate
from broker_embedded.controller.partition_requests import Outcome, PartitionRequests
from broker_embedded.controller.quorum import MetadataQuorum
from broker_embedded.controller.requests import UNSET, ConfigChange, NewPartitions, NewTopic, TopicResult
from broker_embedded.controller.sessions import BrokerSessions
from broker_embedded.controller.timers import PeriodicTimer
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.metadata.delta import MetadataDelta, image_after
from broker_embedded.metadata.image import ClusterImage, TopicImage
from broker_embedded.metadata.records import (
    MetadataRecord,
    QuotaEntity,
    ReserveProducerIds,
    SetConfig,
    UserScramCredential,
)
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.primitives import random_uuid

if TYPE_CHECKING:
    from broker_embedded.controller.acls import Deleted, NewAcl
    from broker_embedded.controller.client_quotas import QuotaAlteration
    from broker_embedded.controller.scram_credentials import ScramDeletion, ScramUpsertion
    from broker_embedded.metadata.acls import AclFilter

log = logging.getLogger(__name__)

PRODUCER_ID_BLOCK = 1000

PARTITIONS_AT_ONCE = 50
"""Partitions of new topics that are decided in one turn of the loop."""

W = TypeVar("W")

Charge = Callable[[int], None]
"""Called with the number of partitions that a request creates or deletes. Raises BrokerError to refuse it."""


def free(partitions: int) -> None:
    """Accept any number: no quota applies."""


class Controller:
    """The controller of one node. Lives on the loop that owns the node."""

    def __init__(
        self,
        *,
        cluster_id: str,
        quorum: MetadataQuorum,
        config: BrokerConfig,
        random: Random,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        death_probe: DeathProbe | None = None,
    ) -> None:
        """`death_probe` detects dead brokers before their sessions end; None disables it."""
        self._quorum = quorum
        self._config = config
        self._random = random
        self._loop = loop
        self._cache = MetadataCache(cluster_id)
        self._active_epoch: int | None = None
        self._is_closed = False
        self._changes = ChangeQueue(quorum=quorum, committed=lambda: self.image, loop=loop)
        sessions = BrokerSessions(clock=clock, timeout_ms=config.broker_session_timeout_ms)
        self.lives = BrokerHeartbeats(
            committed=lambda: self.image,
            changes=self._changes,
            sessions=sessions,
            config=config,
        )
        self.deaths = FailureDetector(
            alive=lambda: self.image.live_brokers(), probe=death_probe, on_death=self.lives.replace_dead
        )
        self.partitions = PartitionRequests(changes=self._changes, config=config)
        balancing_s = config.leader_imbalance_check_interval_seconds
        self._timers = [
            PeriodicTimer(loop=loop, interval_s=sessions.check_interval_ms / 1000, work=self.lives.fence_expired),
            PeriodicTimer(loop=loop, interval_s=balancing_s, work=self._rebalance),
        ]
        quorum.subscribe(self._replay)
        quorum.add_leadership_listener(self._on_leadership)

    @property
    def image(self) -> ClusterImage:
        return self._cache.image

    @property
    def is_active(self) -> bool:
        """Return whether this node's controller is active."""
        return self._quorum.is_leader

    @property
    def leader_id(self) -> int:
        """Return the node of the active controller; -1 while unknown."""
        return self._quorum.leader_id

    def close(self) -> None:
        """Stop; waiting requests fail with NOT_CONTROLLER."""
        self._is_closed = True
        self._deactivate()

    def pause(self) -> None:
        """Stop periodic work for a while, like a stopped process."""
        for timer in self._timers:
            timer.stop()

    def resume(self) -> None:
        """Go on. The sessions find out how long the pause was, and give everybody that time."""
        if self._active_epoch is not None:
            for timer in self._timers:
                timer.start()

    def _replay(self, batch: CommittedBatch) -> None:
        self._cache.replay(
            batch.records, offset=batch.last_offset, epoch=batch.epoch, controller_id=self._quorum.leader_id
        )

    # --- becoming active, and no longer being it

    def _on_leadership(self, is_leader: bool, epoch: int) -> None:
        if not is_leader or self._is_closed:
            self._deactivate()
        elif epoch != self._active_epoch:
            self._active_epoch = epoch
            self._activate()

    def _activate(self) -> None:
        log.info("the controller is active, epoch %d", self._active_epoch or 0)
        self.lives.activate(silence_of=self._quorum.silence_of)
        self.deaths.activate()  # the one whose controller was active before, for one

        def decide() -> Decision[None]:
            records = features.initial_levels(self._changes.image)
            # What the last controller did not get to: it may have died between a broker's return and its election.
            return [*records, *elections.elect_for_leaderless(self._changes.image, config=self._config)], None

        self._changes.submit(decide)
        for timer in self._timers:
            timer.start()

    def _deactivate(self) -> None:
        self._active_epoch = None
        self.deaths.deactivate()
        for timer in self._timers:
            timer.stop()
        self._changes.fail_all()

    def _rebalance(self) -> None:
        if not self._config.auto_leader_rebalance_enable:
            return

        def decide() -> Decision[int]:
            percentage = self._config.leader_imbalance_per_broker_percentage
            records = elections.rebalance(self._changes.image, percentage=percentage)
            return records, len(records)

        def again(done: asyncio.Future[int]) -> None:
            has_more = not done.cancelled() and done.exception() is None
            if has_more and done.result() == elections.MAX_ELECTIONS_PER_BALANCING:
                self._rebalance()

        self._changes.submit(decide).add_done_callback(again)

    def fence_brokers(self, nodes: Collection[int]) -> asyncio.Future[None]:
        """Fence brokers at once, before their sessions expire."""
        return self._changes.submit(lambda: (brokers.fence(self._changes.image, nodes, config=self._config), None))

    # --- topics

    def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool, charge: Charge = free
    ) -> asyncio.Future[list[TopicResult]]:
        """Create the valid topics; each has its own result, in order. `charge` is called with the partitions of each,
        and may refuse it.

        Many are created in slices, and the loop serves others in between. If leadership is lost on the way, the topics
        that were not reached have NOT_CONTROLLER as their result.
        """
        slices = list(self._slices(wanted))
        if len(slices) <= 1:
            return self._create(wanted, validate_only=validate_only, charge=charge)
        answer: asyncio.Future[list[TopicResult]] = self._loop.create_future()
        results: list[TopicResult] = []

        def create_next() -> None:
            if answer.done():  # no caller waits any more
                return
            number = len(results)
            self._create(slices.pop(0), validate_only=validate_only, charge=charge).add_done_callback(
                lambda done: created(done, number)
            )

        def created(done: asyncio.Future[list[TopicResult]], number: int) -> None:
            error = None if done.cancelled() else done.exception()
            if answer.done():
                return
            if isinstance(error, BrokerError) and number:
                results.extend(TopicResult(name=each.name, error=error) for each in wanted[number:])
                slices.clear()
            elif error is not None:
                answer.set_exception(error)
                return
            else:
                results.extend(done.result())
            if slices:
                self._loop.call_soon(create_next)
            else:
                answer.set_result(results)

        create_next()
        return answer

    def _slices(self, wanted: Sequence[NewTopic]) -> Iterator[Sequence[NewTopic]]:
        """Yield neighbours that are created in one turn of the loop."""
        start = partitions = 0
        for number, topic in enumerate(wanted):
            count = len(topic.assignments) or (
                self._config.num_partitions if topic.partitions == UNSET else topic.partitions
            )
            if number > start and partitions + count > PARTITIONS_AT_ONCE:
                yield wanted[start:number]
                start, partitions = number, 0
            partitions += max(1, count)
        if start < len(wanted):
            yield wanted[start:]

    def _create(
        self, wanted: Sequence[NewTopic], *, validate_only: bool, charge: Charge
    ) -> asyncio.Future[list[TopicResult]]:
        def decide() -> Decision[list[TopicResult]]:
            results: list[TopicResult] = []
            records: list[MetadataRecord] = []
            image = self._changes.image
            delta = MetadataDelta(image)
            for topic in wanted:
                try:
                    created, result = topics.create_topic(image, topic, config=self._config, random=self._random)
                    charge(result.partitions)
                except BrokerError as error:
                    results.append(TopicResult(name=topic.name, error=error))
                    continue
                results.append(result)
                records += created
                if len(wanted) > 1:  # the next topic is checked against, and its leaders are placed beside, this one
                    delta.replay_all(created)
                    image = delta.apply(offset=image.offset, epoch=image.epoch, controller_id=image.controller_id)
            return [] if validate_only else records, results

        return self._changes.submit(decide)

    def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool, charge: Charge = free
    ) -> asyncio.Future[list[Outcome]]:
        def grow(topic: NewPartitions) -> Sequence[MetadataRecord]:
            records = topics.grow_topic(self._changes.image, topic)
            charge(len(records))
            return records

        return self._each(wanted, grow, validate_only=validate_only)

    def delete_topics(self, doomed: Sequence[TopicImage], *, charge: Charge = free) -> asyncio.Future[list[Outcome]]:
        def delete(topic: TopicImage) -> Sequence[MetadataRecord]:
            if self._changes.image.topic_by_id(topic.topic_id) is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} is gone already")
            records = topics.delete_topic(topic, config=self._config)
            charge(len(topic.partitions))
            return records

        return self._each(doomed, delete, validate_only=False)

    # --- settings and features

    def change_configs(self, changes: Sequence[ConfigChange], *, validate_only: bool) -> asyncio.Future[list[Outcome]]:
        def change(wanted: ConfigChange) -> Sequence[MetadataRecord]:
            records = configs.change_configs(self._changes.image, wanted, config=self._config)
            named = {record.name for record in records if isinstance(record, SetConfig)}
            if elections.UNCLEAN_SETTING in named:  # who waits for a leader need not wait for another event
                records += elections.elect_for_leaderless(
                    image_after(self._changes.image, records), config=self._config
                )
            return records

        return self._each(changes, change, validate_only=validate_only)

    def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool) -> asyncio.Future[None]:
        """Apply all updates or none."""

        def decide() -> Decision[None]:
            records = features.update(self._changes.image, updates)
            return [] if validate_only else records, None

        return self._changes.submit(decide)

    # --- users

    def alter_scram_credentials(
        self, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
    ) -> asyncio.Future[dict[str, Outcome]]:
        """Apply the valid alterations; every user has an outcome."""
        from broker_embedded.controller.scram_credentials import alter  # few clusters have users

        return self._changes.submit(lambda: alter(self._changes.image, deletions, upsertions))

    def set_scram_credentials(self, credentials: Sequence[UserScramCredential]) -> asyncio.Future[None]:
        """Write the credentials that the cluster starts with."""
        return self._changes.submit(lambda: (credentials, None))

    # --- ACLs

    def create_acls(self, wanted: Sequence[NewAcl]) -> asyncio.Future[list[Outcome]]:
        """Create the valid ACLs; each has an outcome."""
        from broker_embedded.controller.acls import create  # few clusters have an authorizer

        return self._changes.submit(
            lambda: create(self._changes.image, wanted, new_id=lambda: random_uuid(self._random))
        )

    def delete_acls(self, filters: Sequence[AclFilter]) -> asyncio.Future[list[Deleted]]:
        """Delete every ACL that matches a filter."""
        from broker_embedded.controller.acls import delete

        return self._changes.submit(lambda: delete(self._changes.image, filters))

    def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool
    ) -> asyncio.Future[dict[QuotaEntity, Outcome]]:
        """Apply the valid alterations; every entity has an outcome."""
        from broker_embedded.controller.client_quotas import alter  # few clusters have quotas

        def decide() -> Decision[dict[QuotaEntity, Outcome]]:
            records, outcomes = alter(self._changes.image, alterations)
            return [] if validate_only else records, outcomes

        return self._changes.submit(decide)

    # --- producer ids

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> asyncio.Future[range]:
        """Return the next block of producer ids for a broker. Unused ids are lost, as in Kafka."""

        def decide() -> Decision[range]:
            image = self._changes.image
            brokers.check_epoch(image, broker_id, broker_epoch)
            block = range(image.next_producer_id, image.next_producer_id + PRODUCER_ID_BLOCK)
            record = ReserveProducerIds(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=block.stop)
            return [record], block

        return self._changes.submit(decide)

    def _each(
        self, wanted: Sequence[W], records_of: Callable[[W], Sequence[MetadataRecord]], *, validate_only: bool
    ) -> asyncio.Future[list[Outcome]]:
        """Apply one change with many items: valid items succeed, each has an outcome, in order."""

        def decide() -> Decision[list[Outcome]]:
            records: list[MetadataRecord] = []
            outcomes: list[Outcome] = []
            for each in wanted:
                try:
                    records += records_of(each)
                except BrokerError as error:
                    outcomes.append(error)
                else:
                    outcomes.append(None)
            return [] if validate_only else records, outcomes

        return self._changes.submit(decide)
