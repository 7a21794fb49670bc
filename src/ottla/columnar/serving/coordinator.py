"""The conversation of one member with its group's coordinator: asks what `Membership` wants, carries its answers.

One request is under way at a time, on a connection of its own. Its answer is waited for beside everything else, because
a JoinGroup takes as long as the slowest member of the group. The thread that owns the member calls all of this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ottla.consumer.commit.offset_metadata import terminated
from ottla.errors import BrokerUnavailable, OttlaError
from ottla.records import TopicPartition
from ottla.wire_client.cluster.cluster_client import Cluster, refused
from ottla.wire_client.cluster.coordinator_calls import MOVED, Coordinates
from ottla.wire_client.group.classic_protocol import Change, CoordinatorLost, GroupRequest, Membership
from ottla.wire_client.group.group_offsets import offset_topics
from ottla.wire_client.net.broker_connection import Connection
from ottla.wire_client.net.connection_waiter import Waiter
from ottla_wire.protocol import ApiKey, ErrorCode

_NAME_S: Final = 1.0
"""A coordinator gives a name at once; one that is older than Kafka 2.2 gives it when the group has formed."""

Offsets = Mapping[TopicPartition, tuple[int, str]]
Answered = Callable[[dict[TopicPartition, ErrorCode], str | None], None]
"""Result of a commit: the error code of each partition, or why there was no response."""


class Coordinator:
    """See the module. `failed` is called with connections that cannot be made, for the log; `timed_out` with addresses
    that did not answer."""

    def __init__(
        self,
        cluster: Cluster,
        membership: Membership,
        *,
        failed: Callable[[str, str], None],
        timed_out: Callable[[str], None],
        answer_ms: int,
    ) -> None:
        self._cluster = cluster
        self._membership = membership
        self._failed = failed
        self._timed_out = timed_out
        self._answer_ms = answer_ms
        self._connection: Connection | None = None
        self._asked: GroupRequest | None = None
        self._asked_ms = 0
        self._commit: Answered | None = None
        self._commits: deque[tuple[Offsets, Answered]] = deque()

    @property
    def connection(self) -> Connection | None:
        """Return the connection to wait for, while a request is pending."""
        return self._connection if self._is_waiting else None

    @property
    def _is_waiting(self) -> bool:
        return self._connection is not None and (self._asked is not None or self._commit is not None)

    def commit(self, offsets: Offsets, answered: Answered) -> None:
        """Commit these positions when it can be done: in this order, and not while the member joins."""
        self._commits.append((offsets, answered))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop queued commits of these partitions, which would overwrite commits of their next owner."""
        gone = set(partitions)
        waiting = list(self._commits)
        self._commits.clear()
        for offsets, answered in waiting:
            left = {place: offset for place, offset in offsets.items() if place not in gone}
            if left:
                self._commits.append((left, answered))
            else:
                answered({}, None)

    def turn(self, now_ms: int) -> list[Change]:
        """Send the request that is due, if none is in flight. Returns results that are available at once."""
        if self._is_waiting:
            if now_ms - self._asked_ms > self._patience_ms:
                if self._connection is not None:
                    self._timed_out(self._connection.address)
                return self._lost("no answer in time", now_ms)
            return []
        if self._commits and self._membership.is_member and self._membership.takes_commits:
            return self._send_commit(now_ms)
        ask = self._membership.next_ask(now_ms)
        if ask is None:
            return []
        try:
            self._found().send(ask.api_key, ask.body)
        except BrokerUnavailable as error:
            return self._lost(str(error), now_ms)
        self._asked, self._asked_ms = ask, now_ms
        return []

    def receive(self, now_ms: int) -> list[Change]:
        """Process the response that has arrived."""
        assert self._connection is not None
        try:
            answer = self._connection.receive()
        except BrokerUnavailable as error:
            return self._lost(str(error), now_ms)
        if self._commit is not None:
            return self._commit_answered(answer, now_ms)
        ask, self._asked = self._asked, None
        changes = [] if ask is None else self._membership.answered(ask, answer, now_ms)
        if any(isinstance(change, CoordinatorLost) for change in changes):
            self._drop()
        return changes

    def give_up_commits(self, reason: str) -> None:
        """Answer all waiting commits with this error, and send no more."""
        waiting = [answered for _, answered in self._commits]
        if self._commit is not None:
            waiting.insert(0, self._commit)
        self._commits.clear()
        self._commit = None
        for answered in waiting:
            answered({}, reason)

    def leave(self) -> None:
        """Say goodbye, so that the others need not wait for the end of the session. As well as it can be done."""
        if self._asked is not None and self._membership.is_nameless:
            self._await_name()
        ask = self._membership.leave()
        if ask is None:
            return
        try:
            if self._is_waiting:  # its answer may take minutes, and the goodbye would wait behind it
                self._drop()
            self._found().call(ask.api_key, ask.body)
        except OttlaError as error:
            self._failed("leave_failed", str(error))

    def close(self) -> None:
        self._drop()

    # Parts

    @property
    def _patience_ms(self) -> int:
        """Return the timeout of a response: a JoinGroup takes as long as the slowest member of the group."""
        if self._asked is not None and self._asked.api_key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP):
            return self._membership.rebalance_timeout_ms + self._answer_ms
        return self._answer_ms

    def _await_name(self) -> None:
        """Wait for the member's name. A coordinator that knows of a member holds its place from then on, and the member
        can leave only by the name that is on its way."""
        waiter = Waiter()
        try:
            if self._connection is not None and waiter.wait([self._connection], _NAME_S):
                self.receive(now_ms=0)
        finally:
            waiter.close()

    def _found(self) -> Connection:
        """Return the connection to the coordinator. Raises `BrokerUnavailable` while it cannot be had."""
        if self._connection is not None and self._connection.is_open:
            return self._connection
        group = self._membership.group
        answer = self._cluster.any_broker().call(
            ApiKey.FIND_COORDINATOR, {"key": group, "key_type": int(Coordinates.GROUP)}
        )
        code = ErrorCode.of(answer.error_code)
        if code in MOVED:
            raise BrokerUnavailable(f"the coordinator of group {group} is not known yet: {code.name}")
        if code is not ErrorCode.NONE:
            raise refused(f"coordinator of group {group}", code)
        self._connection = Connection(answer.host, answer.port, self._cluster.settings)
        return self._connection

    def _send_commit(self, now_ms: int) -> list[Change]:
        offsets, answered = self._commits[0]
        identity = self._membership.identity()
        body = {
            "group_id": identity["group_id"],
            "generation_id_or_member_epoch": identity["generation_id"],
            "member_id": identity["member_id"],
            "group_instance_id": identity["group_instance_id"],
            "topics": offset_topics({place: (at, terminated(text)) for place, (at, text) in offsets.items()}),
        }
        try:
            self._found().send(ApiKey.OFFSET_COMMIT, body, newest=self._membership.commit_version)
        except BrokerUnavailable as error:
            return self._lost(str(error), now_ms)
        self._commits.popleft()
        self._commit, self._asked_ms = answered, now_ms
        return []

    def _commit_answered(self, answer: Any, now_ms: int) -> list[Change]:
        answered, self._commit = self._commit, None
        codes = {
            TopicPartition(topic.name, entry.partition_index): ErrorCode.of(entry.error_code)
            for topic in answer.topics
            for entry in topic.partitions
        }
        changes: list[Change] = []
        found = set(codes.values())
        for code in found:
            changes += self._membership.refused_commit(code, now_ms)
        if found & MOVED:
            self._drop()
        if answered is not None:
            answered(codes, None)
        return changes

    def _lost(self, reason: str, now_ms: int) -> list[Change]:
        """Handle a lost connection. A commit that was under way may have been stored or not: its sender decides."""
        self._drop()
        self._failed("coordinator_lost", reason)
        self._membership.unanswered(now_ms)
        answered, self._commit = self._commit, None
        if answered is not None:
            answered({}, reason)
        return []

    def _drop(self) -> None:
        self._asked = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
