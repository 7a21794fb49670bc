"""`Consumer`: records by iterating or polling, with everything that handlers have underneath.

    with Consumer("orders", group="billing", bootstrap_servers="localhost:9092", value=Avro(Order)) as consumer:
        for record in consumer:
            charge(record.value)             # done when the next record is asked for

    for record in consumer.poll(timeout_s=1.0, max_records=100):
        charge(record.value)
        consumer.ack(record)

Polling the client, heartbeats and commits run in the background, so the time between two calls does not matter to the
group. Records come fairly from all partitions. With a `dead_letter_topic`, what cannot be decoded goes there and is not
seen here; without one it is given out as a record whose value is a `Malformed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, ClassVar, Self, Unpack, overload

from ottla.app.handler.handler_options import RENAMED_OPTIONS, ConsumerOptions, Value
from ottla.app.pull.pull_consumer import PullConsumer
from ottla.config.arguments import explained
from ottla.consumer.model.run import Run
from ottla.consumer.pulled.transactional_reads import refuse_to_settle
from ottla.quantities import Span
from ottla.records import Malformed, Record, TopicPartition
from ottla.serdes.base import SerdeOf
from ottla.stepping import run
from ottla.sync.client.declared_topics import ensure_topics
from ottla.sync.consume.dead_letters import ProducerSink
from ottla.sync.consume.group_member import GroupMember
from ottla.typevars import Builtin, V_co


class Consumer(PullConsumer[V_co]):
    """A member of a group. Starts with the first record asked for, or as a context manager. One thread uses it.

    `token` is a function, sync or async, that returns an `ottla.tokens.Token` for SASL OAUTHBEARER.

    For type checkers it is generic in what `record.value` is: `Consumer[Order]`, and without a `dead_letter_topic`
    `Consumer[Order | Malformed]`. A tombstone is None in every serde: where there are some, say
    `value=Json[Order | None](Order)`.
    """

    _member_type = GroupMember
    _sink_type = ProducerSink
    _ensure_topics = staticmethod(ensure_topics)
    _left_behind: ClassVar[str] = "threads and connections"
    _member: GroupMember

    @overload
    def __init__(
        self: Consumer[bytes],
        *topics: str,
        value: None = None,
        dead_letter_topic: str | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Value],
        *topics: str,
        value: SerdeOf[Value],
        dead_letter_topic: str,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Value | Malformed],
        *topics: str,
        value: SerdeOf[Value],
        dead_letter_topic: None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Builtin],
        *topics: str,
        value: type[Builtin],
        dead_letter_topic: str,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Builtin | Malformed],
        *topics: str,
        value: type[Builtin],
        dead_letter_topic: None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @explained("Consumer", renamed=RENAMED_OPTIONS)
    def __init__(self, *topics: str, **options: Any) -> None:
        super().__init__(*topics, **options)

    __init__.__wrapped__ = PullConsumer.__init__  # type: ignore[attr-defined]  # whose arguments `help` shows

    def __iter__(self) -> Iterator[Record[V_co]]:
        """Yield records without end. A record is done when the next one is asked for; leaving the loop at a record
        leaves it open (it will be delivered again), unless you `ack` it first."""
        while not self._is_closed:
            yield from self._given(run(self._taking()))

    def poll(self, timeout_s: Span = 1.0, *, max_records: int | None = None) -> list[Record[V_co]]:
        return run(self._polling(timeout_s, max_records))

    def commit(self) -> None:
        refuse_to_settle(self._reads)
        self._member.commit_now()

    def start(self) -> Self:
        run(self._starting())
        return self

    def close(self) -> None:
        run(self._closing())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _join_transaction(
        self, records: Iterable[Record[Any]], owner: object
    ) -> tuple[dict[TopicPartition, int], bytes]:
        offsets, epochs = self._offsets_joining(records, owner)
        return offsets, self._member.membership(epochs)

    def seek_to_time(self, topic_partition: TopicPartition, timestamp_ms: int) -> int:
        return self._member.seek_to_time(topic_partition, timestamp_ms)

    def _decode(self, run: Run) -> Any:
        return self._decoder.decode(run)
