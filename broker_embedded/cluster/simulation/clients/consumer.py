"""A consumer of assigned partitions that commits its offsets to a group."""

from __future__ import annotations

from collections.abc import Callable

from broker_embedded.cluster.simulation.clients.client import LEADER_ERRORS, Client, RequestRefused, TryAgain
from broker_embedded.cluster.simulation.clients.connection import NoAnswer
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message
from ottla_wire.records.batch import iter_headers
from ottla_wire.records.record import RecordData, decode_batch

MAX_WAIT_MS = 500
GROUP = 0


class SimulatedConsumer:
    """Reads batches; where it is, its owner decides."""

    def __init__(
        self, client: Client, *, group: str, coordinator_of: Callable[[str], int], is_read_committed: bool = False
    ) -> None:
        """Create a consumer. `coordinator_of`: the node that coordinates a group by the newest metadata."""
        self.group = group
        self._coordinator_of = coordinator_of
        self._client = client
        self._isolation = int(is_read_committed)

    async def fetch(self, topic: str, partition: int, offset: int) -> tuple[list[RecordData], int]:
        """Return records from `offset` on and the offset to go on from; waits half a second for the first one."""
        answer = await self._client.until_done(lambda: self._fetch_once(topic, partition, offset))
        aborted = sorted(
            ((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ()), reverse=True
        )
        records: list[RecordData] = []
        data, position, following = bytes(answer.records or b""), 0, offset
        skipped: dict[int, None] = {}
        for header in iter_headers(data):
            while aborted and aborted[-1][0] <= header.last_offset:
                skipped[aborted.pop()[1]] = None
            following = header.next_offset
            found = [] if header.is_control else decode_batch(data, position)
            if header.is_control:
                skipped.pop(header.producer_id, None)
            elif self._isolation and header.is_transactional and header.producer_id in skipped:
                found = []
            records += [record for record in found if record.offset >= offset]
            position += header.size_in_bytes
        return records, following

    async def committed(self, topic: str, partition: int) -> int:
        """Return the group's committed offset, -1 if there is none.

        A coordinator that was replaced, and is cut off from whoever would tell it, answers with what it knew, as
        Kafka's does. Members of a group are safe from it: it cannot finish their joining. This one joins nothing, so an
        answer counts when it comes from who coordinates.
        """

        async def attempt() -> int:
            node = await self._client.coordinator(self.group, GROUP)
            wanted = [{"name": topic, "partition_indexes": [partition]}]
            body = {"group_id": self.group, "topics": wanted, "require_stable": True}
            answer = await self._client.ask_coordinator(self.group, GROUP, ApiKey.OFFSET_FETCH, 7, body)
            self._check(answer.error_code, "committed offsets")
            (found,) = answer.topics[0].partitions
            self._check(found.error_code, "committed offset")
            if node != self._coordinator_of(self.group):
                self._client.forget_coordinator(self.group, GROUP)
                raise TryAgain(f"group {self.group}, committed offset: of a coordinator that was replaced")
            return int(found.committed_offset)

        return await self._client.until_done(attempt)

    async def commit(self, topic: str, partition: int, offset: int) -> None:
        """Commit; returns when the commit is acknowledged."""

        async def attempt() -> None:
            partitions = [{"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}]
            body = {
                "group_id": self.group,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [{"name": topic, "partitions": partitions}],
            }
            answer = await self._client.ask_coordinator(self.group, GROUP, ApiKey.OFFSET_COMMIT, 8, body)
            self._check(answer.topics[0].partitions[0].error_code, "commit")

        await self._client.until_done(attempt)

    def _check(self, code: int, what: str) -> None:
        self._client.check_coordinator_error(code, self.group, GROUP, f"group {self.group}, {what}")

    async def _fetch_once(self, topic: str, partition: int, offset: int) -> Message:
        leader = await self._client.leader(topic, partition)
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        body = {
            "max_wait_ms": MAX_WAIT_MS,
            "min_bytes": 1,
            "max_bytes": 1 << 22,
            "isolation_level": self._isolation,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": topic, "partitions": [wanted]}],
            "rack_id": "",
        }
        try:
            answer = await self._client.ask(leader, ApiKey.FETCH, 11, body)
        except NoAnswer:
            self._client.forget_leaders()
            raise
        if answer.error_code:
            raise TryAgain(ErrorCode(answer.error_code).name)
        found: Message = answer.responses[0].partitions[0]
        if found.error_code in LEADER_ERRORS:
            self._client.forget_leaders()
            raise TryAgain(ErrorCode(found.error_code).name)
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # A new leader's high watermark may still be behind what the old one has shown; it catches up.
            raise TryAgain("OFFSET_OUT_OF_RANGE")
        if found.error_code:
            raise RequestRefused(found.error_code, f"{self._client.name} reads {topic}-{partition} from {offset}")
        return found
