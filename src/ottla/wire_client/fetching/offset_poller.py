"""Polls log bounds beside another client, in a thread of its own, because that client's thread must not wait for
brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from queue import SimpleQueue
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from ottla.errors import ConfigError, UnknownTopic
from ottla.topics import TopicPartition
from ottla.wire_client.client_settings import connection_settings
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, Cluster
from ottla.wire_client.fetching.record_chunks import read_chunk
from ottla.wire_client.ranges import Isolation


class PollTargets(Collection[TopicPartition], Protocol):
    """The partitions to look at."""

    @property
    def tails(self) -> Mapping[TopicPartition, int]:
        """Offsets from which on the next record is to be found."""


class PolledLogs(NamedTuple):
    """Result of a poll: log bounds, missing topics, and where the next record may be."""

    logs: dict[TopicPartition, LogBounds]
    missing: set[str]
    tails: dict[TopicPartition, int]


Q = TypeVar("Q", bound=PollTargets)

_ANSWER_MS: Final = 5_000
_STOP_S: Final = 0.5


class OffsetPoller(Generic[Q]):
    """Answers questions about logs, one after the other. The thread is started with the first question.

    `answer(question, looked)` is called in that thread, once per question; `looked` is empty when nothing was found
    out, and `failed(code, error)` says before it why. Neither may raise.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        name: str,
        answer: Callable[[Q, PolledLogs], None],
        failed: Callable[[str, str], None],
    ) -> None:
        self._settings = settings
        self._name = name
        self._answer = answer
        self._failed = failed
        self._questions: SimpleQueue[Q | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def ask(self, question: Q) -> None:
        """Ask for the offsets of these partitions."""
        if self._is_stopped:
            return
        self._questions.put(question)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Answer nothing more, and report no failure. A question that waits for a broker is not waited for."""
        self._is_stopped = True
        if self._thread is not None:
            self._questions.put(None)
            self._thread.join(_STOP_S)

    def _run(self) -> None:
        try:
            sees_all = self._settings.get("isolation.level") == "read_uncommitted"
            isolation = Isolation.READ_UNCOMMITTED if sees_all else Isolation.READ_COMMITTED
            settings = connection_settings(
                self._settings, isolation=isolation, api_timeout_ms=_ANSWER_MS, request_timeout_ms=_ANSWER_MS
            )
            cluster = Cluster(settings)
        except ConfigError as error:
            self._is_stopped = True
            self._failed("logs_not_watched", str(error))
            return
        with cluster:
            while (question := self._questions.get()) is not None:
                looked = PolledLogs({}, set(), {})
                problem = ""
                try:
                    looked.logs.update(log_bounds(cluster, question, missing=looked.missing))
                    for name, start in question.tails.items():
                        if name in looked.logs:
                            looked.tails[name] = next_record(cluster, name, start, looked.logs[name].end)
                except Exception as error:  # whatever it is: it must not end the watch
                    problem = f"{type(error).__name__}: {error}"
                if self._is_stopped:
                    return
                if problem:
                    self._failed("logs_unseen", problem)
                self._answer(question, looked)


_MAX_CHUNKS: Final = 16
"""Per partition and call: a long tail is passed in several calls."""


class LogBounds(NamedTuple):
    """One partition's log: the first offset, and the one behind the last that a reader may see."""

    topic_id: bytes | None
    start: int
    end: int


def log_bounds(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, missing: set[str] | None = None
) -> dict[TopicPartition, LogBounds]:
    """Return the partitions that exist, as a broker describes them now, and add topics that do not exist to `missing`.
    Raises what `Cluster` does."""
    wanted = list(partitions)
    cluster.refresh({name.topic for name in wanted})
    ids: dict[str, bytes | None] = {}
    for topic in {name.topic for name in wanted}:
        try:
            ids[topic] = cluster.topic(topic).topic_id
        except UnknownTopic:
            if missing is not None:
                missing.add(topic)
    there = [name for name in wanted if name.topic in ids and cluster.leader(name) >= 0]
    starts = cluster.list_offsets(dict.fromkeys(there, EARLIEST))
    ends = cluster.list_offsets(dict.fromkeys(there, LATEST))
    return {name: LogBounds(ids[name.topic], starts[name][0], ends[name][0]) for name in there}


def next_record(cluster: Cluster, place: TopicPartition, start: int, end: int) -> int:
    """Return the offset of the next record between `start` and `end`, as `isolation.level` shows them. If there is
    none, return the offset up to which the log was read. Raises the errors of `read_chunk`."""
    offset = start
    for _ in range(_MAX_CHUNKS):
        if offset >= end:
            break
        chunk = read_chunk(cluster, place, offset, most_plain_bytes=0)
        if chunk.records:
            return min(chunk.records[0].offset, end)
        if chunk.next_offset <= offset:
            break
        offset = chunk.next_offset
    return min(offset, end)
