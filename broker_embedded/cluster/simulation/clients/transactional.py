"""A transactional producer that enlists its partitions first (transaction.version 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from broker_embedded.cluster.simulation.clients.client import Client, RequestRefused
from broker_embedded.cluster.simulation.clients.producer import NumberingProducer, append
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

GROUP, TRANSACTION = 0, 1
TIMEOUT_MS = 10_000

FENCING = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTION_ABORTABLE,
)


class ProducerFenced(Exception):
    """Another instance took over, or the coordinator ended the transaction: begin anew with `start`."""


class TransactionalProducer(NumberingProducer):
    """`start`, then any number of `send` and one `end` per transaction."""

    is_transactional = True

    def __init__(self, client: Client, *, transactional_id: str, now_ms: Callable[[], int]) -> None:
        super().__init__(client, now_ms=now_ms)
        self.transactional_id = transactional_id
        self._enlisted: dict[tuple[str, int], None] = {}
        self._is_group_enlisted = False

    async def start(self) -> None:
        """Get a producer epoch that fences every older instance; what that one left open is aborted."""

        async def attempt() -> Message:
            body = {"transactional_id": self.transactional_id, "transaction_timeout_ms": TIMEOUT_MS}
            answer = await self._ask(ApiKey.INIT_PRODUCER_ID, 4, body)
            self._check(answer.error_code, "init")
            return answer

        given = await self._client.until_done(attempt)
        self.producer_id, self.epoch = given.producer_id, given.producer_epoch
        self._sequences.clear()
        self._enlisted.clear()
        self._is_group_enlisted = False

    async def send(self, topic: str, partition: int, values: Sequence[bytes]) -> int:
        """Append to the transaction; returns the offset of the first record."""
        place = (topic, partition)
        if place not in self._enlisted:
            await self._client.until_done(lambda: self._enlist(topic, partition))
            self._enlisted[place] = None
        sequence = self._sequences.get(place, 0)
        batch = self._batch(values, sequence)
        try:
            offset = await append(self._client, topic, partition, batch, transactional_id=self.transactional_id)
        except RequestRefused as error:
            raise self._fenced_or(error) from None
        self._sequences[place] = sequence + len(values)
        return offset

    async def send_offsets(self, group: str, topic: str, positions: Mapping[int, int]) -> None:
        """Commit a group's offsets as part of the transaction."""
        if not self._is_group_enlisted:
            await self._client.until_done(lambda: self._enlist_group(group))
            self._is_group_enlisted = True
        partitions = [
            {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
            for partition, offset in positions.items()
        ]
        body = {
            **self._identity(),
            "group_id": group,
            "generation_id": -1,
            "member_id": "",
            "topics": [{"name": topic, "partitions": partitions}],
        }

        async def attempt() -> None:
            answer = await self._client.ask_coordinator(group, GROUP, ApiKey.TXN_OFFSET_COMMIT, 3, body)
            for told in answer.topics[0].partitions:
                self._check(told.error_code, "offsets", key=group, key_type=GROUP)

        await self._client.until_done(attempt)

    async def end(self, *, is_commit: bool) -> None:
        """Commit or abort; returns when the decision can no longer be lost."""

        async def attempt() -> None:
            body = {**self._identity(), "committed": is_commit}
            answer = await self._ask(ApiKey.END_TXN, 3, body)
            self._check(answer.error_code, "end")

        if self._enlisted or self._is_group_enlisted:
            await self._client.until_done(attempt)
        self._enlisted.clear()
        self._is_group_enlisted = False

    async def _enlist_group(self, group: str) -> None:
        answer = await self._ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, {**self._identity(), "group_id": group})
        self._check(answer.error_code, "enlist group")

    async def _enlist(self, topic: str, partition: int) -> None:
        body = {
            **{f"v3_and_below_{name}": value for name, value in self._identity().items()},
            "v3_and_below_topics": [{"name": topic, "partitions": [partition]}],
        }
        answer = await self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, body)
        (found,) = answer.results_by_topic_v3_and_below[0].results_by_partition
        self._check(found.partition_error_code, "enlist")

    def _identity(self) -> dict[str, str | int]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    async def _ask(self, api: ApiKey, version: int, body: Mapping[str, Any]) -> Message:
        return await self._client.ask_coordinator(self.transactional_id, TRANSACTION, api, version, body)

    def _check(self, code: int, what: str, *, key: str | None = None, key_type: int = TRANSACTION) -> None:
        try:
            self._client.check_coordinator_error(
                code, key or self.transactional_id, key_type, f"{self.transactional_id}, {what}"
            )
        except RequestRefused as error:
            raise self._fenced_or(error) from None

    def _fenced_or(self, error: RequestRefused) -> Exception:
        return ProducerFenced(str(error)) if error.code in FENCING else error
