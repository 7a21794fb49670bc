"""Dead letters that the broker writes for share groups (KIP-1191), in the form that Kafka writes them.

The leader of the records' partition writes them to the topic that the group names, and only then archives the records.
A failover in between writes them again. They are text headers; with `errors.deadletterqueue.copy.record.enable` also
the key and the value, and with our own `errors.deadletterqueue.copy.headers.enable` the record's headers before them.

| problem | then |
|---|---|
| no leader, not enough replicas, no answer | try again, for a minute at most |
| the batch is too large | write one record at a time; if that one is too large, or unreadable, without the copy |
| no topic of this name; `errors.deadletterqueue.group.enable` of the topic is false; anything else | no dead letter |

What has no dead letter in the end is archived, as without a topic, and the broker logs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from broker_embedded.common.clock import client_timer
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.group_settings import EffectiveGroupSettings
from broker_embedded.common.types import INTERNAL_TOPICS, TopicPartition
from broker_embedded.replication.broker_parts import BrokerParts
from broker_embedded.replication.partition import Partition
from ottla_wire.protocol import ApiKey, ErrorCode, ProtocolError
from ottla_wire.protocol.message import Message
from ottla_wire.records import RecordData, decode_batch, encode_batch, iter_batches

from .events import WriteDeadLetters

log = logging.getLogger(__name__)

PATIENCE_S: Final = 60.0
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.05, 5.0
CHANNEL: Final = "share-dead-letters"
AT_ONCE: Final = 100
"""Dead letters of one request."""

_BYTES_AT_ONCE: Final = 512 * 1024
_PRODUCE_VERSION: Final = 11
_RETRIED: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class CreatesTopics(Protocol):
    """Makes a topic, and calls back when that is done or has failed."""

    def __call__(self, name: str, configs: Mapping[str, str], on_done: Callable[[], None], /) -> None: ...


class DeadLetterWriter:
    """Writes the dead letters of one broker. `write` calls back once, after all records are written or given up."""

    def __init__(self, parts: BrokerParts, *, create_topic: CreatesTopics) -> None:
        self.parts = parts
        self.call_later = client_timer(parts.loop)
        self.create_topic = create_topic

    def write(
        self,
        source: Partition,
        letters: WriteDeadLetters,
        *,
        group_id: str,
        settings: EffectiveGroupSettings,
        on_done: Callable[[], None],
    ) -> None:
        """Write dead letters of records of `source`."""
        writing = _Writing(self, source, letters, group_id=group_id, settings=settings, on_done=on_done)
        self.parts.loop.call_soon(writing.go_on)  # not in the middle of a step of the share partition


class _Writing:
    """The dead letters of one range, some at a time."""

    def __init__(
        self,
        owner: DeadLetterWriter,
        source: Partition,
        letters: WriteDeadLetters,
        *,
        group_id: str,
        settings: EffectiveGroupSettings,
        on_done: Callable[[], None],
    ) -> None:
        self._owner = owner
        self._source = source
        self._letters = letters
        self._group_id = group_id
        self._settings = settings
        self._on_done = on_done
        self._next = letters.first
        self._sent_last = letters.first - 1
        self._copies = True
        self._at_once = AT_ONCE
        self._deadline_s = owner.parts.loop.time() + PATIENCE_S
        self._backoff_s = FIRST_BACKOFF_S
        self._is_created = False

    def go_on(self) -> None:
        """Write what is next, or end."""
        if self._next > self._letters.last:
            self._on_done()
            return
        topic = self._settings.errors_deadletterqueue_topic_name
        try:
            target = self._target(topic)
            if target is None:
                return
            leader, partition = target
            records = self._records()
            if not records:
                self._next = self._sent_last + 1
                self._owner.parts.loop.call_soon(self.go_on)
                return
            self._send(leader, partition, encode_batch(records))
        except BrokerError as error:
            self._failed(error.code, error.message)
        except OSError as error:
            self._failed(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        except ProtocolError as error:  # a record that cannot be read cannot be copied
            self._failed(ErrorCode.MESSAGE_TOO_LARGE, str(error))

    def _target(self, topic: str) -> tuple[int, TopicPartition] | None:
        """Return the leader and the partition to write to; None while the topic is being created."""
        if not topic:
            self._on_done()  # the setting was taken away meanwhile
            return None
        prefix = self._owner.parts.config().errors_deadletterqueue_topic_name_prefix
        if not topic.startswith(prefix):
            raise BrokerError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"its name does not begin with {prefix}, which is errors.deadletterqueue.topic.name.prefix",
            )
        image = self._owner.parts.metadata.image
        found = image.topic(topic)
        if found is None:
            if self._create(topic):
                return None
            if self._is_created:
                raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "the topic is being created")
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, "there is no such topic")
        if (
            topic in INTERNAL_TOPICS
            or not self._owner.parts.replicas.topic_config(topic).errors_deadletterqueue_group_enable
        ):
            raise BrokerError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, "errors.deadletterqueue.group.enable is false for the topic"
            )
        partition = TopicPartition(topic, self._source.topic_partition.partition % len(found.partitions))
        state = image.partition(partition)
        if state is None or not state.has_leader:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
        return state.leader, partition

    def _create(self, topic: str) -> bool:
        config = self._owner.parts.config()
        is_wanted = config.errors_deadletterqueue_auto_create_topics_enable
        if self._is_created or not is_wanted:
            return False
        self._is_created = True
        self._owner.create_topic(topic, {"errors.deadletterqueue.group.enable": "true"}, self.go_on)
        return True

    def _records(self) -> list[RecordData]:
        """Return the next dead letters. A record that is not there any more has none, if it was to be copied."""
        settings, letters = self._settings, self._letters
        copies = settings.errors_deadletterqueue_copy_record_enable
        keeps_headers = settings.errors_deadletterqueue_copy_headers_enable
        last = min(letters.last, self._next + self._at_once - 1)
        if not self._copies or not (copies or keeps_headers):
            originals = [RecordData(offset, 0, None, None) for offset in range(self._next, last + 1)]
        else:
            originals, last = self._originals(last)
        self._sent_last = last
        now_ms = self._owner.parts.clock.now_ms()
        found: list[RecordData] = []
        for number, original in enumerate(originals):
            own = list(original.headers) if keeps_headers else []
            found.append(
                RecordData(
                    number,
                    now_ms,
                    original.key if copies else None,
                    original.value if copies else None,
                    [*own, *self._headers(original.offset)],
                )
            )
        return found

    def _originals(self, last: int) -> tuple[list[RecordData], int]:
        """Read records to be copied, at least one batch of the log. Returns the last offset that was looked at too."""
        source = self._source.log
        stored = source.read(self._next, _BYTES_AT_ONCE, max_offset=source.high_watermark, at_least_one=True)
        data = b"".join(stored.buffers())
        found: list[RecordData] = []
        end = self._next
        for position, header in iter_batches(data):
            found += [each for each in decode_batch(data, position) if self._next <= each.offset <= last]
            end = header.next_offset
        return found, last if not data else min(last, max(end - 1, self._next))

    def _headers(self, offset: int) -> list[tuple[str, bytes]]:
        topic, partition = self._source.topic_partition
        letters = self._letters
        texts = {
            "topic": topic,
            "partition": str(partition),
            "offset": str(offset),
            "group": self._group_id,
            "delivery.count": str(letters.delivery_count),
            "message": letters.why.value,
        }
        return [(f"__dlq.errors.{name}", text.encode()) for name, text in texts.items()]

    def _send(self, leader: int, partition: TopicPartition, batch: bytes) -> None:
        data = {"index": partition.partition, "records": batch}
        body: dict[str, Any] = {
            "transactional_id": None,
            "acks": -1,
            "timeout_ms": int(PATIENCE_S * 1_000 / 2),
            "topic_data": [{"name": partition.topic, "partition_data": [data]}],
        }
        sent = self._owner.parts.peers.send(leader, ApiKey.PRODUCE, _PRODUCE_VERSION, body, channel=CHANNEL)

        def answered(future: asyncio.Future[Message]) -> None:
            if future.cancelled() or future.exception() is not None:
                self._failed(ErrorCode.NETWORK_EXCEPTION, f"broker {leader} did not answer")
                return
            answer = future.result().responses[0].partition_responses[0]
            code = ErrorCode.of(answer.error_code)
            if code is not ErrorCode.NONE:
                self._failed(code, answer.error_message or f"broker {leader} answered {code.name}")
                return
            self._next = self._sent_last + 1
            self._copies, self._at_once = True, AT_ONCE
            self._backoff_s = FIRST_BACKOFF_S
            self._owner.parts.loop.call_soon(self.go_on)

        sent.add_done_callback(answered)

    def _failed(self, code: ErrorCode, why: str) -> None:
        if code in _TOO_LARGE and self._copies:
            if self._sent_last > self._next:
                self._at_once = 1
            else:
                self._copies = False
            self._owner.parts.loop.call_soon(self.go_on)
            return
        if code in _RETRIED and self._owner.parts.loop.time() < self._deadline_s:
            self._owner.call_later(self._backoff_s, self.go_on)
            self._backoff_s = min(LONGEST_BACKOFF_S, 2 * self._backoff_s)
            return
        log.error(
            "share group %s: no dead letters of %s, offsets %d to %d, in %s: %s",
            self._group_id,
            self._source.topic_partition,
            self._next,
            self._letters.last,
            self._settings.errors_deadletterqueue_topic_name,
            why,
        )
        self._on_done()
