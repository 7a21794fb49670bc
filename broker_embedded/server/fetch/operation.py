"""One Fetch request of a consumer: reads, waits for enough data, responds. `follower` serves followers. Costs
are per requested partition and per byte range found."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import Promise
from broker_embedded.common.types import TopicPartition
from broker_embedded.purgatory.purgatory import DelayedOperation
from broker_embedded.replication.fetch_session import FetchSession, SessionPartition
from broker_embedded.replication.partition import Isolation, Partition
from broker_embedded.replication.replica_manager import LEADERSHIP_CHANGED
from broker_embedded.replication.replica_selector import RACK_AWARE_SELECTOR, preferred_read_replica
from broker_embedded.server.handling.endpoints import current_leader, leader_endpoints
from broker_embedded.server.net.response_writer import HAS_SENDFILE
from broker_embedded.server.requests.context import Body, RequestContext
from broker_embedded.storage.log_slice import LogSlice
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import (
        HasAuthorization,
        HasClock,
        HasConfig,
        HasFaults,
        HasFetchSessions,
        HasMetadata,
        HasQuotas,
        HasReplicas,
    )

    class FetchNeeds(
        HasReplicas,
        HasMetadata,
        HasFetchSessions,
        HasConfig,
        HasClock,
        HasQuotas,
        HasAuthorization,
        HasFaults,
        Protocol,
    ): ...


RACKS_FROM = 11
"""The first version whose clients can read from followers."""

READ_BYTES = 1_048_576
"""What one response reads into memory: as much as clients want of a partition by default. Larger ranges, and what
exceeds this over all partitions, go from the file to the socket by sendfile. Measured with librdkafka, broker CPU per
GB: at 1 MB pread and one writev take 0.27 s and sendfile 0.33 to 0.42, at 8 MB they take 0.55 s and sendfile 0.23."""

SENDFILE_FROM = 64 * 1024
"""Smaller ranges are always read: a call for each would cost more than the copy."""

Find = Callable[[TopicPartition], Partition]


class PartitionRead:
    """Data of one partition for this fetch."""

    __slots__ = ("body", "must_answer", "partition", "slice")

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.must_answer = False
        """An error, or state that the reader needs before it can continue."""
        self.partition: Partition | None = None
        self.slice: LogSlice | None = None


class Fetch(DelayedOperation[TopicPartition]):
    """A request, answered now or when woken."""

    __slots__ = (
        "_available",
        "_find",
        "_isolation",
        "_promise",
        "_readers",
        "_reads",
        "_recounted",
        "_session",
        "_waited_bytes",
        "ctx",
        "must_answer_now",
        "partitions",
        "request",
    )

    def __init__(
        self,
        ctx: RequestContext[FetchNeeds],
        request: Message,
        session: FetchSession | None,
        partitions: list[SessionPartition],
    ) -> None:
        super().__init__()
        self.ctx = ctx
        self.request = request
        self.partitions = partitions
        self.must_answer_now = False
        self._session = session
        replicas = ctx.services.replicas
        reads_from_followers = ctx.api_version >= RACKS_FROM
        self._find: Find = replicas.readable_partition if reads_from_followers else replicas.leader_partition
        if ctx.rights is not None:
            self._find = self._allowed(self._find)
        self._isolation = Isolation.READ_COMMITTED if request.isolation_level == 1 else Isolation.HIGH_WATERMARK
        self._promise: Promise[Body] | None = None
        self._available = 0
        self._waited_bytes = 0
        self._reads: list[PartitionRead | None] = []
        """One per partition; None without anything to report."""
        self._readers: dict[TopicPartition, tuple[Partition, SessionPartition, int]] = {}
        self._recounted: dict[TopicPartition, int] | None = None

    def _allowed(self, find: Find) -> Find:
        """Find topics that the client may read, at the time when they are read."""

        def find_allowed(topic_partition: TopicPartition) -> Partition:
            if self.ctx.rights is not None:
                require(self.ctx.rights, AclOperation.READ, AclResource.TOPIC, topic_partition.topic)
            return find(topic_partition)

        from broker_embedded.metadata.acls import AclOperation, AclResource  # where there is an authorizer
        from broker_embedded.security.refusal import require

        return find_allowed

    @property
    def reads_nothing(self) -> bool:
        """Return whether there is nothing to wait for."""
        return not self.partitions

    # --- reading

    def read(self) -> None:
        """Read every partition. Byte ranges are located here, and read from the file when the response is built."""
        services = self.ctx.services
        names = services.metadata.image.topic_names if self.ctx.api_version >= 13 else None
        budget = min(self.request.max_bytes, services.config.fetch_max_bytes)
        if services.quotas is not None:
            budget = services.quotas.fetchable(self.ctx.connection, self.ctx.client_id, budget)
        min_bytes = min(self.request.min_bytes, budget)
        self._reads = reads = []
        self._readers = {}
        available = 0
        must_answer = False
        at_least_one = True
        for wanted in self.partitions:
            name = wanted.topic if names is None else names.get(wanted.topic)  # type: ignore[arg-type]
            read = self._read_one(name, wanted, budget, at_least_one=at_least_one)  # type: ignore[arg-type]
            reads.append(read)
            if read is None:
                continue
            if read.slice is not None and read.slice.size:
                size = read.slice.size
                available += size
                budget -= size
                at_least_one = False
            must_answer = must_answer or read.must_answer
        self._available = available
        self.must_answer_now = must_answer or available >= min_bytes

    def _read_one(
        self, name: str | None, wanted: SessionPartition, budget: int, *, at_least_one: bool
    ) -> PartitionRead | None:
        partition: Partition | None = None
        try:
            if name is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
            topic_partition = TopicPartition(name, wanted.partition)
            faults = self.ctx.services.faults
            if faults.is_armed and self._promise is None:  # once per request, not again when it is woken
                faults.check_partition(ApiKey.FETCH, self.ctx.client_id, self.request, name, wanted.partition)
            partition = self._find(topic_partition)
            partition.check_leader_epoch(wanted.current_leader_epoch)
            log = partition.log
            limit = partition.read_limit(self._isolation)
            read = PartitionRead(
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
            if partition.leading is not None and self._is_answered_without_records(partition, wanted, read):
                return read
            if offset < limit and (budget > 0 or at_least_one):
                read.slice = log.read(
                    offset, max(0, min(wanted.max_bytes, budget)), max_offset=limit, at_least_one=at_least_one
                )
            self._readers[topic_partition] = (partition, wanted, 0 if read.slice is None else read.slice.size)
            return read
        except BrokerError as error:
            return self._refused(name, wanted, partition, error)
        except OSError as error:
            return self._unreadable(wanted, partition, error)

    def _unreadable(self, wanted: SessionPartition, partition: Partition | None, error: OSError) -> PartitionRead:
        """Return the error of a partition whose disk failed; the others are answered."""
        assert partition is not None  # nothing is read before it is found
        refused = partition.log.failed(error, path=partition.log.directory, doing="reading")
        return self._refused(None, wanted, partition, refused)

    def _is_answered_without_records(self, partition: Partition, wanted: SessionPartition, read: PartitionRead) -> bool:
        """Return whether the consumer should read from another replica, in its own rack (KIP-392)."""
        services = self.ctx.services
        if services.config.replica_selector_class != RACK_AWARE_SELECTOR:
            return False
        preferred = preferred_read_replica(
            partition,
            services.metadata.image,
            rack_id=self.request.rack_id,
            offset=wanted.fetch_offset,
            now_ms=services.clock.monotonic_ms(),
        )
        if preferred == partition.node_id:
            return False
        read.body["preferred_read_replica"] = preferred
        read.must_answer = True
        return True

    def _refused(
        self, name: str | None, wanted: SessionPartition, partition: Partition | None, error: BrokerError
    ) -> PartitionRead:
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
            body.update(current_leader(self.ctx.services.metadata.image, TopicPartition(name, wanted.partition)))
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE and partition is not None:
            body["high_watermark"] = partition.high_watermark
            body["log_start_offset"] = partition.log_start_offset
        read = PartitionRead(body)
        read.must_answer = True
        return read

    @staticmethod
    def _diverges(partition: Partition, wanted: SessionPartition, read: PartitionRead) -> bool:
        """Return whether the reader's last batch is not in this log; the response then has the point of divergence
        (KIP-595).
        """
        end = partition.log.leader_epoch_end_offset(wanted.last_fetched_epoch)
        if end.leader_epoch < 0:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{partition.topic_partition}: leader epoch {wanted.last_fetched_epoch} is unknown here",
            )
        diverges = end.leader_epoch < wanted.last_fetched_epoch or end.end_offset < wanted.fetch_offset
        if diverges:
            read.body["diverging_epoch"] = {"epoch": end.leader_epoch, "end_offset": end.end_offset}
            read.must_answer = True
        return diverges

    # --- waiting

    def wait(self) -> Promise[Body]:
        """Wait for the missing bytes, at most max_wait_ms."""
        promise = self._promise = Promise()
        self._watch()
        promise.add_done_callback(self._forget_if_cancelled)
        return promise

    def _watch(self) -> None:
        self.ctx.services.replicas.fetches.watch(self, self._readers, timeout_ms=self.request.max_wait_ms)

    def _forget_if_cancelled(self, promise: Promise[Body]) -> None:
        if promise.cancelled():  # the client has gone
            self.ctx.services.replicas.fetches.cancel(self)

    def is_satisfied(self, key: TopicPartition, amount: int) -> bool:
        if amount >= LEADERSHIP_CHANGED:
            return True
        partition, wanted, _ = self._readers[key]
        if partition.read_limit(self._isolation) <= wanted.fetch_offset:
            return False  # appended, but not readable yet: an open transaction, or replicas that lag
        if partition.leading is not None or not partition.is_leader:
            amount = self._newly_readable(key)  # what was appended is not what the high watermark has passed
        self._waited_bytes += amount
        min_bytes: int = self.request.min_bytes
        return self._available + self._waited_bytes >= min_bytes

    def _newly_readable(self, key: TopicPartition) -> int:
        """Return how many bytes of a replicated partition became readable since it was counted last."""
        partition, wanted, size = self._readers[key]
        try:
            readable = partition.log.read(
                wanted.fetch_offset, wanted.max_bytes, max_offset=partition.read_limit(self._isolation)
            ).size
        except BrokerError:  # cut off meanwhile: the reader gets the error when its answer is built
            return LEADERSHIP_CHANGED
        if self._recounted is None:
            self._recounted = {}
        counted = self._recounted.get(key, size)
        self._recounted[key] = readable
        return readable - counted

    def on_complete(self) -> None:
        self.on_expire()

    def on_expire(self) -> None:
        assert self._promise is not None
        if self._promise.done():
            return
        try:
            self.read()
            body = self.answer()
        except Exception as error:
            self._promise.set_exception(error)
        else:
            self._promise.set_result(body)

    # --- answering

    def answer(self) -> Body:
        """Return the response, without records if they exceed the client's quota now."""
        quotas = self.ctx.services.quotas
        if quotas is not None:
            throttle_ms = quotas.fetched(self.ctx.connection, self.ctx.client_id, self._available)
            if throttle_ms:
                return self._throttled(throttle_ms)
        return self.body()

    def _throttled(self, throttle_ms: int) -> Body:
        """Return an empty response with the throttle time. A session that would begin with it does not: the client has
        to learn of all its partitions first."""
        session = self._session
        session_id = 0 if session is None else session.session_id
        if session is not None and session.is_full_answer:
            self.ctx.services.fetch_sessions.remove(session_id)
            session_id = 0
        return {"throttle_time_ms": throttle_ms, "error_code": 0, "session_id": session_id, "responses": []}

    def body(self) -> Body:
        """Return the response; this is where bytes are read from the files."""
        session = self._session
        sends_all = session is None or session.is_full_answer
        # Bodies name every field of the version: the encoder fills gaps, but that costs 5 µs of a 30 µs request.
        key_name = "topic_id" if self.ctx.api_version >= 13 else "topic"
        topics: dict[str | bytes, list[dict[str, Any]]] = {}
        room = READ_BYTES
        for wanted, read in zip(self.partitions, self._reads, strict=True):
            if read is None:
                continue
            body = read.body
            has_data = False
            if read.slice is not None and read.slice.size:
                has_data = True
                try:
                    body["records"] = _records(read.slice, room=room)
                    if self._isolation is Isolation.READ_COMMITTED:
                        body["aborted_transactions"] = _aborted(read, wanted.fetch_offset)
                except OSError as error:
                    body = read.body = self._unreadable(wanted, read.partition, error).body
                room -= read.slice.size
            if session is not None:
                changed = _changed(wanted, body) or has_data or read.must_answer
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
            bodies = (read.body for read in self._reads if read is not None)
            endpoints = leader_endpoints(self.ctx.services.metadata.image, bodies)
            if endpoints:
                response["node_endpoints"] = endpoints
        return response


def _records(stored: LogSlice, *, room: int) -> list[Any]:
    """Return the bytes if there is room for them in memory, else the range, for the kernel to send."""
    if stored.size > room and stored.size >= SENDFILE_FROM and HAS_SENDFILE and stored.is_sendable:
        return [stored]
    return stored.buffers()


def _aborted(read: PartitionRead, offset: int) -> list[dict[str, int]]:
    """Return the aborted transactions that a read_committed reader has to skip in the bytes it gets."""
    assert read.partition is not None
    assert read.slice is not None
    return [
        {"producer_id": each.producer_id, "first_offset": each.first_offset}
        for each in read.partition.log.aborted_transactions_in(read.slice, offset)
    ]


def _changed(wanted: SessionPartition, body: dict[str, Any]) -> bool:
    """Return whether the last reported offsets are outdated; remembers the new ones."""
    sent = (wanted.high_watermark, wanted.last_stable_offset, wanted.log_start_offset)
    now = (body["high_watermark"], body["last_stable_offset"], body["log_start_offset"])
    wanted.high_watermark, wanted.last_stable_offset, wanted.log_start_offset = now
    return bool(sent != now)
