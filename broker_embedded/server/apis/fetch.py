"""Fetch (key 1), versions 4-18.

Answers at once when there are min_bytes to read, when a partition has an error, or when max_wait_ms is 0; otherwise it
waits in the purgatory until appends have brought the bytes, and is woken by the append itself. The response is built at
that moment. At least one whole batch is returned even if it is larger than every limit. Sessions (KIP-227) send only
what changed. A reader whose log diverged is told where (KIP-595). Bytes are handed over as stored: a fetch inside a
batch returns the whole batch. Not done: fetches by followers (replica ids are answered as consumers, up to the high
watermark), tiered storage, closest-replica reads (KIP-392).
"""

from __future__ import annotations

from typing import Any

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.purgatory.purgatory import DelayedOperation
from broker_embedded.replication.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, SessionPartition
from broker_embedded.replication.partition import Isolation, Partition
from broker_embedded.server.futures import Promise
from broker_embedded.server.registry import Body, RequestContext, Response, api
from broker_embedded.server.response_writer import HAS_SENDFILE
from broker_embedded.storage.log import LogSlice
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

UNLIMITED = 1 << 62

READ_BYTES = 1_048_576
"""What one response reads into memory: as much as clients want of a partition by default. Larger ranges, and what
exceeds this over all partitions, go from the file to the socket by sendfile. Measured with librdkafka, broker CPU per
GB: at 1 MB pread and one writev take 0.27 s and sendfile 0.33 to 0.42, at 8 MB they take 0.55 s and sendfile 0.23."""

SENDFILE_FROM = 64 * 1024
"""Smaller ranges are always read: a call for each would cost more than the copy."""


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return {"error_code": int(error.code), "responses": []}


@api(ApiKey.FETCH, versions=(4, 18), on_error=on_error)
def handle(ctx: RequestContext, request: Message) -> Response:
    session, wanted = _session_and_partitions(ctx, request)
    fetch = _Fetch(ctx, request, session, wanted)
    fetch.read()
    if fetch.must_answer_now or request.max_wait_ms <= 0 or not fetch.partitions:
        return fetch.body()
    return fetch.wait()


def _session_and_partitions(
    ctx: RequestContext, request: Message
) -> tuple[FetchSession | None, list[SessionPartition]]:
    """What this request reads: its own list, or what its session remembers."""
    uses_ids = ctx.api_version >= 13
    named = _named_partitions(request, uses_ids=uses_ids)
    sessions = ctx.broker.fetch_sessions
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):  # a full request, which ends the session it may name
        if request.session_id:
            sessions.remove(request.session_id)
        if request.session_epoch == FINAL_EPOCH or not named:
            return None, named
        session = sessions.create(uses_topic_ids=uses_ids)
        if session is not None:
            session.is_full_answer = True
            session.partitions = {(each.topic, each.partition): each for each in named}
        return session, named
    session = sessions.resume(request.session_id, request.session_epoch, uses_topic_ids=uses_ids)
    for each in named:
        known = session.partitions.get((each.topic, each.partition))
        if known is None:
            session.partitions[each.topic, each.partition] = each
        else:
            known.fetch_offset = each.fetch_offset
            known.max_bytes = each.max_bytes
            known.current_leader_epoch = each.current_leader_epoch
            known.last_fetched_epoch = each.last_fetched_epoch
    for topic in request.forgotten_topics_data:
        key = topic.topic_id if uses_ids else topic.topic
        for partition in topic.partitions:
            session.partitions.pop((key, partition), None)
    return session, list(session.partitions.values())


def _named_partitions(request: Message, *, uses_ids: bool) -> list[SessionPartition]:
    named = []
    for topic in request.topics:
        key = topic.topic_id if uses_ids else topic.topic
        for each in topic.partitions:
            entry = SessionPartition(key, each.partition)
            entry.fetch_offset = each.fetch_offset
            entry.max_bytes = each.partition_max_bytes
            entry.current_leader_epoch = each.current_leader_epoch
            entry.last_fetched_epoch = each.last_fetched_epoch
            named.append(entry)
    return named


class _Read:
    """What one partition has for this fetch."""

    __slots__ = ("body", "error", "is_divergent", "partition", "slice")

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.error = False
        self.is_divergent = False
        self.partition: Partition | None = None
        self.slice: LogSlice | None = None


