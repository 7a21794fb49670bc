"""The follower's side of a fetch session (KIP-227): says only what changed since the last request.

Pure. `fetch_session` is the other side of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker_embedded.replication.fetch_session import INITIAL_EPOCH, NO_SESSION
from ottla_wire.protocol import ErrorCode

FetchKey = tuple[bytes, int]
"""(topic id, partition)."""

SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""The leader has forgotten the session, or restarted: a full request starts another one."""


class FetchPosition(NamedTuple):
    """What is asked of one partition."""

    fetch_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FollowerFetchSession:
    """Turns the positions that are wanted now into the part of a request that names them."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._told: dict[FetchKey, FetchPosition] = {}

    def request(self, wanted: Mapping[FetchKey, FetchPosition]) -> dict[str, Any]:
        """The fields of a Fetch request (v13 and later) that depend on the session."""
        is_full = self._epoch == INITIAL_EPOCH
        told = self._told
        named = wanted if is_full else {key: at for key, at in wanted.items() if told.get(key) != at}
        forgotten = [] if is_full else [key for key in told if key not in wanted]
        self._told = dict(wanted)
        return {
            "session_id": self._session_id,
            "session_epoch": self._epoch,
            "topics": [
                {
                    "topic_id": topic_id,
                    "partitions": [_partition(number, named[topic_id, number]) for number in numbers],
                }
                for topic_id, numbers in _by_topic(named).items()
            ],
            "forgotten_topics_data": [
                {"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in _by_topic(forgotten).items()
            ],
        }

    def on_answer(self, session_id: int) -> None:
        """The request was answered without an error of the session."""
        if session_id == NO_SESSION:
            self.reset()
        elif session_id == self._session_id and self._epoch != INITIAL_EPOCH:
            self._epoch = self._epoch % 0x7FFFFFFF + 1
        else:
            self._session_id, self._epoch = session_id, 1

    def reset(self) -> None:
        """The session is gone: the next request is a full one."""
        self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH
        self._told = {}

    def interrupted(self) -> None:
        """Nobody knows whether the last request arrived: end the session, if it is still there, and start another."""
        self._epoch = INITIAL_EPOCH
        self._told = {}


def _by_topic(keys: Any) -> dict[bytes, list[int]]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, number in keys:
        topics.setdefault(topic_id, []).append(number)
    return topics


def _partition(number: int, at: FetchPosition) -> dict[str, int]:
    return {
        "partition": number,
        "current_leader_epoch": at.current_leader_epoch,
        "fetch_offset": at.fetch_offset,
        "last_fetched_epoch": at.last_fetched_epoch,
        "log_start_offset": at.log_start_offset,
        "partition_max_bytes": at.max_bytes,
    }
