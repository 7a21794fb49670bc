"""Records that aiokafka cannot read, read without it: a header key that is not UTF-8, a batch that its parser refuses.

When its parser raises, aiokafka drops what `getmany` has taken from other partitions already, whose positions have
moved: going on would skip their records. So each fetched result is guarded when it arrives. One that cannot be read
gives nothing and its position stays; the member is called, and reads the partition past that place by itself, with
aiokafka's connection and Ottla's decoder.
"""

from __future__ import annotations

from typing import Any, Final

from aiokafka import TopicPartition as ClientPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED
from aiokafka.errors import LeaderNotAvailableError, for_code
from aiokafka.protocol.fetch import FetchRequest

from ottla.aio.aiokafka_internals import guard_results, network_of, use_up
from ottla.records import TopicPartition
from ottla.wire_client.errors import CorruptBatch
from ottla.wire_client.fetching.record_chunks import RecordChunk, decode_chunk
from ottla_wire.records.control import AbortedTransaction

_MOST_BYTES: Final = 1024 * 1024
_AT_ONCE_MS: Final = 0


class Unreadable:
    """Guards what one consumer fetches."""

    def __init__(self, *, isolation_level: str) -> None:
        self._client: Any = None
        is_committed = isolation_level == "read_committed"
        self._isolation = READ_COMMITTED if is_committed else READ_UNCOMMITTED
        self._errors: dict[TopicPartition, Exception] = {}

    def guard(self, client: Any) -> None:
        """Guard the client. It must be started, so that its fetcher exists."""
        self._client = client
        guard_results(client, lambda partition, result: self._guard_result(TopicPartition(*partition), result))

    def take(self) -> dict[TopicPartition, Exception]:
        """Return the partitions that could not be read since the last call, and why."""
        taken, self._errors = self._errors, {}
        return taken

    async def read(self, name: TopicPartition) -> RecordChunk:
        """Return records from the client's position on, which stays. CorruptBatch where Ottla cannot read them
        either."""
        partition = ClientPartition(*name)
        offset = await self._client.position(partition)
        network = network_of(self._client)
        leader = network.cluster.leader_for_partition(partition)
        if leader is None or leader == -1:
            raise LeaderNotAvailableError(f"{name} has no leader")
        wanted = [(name.topic, [(name.partition, offset, _MOST_BYTES)])]
        request = FetchRequest(_AT_ONCE_MS, 0, _MOST_BYTES, self._isolation, wanted)
        response = await network.send(leader, request)
        for topic, partitions in response.topics:
            for number, error_code, _, *rest in partitions:
                if TopicPartition(topic, number) != name:
                    continue
                if error_code:
                    raise for_code(error_code)(f"{name} at offset {offset}")
                aborted = [AbortedTransaction(*each) for each in _aborted(response.API_VERSION, rest) or ()]
                chunk = decode_chunk(rest[-1] or b"", place=name, offset=offset, aborted=aborted)
                if chunk.next_offset == offset:
                    raise CorruptBatch(f"{name}: nothing can be read at offset {offset}")
                return chunk
        raise LeaderNotAvailableError(f"{name} is not in the answer of broker {leader}")

    def _guard_result(self, name: TopicPartition, result: Any) -> None:
        take_all = getattr(result, "getall", None)
        if take_all is None or "getall" in vars(result):  # an error of the broker's, or guarded already
            return

        def getall(max_records: int | None = None) -> Any:
            try:
                return take_all(max_records)
            except Exception as error:
                self._errors[name] = error
                use_up(result)
                return []

        result.getall = getall


def _aborted(api_version: int, rest: list[Any]) -> Any:
    """Return the aborted transactions of a partition's response, for every version of Fetch."""
    if api_version >= 11:
        return rest[2]
    return rest[-2] if api_version >= 4 else None
