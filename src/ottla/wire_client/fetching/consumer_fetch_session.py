"""Our side of a fetch session (KIP-227), sans IO: what one broker reads for us, so that only what changes is said.

    full request          (epoch 0)   names all that is wanted; the broker begins a session, or answers without one
    incremental request   (epoch 1..) names what is new or goes on elsewhere, and what to forget
    closing request       (epoch -1)  ends the session

The answer to an incremental request names the partitions that have something new. All others are read on from where
they are. A broker without room for a session, or before Kafka 1.1, answers with session id 0: then each request is a
full one.

A partition that is released while a request is in flight is still in its answer. It is forgotten with the next request,
unless that one wants it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.topics import TopicPartition
from ottla_wire.protocol import ErrorCode

NO_SESSION: Final = 0
FULL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LARGEST_EPOCH: Final = 0x7FFFFFFF

SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""The broker has forgotten the session, or counts otherwise: a full request begins another one."""


class WantedPartition(NamedTuple):
    """One partition of a fetch. `turn` is the caller's own value, returned with the data."""

    turn: int
    fetch_offset: int
    max_bytes: int


class _Held(NamedTuple):
    turn: int
    topic_id: bytes | None


class ConsumerFetchSession:
    """One fetch session: what one broker reads for us. `held_turn` finds the asker of a response; `forget` and
    `request` change the session."""

    __slots__ = ("_epoch", "_held", "_id", "_is_by_id", "_leaving", "_names")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._held: dict[TopicPartition, _Held] = {}
        self._leaving: dict[TopicPartition, None] = {}
        self._is_by_id = False
        self._names: dict[bytes, str] = {}

    @property
    def is_open(self) -> bool:
        """Return whether the broker knows what we read, so that the next request is an incremental one."""
        return self._epoch != FULL_EPOCH

    @property
    def reads(self) -> bool:
        """Return whether there is something to ask for, even if the request names nothing."""
        return len(self._held) > len(self._leaving)

    @property
    def is_by_id(self) -> bool:
        """Return whether the session's topics go by their ids; a session is of one kind."""
        return self._is_by_id

    def held_turn(self, partition: TopicPartition) -> int | None:
        """Return the turn in which the partition was asked for; None if it was not."""
        held = self._held.get(partition)
        return None if held is None else held.turn

    def name_of(self, topic_id: bytes) -> str:
        """Return the topic that was asked for by this id; empty if none was."""
        return self._names.get(topic_id, "")

    def forget(self, partition: TopicPartition) -> None:
        """Remove the partition from the session, or change its position."""
        if partition in self._held:
            self._leaving[partition] = None

    def request(
        self, wanted: Mapping[TopicPartition, WantedPartition], ids: Mapping[str, bytes] | None
    ) -> dict[str, Any]:
        """Return the fields of a Fetch request that depend on the session. `ids`: of the topics, where the broker takes
        them instead of names. Changing from one to the other requires a reset first."""
        assert not self._held or self.is_by_id == (ids is not None), "names and ids in one session"
        self._is_by_id = ids is not None
        forgotten: list[tuple[TopicPartition, bytes | None]] = []
        for partition in self._leaving:
            held = self._held.pop(partition)
            topic_id = None if ids is None else ids.get(partition.topic)
            if partition not in wanted or held.topic_id != topic_id:  # a topic that was created again is another one
                forgotten.append((partition, held.topic_id))
        self._leaving.clear()
        topics: dict[str, list[dict[str, Any]]] = {}
        for partition, (turn, fetch_offset, max_bytes) in wanted.items():
            name, number = partition
            topic_id = None if ids is None else ids[name]
            self._held[partition] = _Held(turn, topic_id)
            if name not in topics:
                topics[name] = []
                if topic_id is not None:
                    self._names[topic_id] = name
            topics[name].append(
                {
                    "partition": number,
                    "current_leader_epoch": -1,
                    "fetch_offset": fetch_offset,
                    "last_fetched_epoch": -1,
                    "log_start_offset": -1,
                    "partition_max_bytes": max_bytes,
                }
            )
        return {
            "session_id": self._id,
            "session_epoch": self._epoch,
            "topics": [
                ({"topic": name} if ids is None else {"topic_id": ids[name]}) | {"partitions": entries}
                for name, entries in topics.items()
            ],
            "forgotten_topics_data": self._forgotten(forgotten) if forgotten and self.is_open else [],
        }

    def goes_on(self, partition: TopicPartition, turn: int) -> tuple[int, int, bytes] | None:
        """Request as `request` does, if only this one partition is to be read on, from a new offset: session id, epoch
        and topic id. Returns None and changes nothing where there is more to say."""
        held = self._held.get(partition)
        is_all = self._epoch != FULL_EPOCH and len(self._leaving) == 1 and partition in self._leaving
        if not is_all or held is None or held.turn != turn or held.topic_id is None:
            return None
        self._held[partition] = self._held.pop(partition)  # behind the others
        self._leaving.clear()
        return self._id, self._epoch, held.topic_id

    def answered(self, session_id: int) -> None:
        """Record that the request was answered without an error of the whole session."""
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, FULL_EPOCH
        elif self._epoch != FULL_EPOCH and session_id == self._id:
            self._epoch = self._epoch % _LARGEST_EPOCH + 1
        else:
            self._id, self._epoch = session_id, 1

    def reset(self, code: ErrorCode = ErrorCode.NONE) -> Sequence[TopicPartition]:
        """Reset the session: the next request is a full one, which ends any session at the broker. Returns what was
        held, in the order in which it was asked for.

        Also after a lost connection: it is unknown whether the last request arrived, and which epoch the broker is at.
        """
        if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = NO_SESSION
        self._epoch = FULL_EPOCH
        held = list(self._held)
        self._held.clear()
        self._leaving.clear()
        self._names.clear()
        return held

    def close(self) -> dict[str, Any] | None:
        """Return the fields of a request that ends the session; None without a session. The session is empty
        afterwards."""
        session_id = self._id if self.is_open else NO_SESSION
        self._id = NO_SESSION
        self.reset()
        if session_id == NO_SESSION:
            return None
        return {"session_id": session_id, "session_epoch": FINAL_EPOCH, "topics": [], "forgotten_topics_data": []}

    def _forgotten(self, partitions: Iterable[tuple[TopicPartition, bytes | None]]) -> list[dict[str, Any]]:
        topics: dict[tuple[str, bytes | None], list[int]] = {}
        for (topic, number), topic_id in partitions:
            topics.setdefault((topic, topic_id), []).append(number)
        return [
            ({"topic": name} if topic_id is None else {"topic_id": topic_id}) | {"partitions": numbers}
            for (name, topic_id), numbers in topics.items()
        ]
