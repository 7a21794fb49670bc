"""Reports to the controller where a broker's replicas are, and which log directory failed (KIP-858).

With several directories each replica is reported once it has its place, so that the controller knows which partitions
need another leader when a directory fails, and which replicas are empty when one has been replaced. With one directory
there is little to tell: when it fails the broker has nothing left and asks to be fenced; and where the metadata still
names a directory that the broker no longer has, it is told which one took its place, as nobody could lead from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from broker_embedded.common.peers import ControllerRequests
from broker_embedded.common.types import TopicPartition
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.metadata.delta import MetadataDelta
from broker_embedded.metadata.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, ClusterImage, PartitionImage
from broker_embedded.server.life.broker_lifecycle import BrokerLifecycle
from broker_embedded.storage.log import Log
from broker_embedded.storage.log_manager import LogManager
from ottla_wire.protocol import ApiKey
from ottla_wire.protocol.message import Message

log = logging.getLogger(__name__)

VERSION = 0
GATHER_MS = 50
"""Replicas that get their places within this time are reported together."""
RETRY_MS = 500


class LogDirReports:
    """The reports of one broker. At most one is under way."""

    def __init__(
        self,
        *,
        node_id: int,
        directory_ids: Mapping[str, bytes],
        logs: LogManager,
        metadata: MetadataCache,
        controller: ControllerRequests,
        lifecycle: BrokerLifecycle,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`directory_ids`: the id of each log directory, by path."""
        self._node_id = node_id
        self._directory_ids = directory_ids
        self._logs = logs
        self._metadata = metadata
        self._controller = controller
        self._lifecycle = lifecycle
        self._loop = loop
        self._unreported: set[TopicPartition] = set()
        self._failed: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_under_way = False
        self._is_closed = False
        self._has_begun = False
        logs.directories.add_listener(self._on_dir_failed)
        metadata.add_listener(self._on_metadata)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def moved(self, topic_partition: TopicPartition) -> None:
        """Report that a replica is in another directory now."""
        self._unreported.add(topic_partition)
        self._report_in(GATHER_MS)

    # --- what there is to report

    def _on_metadata(self, delta: MetadataDelta, image: ClusterImage) -> None:
        if self._has_begun:
            news = {name for name, state in delta.changed_partitions.items() if self._is_news(state)}
        else:
            registered = image.brokers.get(self._node_id)
            if registered is None or registered.epoch != self._lifecycle.epoch:
                return  # what it finds on its disks gets its place when this life of the broker has begun
            self._has_begun = True
            news = {
                TopicPartition(topic.name, state.partition)
                for topic in image.topics.values()
                for state in topic.partitions.values()
                if self._is_news(state)
            }
        if news:
            self._unreported.update(news)
            self._report_in(GATHER_MS)

    def _is_news(self, state: PartitionImage) -> bool:
        """Return whether the placement of this broker's replica may be unreported."""
        if self._node_id not in state.replicas:
            return False
        said = state.directory_of(self._node_id)
        if said == LOST_DIRECTORY and len(state.replicas) > 1:
            return False  # it is empty; who has copied everything again is noticed by the controller
        is_only_one = len(self._directory_ids) == 1
        return not is_only_one or not (said == UNASSIGNED_DIRECTORY or said in self._directory_ids.values())

    def _on_dir_failed(self, path: str, logs: Sequence[Log]) -> None:
        directory = self._directory_ids.get(path)
        if directory is None:
            return
        self._failed.append(directory)
        self._unreported.update(TopicPartition(each.topic, each.partition) for each in logs)
        self._report_in(0)

    def _report_in(self, delay_ms: int) -> None:
        if self._is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_ms / 1000, self._report)

    # --- reporting it

    def _report(self) -> None:
        """Send the replicas' directories first: the controller needs them to handle a failed directory."""
        self._timer = None
        if self._is_under_way or self._is_closed:
            return
        reported = set(self._unreported)
        directories = self._assignments(reported)
        is_any_left = len(self._failed) < len(self._directory_ids)
        if not directories or not is_any_left:
            self._unreported.clear()
            for directory in self._failed:
                self._lifecycle.log_dir_failed(directory)
            return
        body = {
            "broker_id": self._node_id,
            "broker_epoch": self._lifecycle.epoch,
            "directories": [{"id": directory, "topics": topics} for directory, topics in directories.items()],
        }
        self._is_under_way = True
        asked = self._controller.send(ApiKey.ASSIGN_REPLICAS_TO_DIRS, VERSION, body)
        asked.add_done_callback(lambda done: self._answered(done, reported))

    def _answered(self, done: asyncio.Future[Message], reported: set[TopicPartition]) -> None:
        self._is_under_way = False
        if done.cancelled() or done.exception() is not None or done.result().error_code:
            log.info("broker %d: the controller does not take where replicas are; it is told again", self._node_id)
            self._report_in(RETRY_MS)
            return
        self._unreported -= reported
        if self._unreported or self._failed:
            self._report_in(0)

    def _assignments(self, names: set[TopicPartition]) -> dict[bytes, list[dict[str, Any]]]:
        """Return by directory the replicas whose placement the metadata lacks."""
        image = self._metadata.image
        topics: dict[bytes, dict[bytes, list[dict[str, int]]]] = {}
        for topic_partition in sorted(names):
            state = image.partition(topic_partition)
            replica = self._logs.get(*topic_partition)
            if state is None or replica is None or not self._is_news(state):
                continue
            directory = self._directory_ids.get(replica.directory.rpartition("/")[0])
            if directory is None or state.directory_of(self._node_id) == directory:
                continue
            topic_id = image.topics[topic_partition.topic].topic_id
            partitions = topics.setdefault(directory, {}).setdefault(topic_id, [])
            partitions.append({"partition_index": topic_partition.partition})
        return {
            directory: [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in found.items()]
            for directory, found in topics.items()
        }