class _Fetch(DelayedOperation[TopicPartition]):
    """One fetch request, answered now or when woken."""

    __slots__ = (
        "_available",
        "_isolation",
        "_promise",
        "_readers",
        "_reads",
        "_session",
        "_waited_bytes",
        "ctx",
        "must_answer_now",
        "partitions",
        "request",
    )

    def __init__(
        self, ctx: RequestContext, request: Message, session: FetchSession | None, partitions: list[SessionPartition]
    ) -> None:
        super().__init__()
        self.ctx = ctx
        self.request = request
        self.partitions = partitions
        self.must_answer_now = False
        self._session = session
        self._isolation = Isolation.READ_COMMITTED if request.isolation_level == 1 else Isolation.HIGH_WATERMARK
        self._promise: Promise[Body] | None = None
        self._available = 0
        self._waited_bytes = 0
        self._reads: list[_Read] = []
        self._readers: dict[TopicPartition, tuple[Partition, int]] = {}

    # --- reading

    def read(self) -> None:
        """Look at every partition. Bytes are found here, and read from the file when the response is built."""
        broker = self.ctx.broker
        names = broker.metadata.image.topic_names if self.ctx.api_version >= 13 else None
        budget = min(self.request.max_bytes, broker.config.fetch_max_bytes)
        self._reads = reads = []
        self._readers = {}
        available = 0
        must_answer = False
        at_least_one = True
        for wanted in self.partitions:
            name = wanted.topic if names is None else names.get(wanted.topic)  # type: ignore[arg-type]
            read = self._read_one(name, wanted, budget, at_least_one=at_least_one)  # type: ignore[arg-type]
            reads.append(read)
            if read.slice is not None and read.slice.size:
                size = read.slice.size
                available += size
                budget -= size
                at_least_one = False
            must_answer = must_answer or read.error or read.is_divergent
        self._available = available
        self.must_answer_now = must_answer or available >= self.request.min_bytes

    def _read_one(self, name: str | None, wanted: SessionPartition, budget: int, *, at_least_one: bool) -> _Read:
        partition: Partition | None = None
        try:
            if name is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
            topic_partition = TopicPartition(name, wanted.partition)
            faults = self.ctx.broker.faults
            if faults.is_armed and self._promise is None:  # once per request, not again when it is woken
                faults.check_partition(ApiKey.FETCH, self.ctx.client_id, self.request, name, wanted.partition)
            partition = self.ctx.broker.replicas.leader_partition(topic_partition)
            partition.check_leader_epoch(wanted.current_leader_epoch)
            log = partition.log
            limit = partition.read_limit(self._isolation)
            read = _Read(
                {
                    "partition_index": wanted.partition,
                    "error_code": 0,
                    "high_watermark": log.high_watermark,
                    "last_stable_offset": log.last_stable_offset,
                    "log_start_offset": log.log_start_offset,
                    "aborted_transactions": [] if self._isolation is Isolation.READ_COMMITTED else None,
                    "preferred_read_replica": -1,
                    "records": b"",
                }
            )
            read.partition = partition
            if wanted.last_fetched_epoch >= 0 and self._diverges(partition, wanted, read):
                return read
            offset = wanted.fetch_offset
            if offset < log.log_start_offset or offset > log.log_end_offset:
                raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
            if offset < limit and (budget > 0 or at_least_one):
                read.slice = log.read(
                    offset, max(0, min(wanted.max_bytes, budget)), max_offset=limit, at_least_one=at_least_one
                )
            self._readers[topic_partition] = (partition, offset)
            return read
        except BrokerError as error:
            return self._refused(name, wanted, partition, error)

    def _refused(
        self, name: str | None, wanted: SessionPartition, partition: Partition | None, error: BrokerError
    ) -> _Read:
        body: dict[str, Any] = {
            "partition_index": wanted.partition,
            "error_code": int(error.code),
            "high_watermark": -1,
            "last_stable_offset": -1,
            "log_start_offset": -1,
            "aborted_transactions": None,
            "records": b"",
        }
        if name is not None and error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            state = self.ctx.broker.metadata.image.partition(TopicPartition(name, wanted.partition))
            if state is not None:
                body["current_leader"] = {"leader_id": state.leader, "leader_epoch": state.leader_epoch}
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE and partition is not None:
            body["high_watermark"] = partition.high_watermark
            body["log_start_offset"] = partition.log_start_offset
        read = _Read(body)
        read.error = True
        return read

    @staticmethod
    def _diverges(partition: Partition, wanted: SessionPartition, read: _Read) -> bool:
        """Whether the reader's last batch is not in this log: then it is told where its log and ours part (KIP-595)."""
        end = partition.log.leader_epoch_end_offset(wanted.last_fetched_epoch)
        diverges = end.leader_epoch < wanted.last_fetched_epoch or end.end_offset < wanted.fetch_offset
        if diverges and end.end_offset >= 0:
            read.body["diverging_epoch"] = {"epoch": end.leader_epoch, "end_offset": end.end_offset}
            read.is_divergent = True
        return read.is_divergent

    # --- waiting

    def wait(self) -> Promise[Body]:
        """Wait for the missing bytes, at most max_wait_ms."""
        promise = self._promise = Promise()
        fetches = self.ctx.broker.replicas.fetches
        fetches.watch(self, self._readers, timeout_ms=self.request.max_wait_ms)
        promise.add_done_callback(self._forget_if_cancelled)
        return promise

    def _forget_if_cancelled(self, promise: Promise[Body]) -> None:
        if promise.cancelled():  # the client has gone
            self.ctx.broker.replicas.fetches.cancel(self)

    def is_satisfied(self, key: TopicPartition, amount: int) -> bool:
        partition, offset = self._readers[key]
        if partition.read_limit(self._isolation) <= offset and amount < UNLIMITED:
            return False  # appended, but not readable yet: an open transaction, or replicas that lag
        self._waited_bytes += amount
        min_bytes: int = self.request.min_bytes
        return self._available + self._waited_bytes >= min_bytes

    def on_complete(self) -> None:
        self.on_expire()

    def on_expire(self) -> None:
        assert self._promise is not None
        if self._promise.done():
            return
        try:
            self.read()
            body = self.body()
        except Exception as error:
            self._promise.set_exception(error)
        else:
            self._promise.set_result(body)

    # --- answering

    def body(self) -> Body:
        """The response; this is where bytes are read from the files."""
        session = self._session
        sends_all = session is None or session.is_full_answer
        # Bodies name every field of the version: the encoder fills gaps, but that costs 5 µs of a 30 µs request.
        key_name = "topic_id" if self.ctx.api_version >= 13 else "topic"
        topics: dict[str | bytes, list[dict[str, Any]]] = {}
        room = READ_BYTES
        for wanted, read in zip(self.partitions, self._reads, strict=True):
            body = read.body
            has_data = False
            if read.slice is not None and read.slice.size:
                has_data = True
                body["records"] = _records(read.slice, room=room)
                room -= read.slice.size
                if self._isolation is Isolation.READ_COMMITTED:
                    body["aborted_transactions"] = _aborted(read, wanted.fetch_offset)
            if session is not None:
                changed = _changed(wanted, body) or has_data or read.error or read.is_divergent
                if has_data:
                    session.rotate((wanted.topic, wanted.partition))
                if not (changed or sends_all):
                    continue
            partitions = topics.get(wanted.topic)
            if partitions is None:
                topics[wanted.topic] = [body]
            else:
                partitions.append(body)
        response: Body = {
            "throttle_time_ms": 0,
            "error_code": 0,
            "session_id": 0 if session is None else session.session_id,
            "responses": [{key_name: topic, "partitions": partitions} for topic, partitions in topics.items()],
        }
        if session is not None:
            session.is_full_answer = False
        if self.ctx.api_version >= 16:
            leaders = {
                read.body["current_leader"]["leader_id"] for read in self._reads if "current_leader" in read.body
            }
            if leaders:
                response["node_endpoints"] = self.ctx.broker.endpoints_of(leaders)
        return response


def _records(stored: LogSlice, *, room: int) -> list[Any]:
    """The bytes if there is room for them in memory, else the range, for the kernel to send."""
    if stored.size > room and stored.size >= SENDFILE_FROM and HAS_SENDFILE and stored.is_sendable:
        return [stored]
    return stored.buffers()


def _aborted(read: _Read, offset: int) -> list[dict[str, int]]:
    """The aborted transactions that a read_committed reader has to skip in the bytes it gets."""
    assert read.partition is not None
    assert read.slice is not None
    return [
        {"producer_id": each.producer_id, "first_offset": each.first_offset}
        for each in read.partition.log.aborted_transactions_in(read.slice, offset)
    ]


def _changed(wanted: SessionPartition, body: dict[str, Any]) -> bool:
    """Whether the offsets that the client was told last are old; remembers the new ones."""
    told = (wanted.high_watermark, wanted.last_stable_offset, wanted.log_start_offset)
    now = (body["high_watermark"], body["last_stable_offset"], body["log_start_offset"])
    wanted.high_watermark, wanted.last_stable_offset, wanted.log_start_offset = now
    return bool(told != now)
