"""The thread that keeps the membership: heartbeats to the group coordinator, and who leads what was assigned."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from ottla.errors import BrokerTooOld, BrokerUnavailable, OttlaError
from ottla.failures.exceptions import described
from ottla.queues.core.acknowledgements import Place
from ottla.queues.core.membership import HeartbeatAnswer, HeartbeatRequest, ShareMembership
from ottla.queues.io.group_settings import other_type
from ottla.queues.io.share_messages import heartbeat_answer, heartbeat_body
from ottla.topics import TopicPartition
from ottla.wire_client.cluster.cluster_client import Cluster
from ottla.wire_client.cluster.coordinator_calls import Coordinates
from ottla.wire_client.errors import BrokerRefused
from ottla_wire.protocol import ApiKey, ErrorCode

if TYPE_CHECKING:
    from ottla.queues.io.lease_client import LeaseClient

_LOOK_AGAIN_S: Final = 0.1
"""How long after a look for leaders that found not all of them."""


class GroupThread:
    """See the module."""

    def __init__(self, client: LeaseClient) -> None:
        self._client = client
        self.membership = ShareMembership(member_id=client.member_id, topics=client.topics, now_ms=client.now_ms())
        self.problem: str | None = None
        """Why the member is not in its group."""
        self._changed = threading.Condition(client.lock)
        self._must_look = False
        self._look_ms = 0
        self._cluster = Cluster(client.settings)
        self._thread = threading.Thread(target=self._run, name=f"ottla-{client.group}-heartbeats", daemon=True)

    def start(self) -> None:
        """Join the group."""
        self._thread.start()

    def find_leaders(self) -> None:
        """Ask for the leaders of the assigned partitions again."""
        with self._client.lock:
            self._must_look = True
            self._changed.notify()

    def wake(self) -> None:
        """With the lock: the member may have closed."""
        self._changed.notify()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            while not self._is_over():
                self._turn()
            self._leave()
        except BaseException as raised:
            error = raised
        finally:
            self._cluster.close()
            self._client.ended(error)

    def _is_over(self) -> bool:
        client = self._client
        return client.has_failed or (client.is_closing and client.member.is_closed)

    def _turn(self) -> None:
        client = self._client
        with client.lock:
            now_ms = client.now_ms()
            request = self.membership.next_request(now_ms)
            must_look = self._must_look and now_ms >= self._look_ms
            if request is None and not must_look:
                due_ms = min(self.membership.due_ms, self._look_ms) if self._must_look else self.membership.due_ms
                self._changed.wait(max(1, due_ms - now_ms) / 1_000)
                return
        if request is not None:
            self._beat(request)
        if must_look:
            self._look()

    def _beat(self, request: HeartbeatRequest) -> None:
        client = self._client
        try:
            answer = self._ask(request)
        except BrokerTooOld:
            raise
        except (BrokerUnavailable, BrokerRefused) as error:
            self.problem = f"group {client.group!r}: {error}"
            self._cluster.coordinators.clear()
            with client.lock:
                self.membership.disconnected(client.now_ms())
            return
        with client.lock:
            has_changed = self.membership.answered(request, answer, client.now_ms())
            if has_changed:
                self._must_look = True
                self._look_ms = client.now_ms()
        if self.membership.error is not None:
            raise refusal(client.group, self.membership.error)
        self.problem = None
        if self.membership.is_full:
            self.problem = f"group {client.group!r} has as many members as its broker allows (group.share.max.size)"
        elif answer.error is not ErrorCode.NONE:
            self.problem = f"group {client.group!r}: its coordinator answered {answer.error.name}"

    def _ask(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        client, cluster = self._client, self._cluster
        key = Coordinates.GROUP, client.group
        if self.membership.must_find_coordinator:
            cluster.coordinators.pop(key, None)
        address = cluster.coordinators.get(key)
        if address is None:
            found = cluster.any_broker().call(
                ApiKey.FIND_COORDINATOR, {"key": client.group, "key_type": int(Coordinates.GROUP)}
            )
            code = ErrorCode.of(found.error_code)
            if code is not ErrorCode.NONE:
                return HeartbeatAnswer(error=code)
            address = cluster.coordinators[key] = found.host, found.port
        body = heartbeat_body(client.group, request, rack=client.settings.client_rack or None)
        return heartbeat_answer(cluster.ask(*address).call(ApiKey.SHARE_GROUP_HEARTBEAT, body))

    def _look(self) -> None:
        """Find the leaders of what is assigned."""
        client, cluster = self._client, self._cluster
        assigned = self.membership.assigned
        try:
            cluster.refresh(client.topics)
        except OttlaError as error:
            self.problem = f"group {client.group!r}: {error}"
            with client.lock:
                self._look_ms = client.now_ms() + int(_LOOK_AGAIN_S * 1_000)
            return
        leaders: dict[int, list[tuple[Place, TopicPartition]]] = {}
        found = 0
        for topic in map(cluster.known, client.topics):
            for number, leader in topic.leaders.items() if topic is not None and topic.topic_id is not None else ():
                place = Place(topic.topic_id or b"", number)  # type: ignore[union-attr]
                if place in assigned and leader >= 0:
                    found += 1
                    leaders.setdefault(leader, []).append((place, TopicPartition(topic.name, number)))  # type: ignore[union-attr]
        with client.lock:
            self._must_look = found < len(assigned)
            self._look_ms = client.now_ms() + int(_LOOK_AGAIN_S * 1_000)
        client.lead(leaders, cluster.addresses)

    def _leave(self) -> None:
        request = self.membership.next_request(self._client.now_ms(), leaves=True)
        if request is None:
            return
        try:
            self.membership.answered(request, self._ask(request), self._client.now_ms())
        except OttlaError as error:
            self.problem = f"the group was not left: {described(error)}"


def refusal(group: str, answer: HeartbeatAnswer) -> OttlaError:
    """Return the error for a coordinator's answer that ends a membership."""
    said = f": {answer.message}" if answer.message else ""
    match answer.error:
        case ErrorCode.INCONSISTENT_GROUP_PROTOCOL | ErrorCode.GROUP_ID_NOT_FOUND:
            return other_type(group)
        case ErrorCode.UNSUPPORTED_VERSION:
            return BrokerTooOld(
                f"group {group!r}: its broker does not allow share groups{said}; wanted Kafka 4.2 or newer with "
                "share.version=1 (`kafka-features.sh --bootstrap-server ... upgrade --feature share.version=1`)"
            )
        case ErrorCode.GROUP_AUTHORIZATION_FAILED | ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return BrokerRefused(
                f"group {group!r}: {answer.error.name}{said}; a queue needs READ on its group and on its topics"
            )
    return BrokerRefused(f"group {group!r}: its coordinator answered {answer.error.name}{said}")
