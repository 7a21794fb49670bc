"""Partition requests of brokers and clients: ISR changes, elections, reassignments, directories.

The rules are in `isr_changes`, `elections` and `reassignment`; this makes one change of a request that names many
partitions, each with its own result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.controller import brokers, elections, isr_changes, reassignment
from broker_embedded.controller.change_queue import ChangeQueue, Decision
from broker_embedded.controller.isr_changes import IsrChange, IsrResult
from broker_embedded.controller.partition_change import Election
from broker_embedded.controller.reassignment import Reassignment
from broker_embedded.metadata.delta import image_after
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import ChangePartition, MetadataRecord
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

Outcome = BrokerError | None
Elected = list[tuple[TopicPartition, Outcome]]


@fact
class DirectoryAssignment:
    """A replica of the asking broker is in `directory`."""

    topic_id: bytes
    partition: int
    directory: bytes


class PartitionRequests:
    """Part of the controller; acts only while that is active."""

    def __init__(self, *, changes: ChangeQueue, config: BrokerConfig) -> None:
        self._changes = changes
        self._config = config

    def change_isr(
        self, leader: int, broker_epoch: int, wanted: Sequence[IsrChange]
    ) -> asyncio.Future[list[IsrResult]]:
        """Return a leader's AlterPartition: the result of each change, in order."""

        def decide() -> Decision[list[IsrResult]]:
            image = self._changes.image
            brokers.check_epoch(image, leader, broker_epoch)
            records: list[MetadataRecord] = []
            results: list[IsrResult] = []
            for change in wanted:
                made, result = isr_changes.change_isr(image, leader, change, config=self._config)
                records += made
                results.append(result)
            return records, results

        return self._changes.submit(decide)

    def elect_leaders(self, partitions: Sequence[TopicPartition] | None, election: Election) -> asyncio.Future[Elected]:
        """Return the outcome of each election. For all partitions (None), only those that needed one are included."""

        def decide() -> Decision[Elected]:
            image = self._changes.image
            records: list[MetadataRecord] = []
            outcomes: Elected = []
            wanted = elections.all_partitions(image) if partitions is None else dict.fromkeys(partitions)
            for topic_partition in wanted:
                try:
                    records.append(elections.elect(image, topic_partition, election))
                except BrokerError as error:
                    is_needless = error.code == ErrorCode.ELECTION_NOT_NEEDED
                    if partitions is not None or not is_needless:
                        outcomes.append((topic_partition, error))
                else:
                    outcomes.append((topic_partition, None))
            return records, outcomes

        return self._changes.submit(decide)

    def reassign(
        self, wanted: Sequence[Reassignment], *, allow_factor_change: bool = True
    ) -> asyncio.Future[list[Outcome]]:
        """Start, replace or cancel moves; the outcome of each, in order."""

        def decide() -> Decision[list[Outcome]]:
            image = self._changes.image
            records: list[MetadataRecord] = []
            outcomes: list[Outcome] = []
            seen: set[tuple[str, int]] = set()
            for each in wanted:
                try:
                    if (each.topic, each.partition) in seen:
                        raise BrokerError(ErrorCode.INVALID_REQUEST, "the partition is named twice in one request")
                    seen.add((each.topic, each.partition))
                    records += reassignment.reassign(
                        image, each, allow_factor_change=allow_factor_change, config=self._config
                    )
                except BrokerError as error:
                    outcomes.append(error)
                else:
                    outcomes.append(None)
            return records, outcomes

        return self._changes.submit(decide)

    def assign_directories(
        self, node: int, broker_epoch: int, wanted: Sequence[DirectoryAssignment]
    ) -> asyncio.Future[list[ErrorCode]]:
        """Record the log directories of a broker's replicas. Returns the error code of each, in order."""

        def decide() -> Decision[list[ErrorCode]]:
            image = self._changes.image
            brokers.check_epoch(image, node, broker_epoch)
            records: list[MetadataRecord] = []
            errors: list[ErrorCode] = []
            for each in wanted:
                error, made = _assign_directory(image, node, each)
                errors.append(error)
                if made is not None:
                    records.append(made)
            # A replica that is back in a directory can lead again.
            after = image_after(image, records)
            return [*records, *elections.elect_for_leaderless(after, config=self._config)], errors

        return self._changes.submit(decide)


def _assign_directory(
    image: ClusterImage, node: int, wanted: DirectoryAssignment
) -> tuple[ErrorCode, ChangePartition | None]:
    topic = image.topic_by_id(wanted.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID, None
    state = topic.partitions.get(wanted.partition)
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    if node not in state.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
    directories = tuple(
        wanted.directory if replica == node else state.directory_of(replica) for replica in state.replicas
    )
    if directories == state.directories:
        return ErrorCode.NONE, None
    change = ChangePartition(topic_id=wanted.topic_id, partition=wanted.partition, directories=directories)
    return ErrorCode.NONE, change
