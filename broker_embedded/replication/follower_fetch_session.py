"""A follower's side of a fetch session (KIP-227): sends only changes since the last request.

Pure. `fetch_session` is the other side of it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from broker_embedded.replication.fetch_session import INITIAL_EPOCH, NO_SESSION
from ottla_wire.protocol import ErrorCode

FetchKey = tuple[bytes, int]
"""(topic id, partition)."""

NO_DIRECTORY = bytes(16)
"""Voters of the metadata quorum have one (KIP-853). Named, because the encoder is slower at filling gaps."""

SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""The leader has forgotten the session, or restarted: a full request starts another one."""


class FetchPosition(NamedTuple):
    """The request for one partition."""

    fetch_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FollowerFetchSession:
    """Turns the positions that are wanted into the part of a request that names them.

    Costs are per position that changed: most requests of a follower change one.
    """

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._wanted: dict[FetchKey, FetchPosition] = {}
        self._changed: dict[FetchKey, None] = {}  # in the order of the changes
        self._known: set[FetchKey] = set()
        """The leader's view of the session."""

    def want(self, key: FetchKey, position: FetchPosition) -> None:
        """Ask for this from the next request on."""
        if self._wanted.get(key) != position:
            self._wanted[key] = position
            self._changed[key] = None

    def drop(self, key: FetchKey) -> None:
        """Ask for it no more."""
        if self._wanted.pop(key, None) is not None:
            self._changed[key] = None

    def __len__(self) -> int:
        return len(self._wanted)

    def request(self) -> dict[str, Any]:
        """Return the fields of a Fetch request (v13 and later) that depend on the session."""
        wanted = self._wanted
        is_full = self._epoch == INITIAL_EPOCH
        if is_full:
            named: Collection[FetchKey] = wanted
            forgotten: Collection[FetchKey] = ()
            self._known = set(wanted)
        else:
            named = [key for key in self._changed if key in wanted]
            forgotten = [key for key in self._changed if key not in wanted and key in self._known]
            self._known.update(named)
            self._known.difference_update(forgotten)
        self._changed.clear()
        return {
            "session_id": self._session_id,
            "session_epoch": self._epoch,
            "topics": [
                {"topic_id": topic_id, "partitions": [_partition(each, wanted[topic_id, each]) for each in numbers]}
                for topic_id, numbers in _by_topic(named).items()
            ],
            "forgotten_topics_data": [
                {"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in _by_topic(forgotten).items()
            ],
        }

    def on_answer(self, session_id: int) -> None:
        """Continue with the session of a response that has no session error."""
        if session_id == NO_SESSION:
            self.reset()
        elif session_id == self._session_id and self._epoch != INITIAL_EPOCH:
            self._epoch = self._epoch % 0x7FFFFFFF + 1
        else:
            self._session_id, self._epoch = session_id, 1

    def reset(self) -> None:
        """Forget the session: the next request is a full one."""
        self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH

    def interrupted(self) -> None:
        """Handle a request with unknown outcome: close the session, if it still exists, and start another."""
        self._epoch = INITIAL_EPOCH


def _by_topic(keys: Collection[FetchKey]) -> dict[bytes, list[int]]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, number in keys:
        topics.setdefault(topic_id, []).append(number)
    return topics


def _partition(number: int, at: FetchPosition) -> dict[str, object]:
    return {
        "partition": number,
        "current_leader_epoch": at.current_leader_epoch,
        "fetch_offset": at.fetch_offset,
        "last_fetched_epoch": at.last_fetched_epoch,
        "log_start_offset": at.log_start_offset,
        "partition_max_bytes": at.max_bytes,
        "replica_directory_id": NO_DIRECTORY,
    }
