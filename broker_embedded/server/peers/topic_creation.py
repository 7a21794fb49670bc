"""Topics that nobody asked an administrator for: those a client names, and those that coordinators keep their state in.

The controller creates them, wherever it is. The answer waits until this broker's own metadata shows them, so that a
client need not ask again; if that takes long, the client is sent on its way and asks again after all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.peers import ControllerRequests
from broker_embedded.common.promises import Promise, map_result, settle
from broker_embedded.common.types import GROUP_METADATA_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from broker_embedded.controller.requests import NewTopic, TopicResult
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.metadata.delta import MetadataDelta
from broker_embedded.metadata.image import ClusterImage
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

VERSION = 7
PATIENCE_MS = 1_000
CONTROLLER_PATIENCE_MS = 5_000
"""How long a client's request for a missing topic waits while there is no controller; then the client retries."""


class TopicCreation:
    """Asks the controller for topics on behalf of one broker."""

    def __init__(
        self,
        *,
        controller: ControllerRequests,
        metadata: MetadataCache,
        config: Callable[[], BrokerConfig],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._controller = controller
        self._metadata = metadata
        self._config = config
        self._loop = loop

    def create(self, names: Iterable[str]) -> Promise[list[TopicResult]]:
        """Create topics with the broker's defaults, internal ones as they have to be; each has its own result."""
        return self._create([self._internal(name) or NewTopic(name=name) for name in dict.fromkeys(names)])

    def create_with(self, name: str, configs: Mapping[str, str], on_done: Callable[[], None]) -> None:
        """Create a topic with these settings; `on_done` is called when it exists, or could not be created."""
        map_result(self._create([NewTopic(name=name, configs=dict(configs))]), lambda _: on_done())

    def _create(self, wanted: list[NewTopic]) -> Promise[list[TopicResult]]:
        answered: Promise[list[TopicResult]] = Promise()
        body = {"topics": [_topic(each) for each in wanted], "timeout_ms": 10_000, "validate_only": False}

        def created(done: asyncio.Future[Message]) -> None:
            if done.cancelled() or done.exception() is not None:
                error = BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "no controller could create the topic now")
                answered.set_result([TopicResult(name=each.name, error=error) for each in wanted])
                return
            results = [_result(each) for each in done.result().topics]
            # What another client was faster to create is on its way to this broker as well.
            there = {
                each.name for each in results if each.error is None or each.error.code == ErrorCode.TOPIC_ALREADY_EXISTS
            }
            self._when_known(there, lambda: answered.set_result(results))

        asked = self._controller.send(ApiKey.CREATE_TOPICS, VERSION, body, timeout_ms=CONTROLLER_PATIENCE_MS)
        asked.add_done_callback(created)
        return answered

    def ensure_internal(self, name: str) -> Promise[None]:
        """Create an internal topic if it is missing. Raises BrokerError if that fails."""
        ready: Promise[None] = Promise()
        if name in self._metadata.image.topics:
            ready.set_result(None)
            return ready

        def created(results: list[TopicResult]) -> None:
            error = results[0].error
            if error is None or error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                self._when_known({name}, lambda: ready.set_result(None))
            else:
                ready.set_exception(error)

        map_result(self.create([name]), created)
        return ready

    def _when_known(self, names: set[str], act: Callable[[], None]) -> None:
        waited = until(
            self._metadata,
            lambda image: all(name in image.topics for name in names),
            loop=self._loop,
            timeout_ms=PATIENCE_MS,
        )
        if waited.done():
            act()
        else:
            # Not in the middle of the other listeners' work: what the answer leads to finds the new leaders in place.
            waited.add_done_callback(self._later(act))

    def _later(self, act: Callable[[], None]) -> Callable[[object], None]:
        def call(_: object) -> None:
            self._loop.call_soon(act)

        return call

    # --- internal topics

    def _internal(self, name: str) -> NewTopic | None:
        config = self._config()
        brokers = len(self._metadata.image.live_brokers())
        configs: Mapping[str, str]
        cleanup_policy = "compact"
        if name == GROUP_METADATA_TOPIC:
            partitions = config.offsets_topic_num_partitions
            factor = config.offsets_topic_replication_factor
            configs = {"segment.bytes": str(config.offsets_topic_segment_bytes), "compression.type": "producer"}
        elif name == TRANSACTION_STATE_TOPIC:
            partitions = config.transaction_state_log_num_partitions
            factor = config.transaction_state_log_replication_factor
            bearable = max(1, min(factor, brokers) - 1)
            configs = {
                "compression.type": "uncompressed",
                "unclean.leader.election.enable": "false",
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "min.insync.replicas": str(min(config.transaction_state_log_min_isr, bearable)),
            }
        elif name == SHARE_STATE_TOPIC:
            partitions = config.share_coordinator_state_topic_num_partitions
            factor = config.share_coordinator_state_topic_replication_factor
            bearable = max(1, min(factor, brokers) - 1)
            cleanup_policy = "delete"
            configs = {
                "retention.ms": "-1",
                "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
                "min.insync.replicas": str(min(config.share_coordinator_state_topic_min_isr, bearable)),
            }
        else:
            return None
        return NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=min(factor, brokers),
            configs={"cleanup.policy": cleanup_policy, **configs},
        )


def _topic(topic: NewTopic) -> dict[str, object]:
    return {
        "name": topic.name,
        "num_partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "assignments": [],
        "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
    }


def _result(answer: Message) -> TopicResult:
    if answer.error_code:
        return TopicResult(
            name=answer.name, error=BrokerError(ErrorCode(answer.error_code), answer.error_message or "")
        )
    return TopicResult(
        name=answer.name,
        topic_id=answer.topic_id,
        partitions=answer.num_partitions,
        replication_factor=answer.replication_factor,
    )


def until(
    metadata: MetadataCache,
    condition: Callable[[ClusterImage], bool],
    *,
    loop: asyncio.AbstractEventLoop,
    timeout_ms: int,
) -> Promise[bool]:
    """Return a promise that resolves to True when the image fulfils `condition`, or to False after the timeout."""
    promise: Promise[bool] = Promise()
    if condition(metadata.image):
        promise.set_result(True)
        return promise

    def look(delta: MetadataDelta, image: ClusterImage) -> None:
        if not promise.done() and condition(image):
            promise.set_result(True)

    def clean_up(_: Promise[bool]) -> None:
        timer.cancel()
        metadata.remove_listener(look)

    timer = loop.call_later(timeout_ms / 1000, settle, promise, False)
    metadata.add_listener(look)
    promise.add_done_callback(clean_up)
    return promise
