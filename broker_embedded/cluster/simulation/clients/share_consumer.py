"""A member of a share group that leases records of one partition: one session, with the leader of the moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from broker_embedded.cluster.simulation.clients.client import LEADER_ERRORS, Client, RequestRefused, TryAgain
from broker_embedded.cluster.simulation.clients.connection import NoAnswer
from ottla_wire.facts import fact
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message
from ottla_wire.records.batch import iter_batches
from ottla_wire.records.record import RecordData, decode_batch

GROUP = 0
MAX_WAIT_MS = 500
MAX_RECORDS = 50
_SESSION_ERRORS = (
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
)


@fact
class LeasedRecords:
    """A record, and the number of its delivery."""

    record: RecordData
    delivery_count: int


class SimulatedShareConsumer:
    """`heartbeat` keeps it in its group; `fetch` leases, and settles what was leased before; `renew` keeps leases."""

    def __init__(self, client: Client, *, group: str, member_id: str, topic: str, partition: int) -> None:
        self.group = group
        self._client = client
        self._member_id = member_id
        self._topic = topic
        self._partition = partition
        self._topic_id = b""
        self._member_epoch = 0
        self._session_epoch = 0
        self._leader = -1

    async def heartbeat(self) -> None:
        """Join, or stay. A member that the coordinator does not know joins again."""

        async def attempt() -> None:
            body = {
                "group_id": self.group,
                "member_id": self._member_id,
                "member_epoch": self._member_epoch,
                "rack_id": None,
                "subscribed_topic_names": [self._topic] if self._member_epoch == 0 else None,
            }
            answer = await self._client.ask_coordinator(self.group, GROUP, ApiKey.SHARE_GROUP_HEARTBEAT, 1, body)
            known = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
            if answer.error_code in known:
                self._member_epoch = 0
                raise TryAgain("it joins again")
            self._client.check_coordinator_error(answer.error_code, self.group, GROUP, f"group {self.group}, heartbeat")
            self._member_epoch = answer.member_epoch

        await self._client.until_done(attempt)

    async def fetch(self, accepted: Iterable[int], released: Iterable[int]) -> tuple[list[LeasedRecords], bool]:
        """Settle these offsets and lease more. Returns what was leased, and whether the leader has kept the outcome.

        A session that ended loses its leases: then nothing is said of them, and nothing was kept.
        """
        client = self._client
        if not self._topic_id:
            self._topic_id = await client.until_done(self._find_topic_id)
        leader = await client.until_done(lambda: client.leader(self._topic, self._partition))
        if leader != self._leader:
            self._leader, self._session_epoch = leader, 0
        says_something = self._session_epoch > 0
        kinds = {**dict.fromkeys(accepted, 1), **dict.fromkeys(released, 2)}
        acknowledgements = _batches(kinds) if says_something else []
        try:
            answer = await client.ask(leader, ApiKey.SHARE_FETCH, 1, self._body(acknowledgements))
        except NoAnswer:
            self._start_again()
            return [], False
        if answer.error_code in _SESSION_ERRORS:
            self._session_epoch = 0
            return [], False
        if answer.error_code:
            raise RequestRefused(answer.error_code, f"{client.name} leases {self._topic}-{self._partition}")
        self._session_epoch += 1
        found = [part for topic in answer.responses for part in topic.partitions]
        if not found:
            return [], says_something
        (part,) = found
        if part.error_code in LEADER_ERRORS or part.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
            self._start_again()
        return _leased(part), says_something and part.acknowledge_error_code == ErrorCode.NONE

    async def renew(self, offsets: Iterable[int]) -> None:
        """Renew the locks of these offsets (KIP-1222). Of a session that ended nothing is renewed."""
        if self._session_epoch <= 0:
            return
        partition = {"partition_index": self._partition, "acknowledgement_batches": _batches(dict.fromkeys(offsets, 4))}
        body = {
            "group_id": self.group,
            "member_id": self._member_id,
            "share_session_epoch": self._session_epoch,
            "is_renew_ack": True,
            "topics": [{"topic_id": self._topic_id, "partitions": [partition]}],
        }
        try:
            answer = await self._client.ask(self._leader, ApiKey.SHARE_ACKNOWLEDGE, 2, body)
        except NoAnswer:
            self._start_again()
            return
        if answer.error_code:
            self._session_epoch = 0
        else:
            self._session_epoch += 1

    def _start_again(self) -> None:
        self._leader, self._session_epoch = -1, 0
        self._client.forget_leaders()

    def _body(self, acknowledgements: Sequence[dict[str, Any]]) -> dict[str, Any]:
        partition = {"partition_index": self._partition, "acknowledgement_batches": acknowledgements}
        return {
            "group_id": self.group,
            "member_id": self._member_id,
            "share_session_epoch": self._session_epoch,
            "max_wait_ms": MAX_WAIT_MS,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": MAX_RECORDS,
            "batch_size": MAX_RECORDS,
            "topics": [{"topic_id": self._topic_id, "partitions": [partition]}],
            "forgotten_topics_data": [],
        }

    async def _find_topic_id(self) -> bytes:
        wanted = {"topics": [{"topic_id": bytes(16), "name": self._topic}], "allow_auto_topic_creation": False}
        answer = await self._client.ask_any(ApiKey.METADATA, 12, wanted)
        found = answer.topics[0]
        if found.error_code:
            raise TryAgain(ErrorCode(found.error_code).name)
        return bytes(found.topic_id)


def _batches(kinds: Mapping[int, int]) -> list[dict[str, Any]]:
    """Return acknowledgements of single offsets, each with its type."""
    return [
        {"first_offset": offset, "last_offset": offset, "acknowledge_types": [kinds[offset]]}
        for offset in sorted(kinds)
    ]


def _leased(part: Message) -> list[LeasedRecords]:
    data = bytes(part.records or b"")
    records = {record.offset: record for position, _ in iter_batches(data) for record in decode_batch(data, position)}
    return [
        LeasedRecords(record=records[offset], delivery_count=each.delivery_count)
        for each in part.acquired_records
        for offset in range(each.first_offset, each.last_offset + 1)
        if offset in records
    ]
