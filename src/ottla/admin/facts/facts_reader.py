"""Reads the facts of a cluster in a few rounds of requests, each broker for its own part.

Nothing is asked for that is not wanted, because a cluster has tens of thousands of partitions and groups. What is
refused, or cannot be reached, is noted in `not_read`, and the rest is read all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from ottla.admin.facts import response_facts as messages
from ottla.admin.facts.admin_operation import AdminOperation, AdminRequest, RetryLater, problem_of
from ottla.admin.facts.cluster_facts import (
    BrokerInfo,
    ClusterFacts,
    CommittedOffset,
    GroupInfo,
    NotRead,
    Part,
    PartitionInfo,
    SettingInfo,
    TopicInfo,
    TransactionInfo,
    whole_number,
)
from ottla.admin.facts.group_coordinators import coordinators_of
from ottla.admin.facts.protocol_names import (
    ANY,
    BROKER,
    BROKER_SETTINGS,
    EARLIEST,
    GROUP,
    LATEST,
    MAX_TIMESTAMP,
    TOPIC,
    TOPIC_SETTINGS,
)
from ottla.admin.facts.setting_requests import describe_settings
from ottla.errors import BrokerUnavailable, OttlaError, RetriableError
from ottla.topics import TopicPartition, named_topics
from ottla.wire_client.errors import ApiNotServed
from ottla_wire.facts import fact
from ottla_wire.protocol import ApiKey, ErrorCode

T = TypeVar("T")

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

_TOPICS_AT_ONCE: Final = 500
_GROUPS_AT_ONCE: Final = 100
_OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")

READING_RECORDS: Final = frozenset({Part.COMMIT_TIMES, Part.SCHEDULES})
EVERYTHING: Final = frozenset(Part) - READING_RECORDS
"""All that is read without reading records."""

_NEEDED: Final = {
    Part.TOPIC_SETTINGS: {Part.TOPICS},
    Part.OFFSETS: {Part.TOPICS},
    Part.NEWEST_TIMESTAMPS: {Part.TOPICS, Part.OFFSETS},
    Part.LAST_HOUR: {Part.TOPICS, Part.OFFSETS},
    Part.EXPIRY: {Part.TOPICS, Part.OFFSETS, Part.TOPIC_SETTINGS, Part.GROUPS, Part.GROUP_OFFSETS},
    Part.GROUP_MEMBERS: {Part.GROUPS},
    Part.GROUP_OFFSETS: {Part.GROUPS},
    Part.GROUP_SETTINGS: {Part.GROUPS},
    Part.COMMIT_TIMES: {Part.GROUPS, Part.GROUP_OFFSETS},
    Part.SCHEDULES: {Part.TOPICS, Part.OFFSETS, Part.GROUPS},
}


@fact
class WantedFacts:
    """What to read. `topics` and `groups` are names; None means all, internal ones included.

    `at_ms` is the time of the reader's clock in milliseconds since the epoch.
    """

    parts: frozenset[Part]
    at_ms: int
    topics: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    topic_settings: tuple[str, ...] | None = TOPIC_SETTINGS
    broker_settings: tuple[str, ...] | None = BROKER_SETTINGS

    @property
    def all_parts(self) -> frozenset[Part]:
        """Return `parts`, and those that they depend on."""
        return self.parts | {needed for part in self.parts for needed in _NEEDED.get(part, ())}


def read_facts(wanted: WantedFacts) -> AdminOperation[ClusterFacts]:
    """Read what is wanted. Raises what the first question meets: a cluster that cannot be reached has no facts."""
    reader = _FactsReading(wanted)
    yield from reader.read_outline()
    yield from reader.ask(reader.of_the_cluster())
    yield from reader.ask(reader.of_each_broker())
    yield from reader.read_groups()
    yield from reader.ask(reader.of_transactions())
    yield from reader.ask(reader.of_expiry())
    return reader.facts()


class _FactsRequest(NamedTuple):
    """A request, the part of the facts that it is for, and the function that takes its response."""

    part: Part
    subject: str
    ask: AdminRequest
    take: Callable[[Any], None]
    is_guess: bool = False
    """Whether it matters not if a broker is too old to be asked."""


@dataclass(slots=True)
class _Group:
    """The facts of one group so far."""

    listed: GroupInfo
    described: GroupInfo | None = None
    offsets: tuple[CommittedOffset, ...] | None = None
    settings: Mapping[str, SettingInfo] | None = None


class _FactsReading:
    """The facts while they are read."""

    def __init__(self, wanted: WantedFacts) -> None:
        self.wanted = wanted
        self.parts = wanted.all_parts
        self.cluster_id = ""
        self.controller_id: int | None = None
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, TopicInfo] = {}
        self._equal: dict[tuple[object, ...], PartitionInfo] = {}
        self.offsets: dict[TopicPartition, dict[str, int]] = {}
        self.settings: dict[str, Mapping[str, SettingInfo]] = {}
        self.groups: dict[str, _Group] = {}
        self.open_transactions: dict[int, list[str]] = {}
        self.transactions: list[TransactionInfo] = []
        self.rest: dict[str, Any] = {}
        self.not_read: list[NotRead] = []
        self.moving: RetriableError | None = None
        """Error codes of a coordinator that is being elected, or does not have the group, no longer or not yet."""

    # Rounds

    def ask(self, questions: Iterable[_FactsRequest]) -> AdminOperation[None]:
        """Ask all of them side by side. One that fails costs its own part only."""
        asked = list(questions)
        if not asked:
            return
        answers = yield [question.ask for question in asked]
        for question, answer in zip(asked, answers, strict=True):
            if isinstance(answer, ApiNotServed) and question.is_guess:
                continue
            if isinstance(answer, OttlaError):
                self.note(question.part, question.subject, str(answer))
                if isinstance(answer, BrokerUnavailable) and question.ask.broker is not None:
                    self._unreachable(question.ask.broker, str(answer))
            else:
                question.take(answer)

    def read_outline(self) -> AdminOperation[None]:
        names: list[str] | None = []
        if Part.TOPICS in self.parts:
            names = None if self.wanted.topics is None else list(self.wanted.topics)
        metadata, cluster = yield [
            AdminRequest(
                api=ApiKey.METADATA,
                body={
                    "topics": None if names is None else [{"name": name} for name in names],
                    "allow_auto_topic_creation": False,
                },
            ),
            AdminRequest(
                api=ApiKey.DESCRIBE_CLUSTER,
                body={"include_cluster_authorized_operations": False, "include_fenced_brokers": True},
            ),
        ]
        if isinstance(metadata, OttlaError):
            raise metadata
        self.cluster_id = metadata.cluster_id or ""
        self.controller_id = metadata.controller_id if metadata.controller_id >= 0 else None
        for broker in metadata.brokers:
            self.brokers[broker.node_id] = BrokerInfo(
                id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
        if not isinstance(cluster, OttlaError) and cluster.error_code == ErrorCode.NONE:
            for broker in cluster.brokers:
                if broker.is_fenced:
                    self.brokers[broker.broker_id] = BrokerInfo(
                        id=broker.broker_id, host=broker.host, port=broker.port, rack=broker.rack, is_fenced=True
                    )
        for topic in metadata.topics:
            self._take_topic(topic)

    def of_the_cluster(self) -> Iterator[_FactsRequest]:
        if Part.TOPIC_SETTINGS in self.parts:
            for names in _chunks(self.topics, _TOPICS_AT_ONCE):
                yield _FactsRequest(
                    Part.TOPIC_SETTINGS,
                    "topics",
                    describe_settings(TOPIC, names, self.wanted.topic_settings),
                    self._take_topic_settings,
                )
        if Part.MOVES in self.parts:
            yield _FactsRequest(
                Part.MOVES, "cluster", AdminRequest(api=ApiKey.LIST_PARTITION_REASSIGNMENTS, body={}), self._take_moves
            )
        if Part.QUORUM in self.parts:
            topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
            yield _FactsRequest(
                Part.QUORUM,
                "cluster",
                AdminRequest(api=ApiKey.DESCRIBE_QUORUM, body={"topics": topics}),
                self._take_quorum,
            )
        if Part.ACLS in self.parts:
            everything = {
                "resource_type_filter": ANY,
                "resource_name_filter": None,
                "pattern_type_filter": ANY,
                "principal_filter": None,
                "host_filter": None,
                "operation": ANY,
                "permission_type": ANY,
            }
            yield _FactsRequest(
                Part.ACLS, "cluster", AdminRequest(api=ApiKey.DESCRIBE_ACLS, body=everything), self._take_acls
            )
        if Part.QUOTAS in self.parts:
            ask = AdminRequest(api=ApiKey.DESCRIBE_CLIENT_QUOTAS, body={"components": [], "strict": False})
            yield _FactsRequest(Part.QUOTAS, "cluster", ask, self._take_quotas)

    def of_each_broker(self) -> Iterator[_FactsRequest]:
        for broker in self.brokers.values():
            if broker.is_fenced:
                self._note_fenced(broker.id)
                continue
            yield from self._of_broker(broker.id)

    def _of_broker(self, broker: int) -> Iterator[_FactsRequest]:
        subject = f"broker {broker}"
        body: dict[str, Any]
        if Part.REACHED in self.parts:
            body = {"include_cluster_authorized_operations": False}
            ask = AdminRequest(api=ApiKey.DESCRIBE_CLUSTER, body=body, broker=broker)
            yield _FactsRequest(
                Part.REACHED, subject, ask, lambda answer: self._set(broker, answers_as=answer.cluster_id)
            )
        if Part.FEATURES in self.parts:
            body = {"client_software_name": "ottla", "client_software_version": "1"}
            ask = AdminRequest(api=ApiKey.API_VERSIONS, body=body, broker=broker, newest=4)
            yield _FactsRequest(Part.FEATURES, subject, ask, lambda answer: self._take_features(broker, answer))
        if Part.LOG_DIRS in self.parts:
            ask = AdminRequest(api=ApiKey.DESCRIBE_LOG_DIRS, body={"topics": self._all_partitions()}, broker=broker)
            yield _FactsRequest(Part.LOG_DIRS, subject, ask, lambda answer: self._take_log_dirs(broker, answer))
        if Part.BROKER_SETTINGS in self.parts:
            ask = describe_settings(BROKER, [str(broker)], self.wanted.broker_settings)
            yield _FactsRequest(
                Part.BROKER_SETTINGS, subject, ask, lambda answer: self._take_broker_settings(broker, answer)
            )
        if Part.GROUPS in self.parts and self.wanted.groups is None:
            ask = AdminRequest(api=ApiKey.LIST_GROUPS, body={"states_filter": [], "types_filter": []}, broker=broker)
            yield _FactsRequest(Part.GROUPS, subject, ask, lambda answer: self._take_groups(broker, answer))
        if Part.TRANSACTIONS in self.parts:
            body = {"state_filters": list(_OPEN_STATES), "producer_id_filters": []}
            ask = AdminRequest(api=ApiKey.LIST_TRANSACTIONS, body=body, broker=broker)
            yield _FactsRequest(Part.TRANSACTIONS, subject, ask, lambda answer: self._take_listed(broker, answer))
        yield from self._offsets_of_broker(broker)

    def _offsets_of_broker(self, broker: int) -> Iterator[_FactsRequest]:
        if not self.parts & {Part.OFFSETS, Part.NEWEST_TIMESTAMPS, Part.LAST_HOUR}:
            return
        led = [place for place, each in self._partitions() if each.leader == broker]
        if not led:
            return
        if Part.OFFSETS in self.parts:
            yield self._offsets(Part.OFFSETS, broker, dict.fromkeys(led, EARLIEST), "log_start")
            yield self._offsets(Part.OFFSETS, broker, dict.fromkeys(led, LATEST), "high_watermark")
            yield self._offsets(Part.OFFSETS, broker, dict.fromkeys(led, LATEST), "last_stable_offset", stable=True)
        if Part.NEWEST_TIMESTAMPS in self.parts:
            yield self._offsets(Part.NEWEST_TIMESTAMPS, broker, dict.fromkeys(led, MAX_TIMESTAMP), "newest_timestamp")
        if Part.LAST_HOUR in self.parts:
            letters = [place for place in led if is_dead_letter_name(place.topic)]
            if letters:
                hour_ago = max(0, self.wanted.at_ms - HOUR_MS)
                yield self._offsets(Part.LAST_HOUR, broker, dict.fromkeys(letters, hour_ago), "hour_ago_offset")

    def read_groups(self) -> AdminOperation[None]:
        if Part.GROUPS not in self.parts:
            return
        named = self.wanted.groups
        if named is None:
            yield from self.ask(self._of_groups())
            return
        noted = len(self.not_read)
        while True:
            moving = yield from self._read_named(named)
            if moving is None:
                return
            try:
                yield RetryLater(reason=moving)
            except OttlaError:  # no time is left: it stays noted
                return
            del self.not_read[noted:]

    def _read_named(self, named: Sequence[str]) -> AdminOperation[RetriableError | None]:
        """Read the named parts. Returns the error that only time helps against."""
        self.groups.clear()
        self.moving = None
        for group, found in (yield from coordinators_of(named)).items():
            if isinstance(found, OttlaError):
                self.note(Part.GROUPS, f"group {group}", str(found))
            else:
                self.groups[group] = _Group(_listed(group, "", "", found))
        yield from self.ask(self._of_groups())
        for group in [name for name, entry in self.groups.items() if entry.described is None]:
            del self.groups[group]
        return self.moving

    def _of_groups(self) -> Iterator[_FactsRequest]:
        if Part.GROUP_SETTINGS in self.parts:
            shares = [name for name, entry in self.groups.items() if entry.listed.type == "Share"]
            for chunk in _chunks(shares, _GROUPS_AT_ONCE):
                ask = describe_settings(GROUP, chunk, None)
                yield _FactsRequest(Part.GROUP_SETTINGS, "share groups", ask, self._take_group_settings)
        by_coordinator: dict[int, list[GroupInfo]] = {}
        for entry in self.groups.values():
            by_coordinator.setdefault(entry.listed.coordinator, []).append(entry.listed)
        for broker, groups in by_coordinator.items():
            subject = f"groups of broker {broker}"
            for kind, api in _DESCRIBING.items() if self._describes_groups() else ():
                is_guess = any(not each.type for each in groups)
                for chunk in _chunks([each.group_id for each in groups if each.type in (kind, "")], _GROUPS_AT_ONCE):
                    body: dict[str, Any] = {"groups" if api is ApiKey.DESCRIBE_GROUPS else "group_ids": chunk}
                    ask = AdminRequest(api=api, body={**body, "include_authorized_operations": False}, broker=broker)
                    yield _FactsRequest(Part.GROUP_MEMBERS, subject, ask, self._describes(kind, broker), is_guess)
            if Part.GROUP_OFFSETS in self.parts:
                with_offsets = [each.group_id for each in groups if each.type != "Share"]
                for chunk in _chunks(with_offsets, _GROUPS_AT_ONCE):
                    body = {"groups": [{"group_id": name, "topics": None} for name in chunk], "require_stable": False}
                    ask = AdminRequest(api=ApiKey.OFFSET_FETCH, body=body, broker=broker, newest=9)
                    yield _FactsRequest(Part.GROUP_OFFSETS, subject, ask, self._take_group_offsets)
                is_guess = any(not each.type for each in groups)
                for chunk in _chunks([each.group_id for each in groups if each.type in ("Share", "")], _GROUPS_AT_ONCE):
                    body = {"groups": [{"group_id": name, "topics": None} for name in chunk]}
                    ask = AdminRequest(api=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, body=body, broker=broker)
                    yield _FactsRequest(Part.GROUP_OFFSETS, subject, ask, self._take_share_offsets, is_guess)

    def of_transactions(self) -> Iterator[_FactsRequest]:
        for broker, names in self.open_transactions.items():
            for chunk in _chunks(names, _GROUPS_AT_ONCE):
                ask = AdminRequest(
                    api=ApiKey.DESCRIBE_TRANSACTIONS, body={"transactional_ids": list(chunk)}, broker=broker
                )
                yield _FactsRequest(Part.TRANSACTIONS, f"broker {broker}", ask, self._take_transactions)

    def of_expiry(self) -> Iterator[_FactsRequest]:
        """Yield where records begin that retention does not take soon, where a group has records before it unread."""
        if Part.EXPIRY not in self.parts:
            return
        lagging = {
            TopicPartition(each.topic, each.partition)
            for entry in self.groups.values()
            for each in entry.offsets or ()
            if each.offset < self._offset(each.topic, each.partition, "high_watermark")
        }
        leaders = {place: each.leader for place, each in self._partitions()}
        for name, horizon_ms in (("expires_within_hour", HOUR_MS), ("expires_within_day", DAY_MS)):
            by_leader: dict[int, dict[TopicPartition, int]] = {}
            for place in sorted(lagging):
                leader, retention_ms = leaders.get(place), self._retention_ms(place.topic)
                if leader is not None and retention_ms is not None:
                    at_ms = self.wanted.at_ms - retention_ms + expiry_horizon_ms(retention_ms, horizon_ms)
                    by_leader.setdefault(leader, {})[place] = max(0, at_ms)
            for leader, wanted in by_leader.items():
                yield self._offsets(Part.EXPIRY, leader, wanted, name)

    # Answers

    def _take_topic(self, topic: Any) -> None:
        if topic.name is None:
            return
        # LEADER_NOT_AVAILABLE and the like are of single partitions, and those say it themselves.
        if topic.error_code and not topic.partitions:
            if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                subject = f"topic {topic.name}"
                self.note(Part.TOPICS, subject, str(problem_of(subject, topic.error_code)))
            return
        partitions = self._partitions_of(topic)
        partitions.sort(key=attrgetter("partition"))
        self.topics[topic.name] = TopicInfo(
            name=topic.name,
            topic_id=messages.topic_id_of(topic.topic_id),
            is_internal=bool(topic.is_internal),
            partitions=tuple(partitions),
        )

    def _partitions_of(self, topic: Any) -> list[PartitionInfo]:
        """Return the partitions of many topics. Those with the same number, leader and replicas share one value."""
        equal, found = self._equal, []
        for each in topic.partitions:
            replicas, in_sync, offline = tuple(each.replica_nodes), tuple(each.isr_nodes), tuple(each.offline_replicas)
            alike = (each.partition_index, each.leader_id, each.leader_epoch, replicas, in_sync, offline)
            fact = equal.get(alike)
            if fact is None:
                fact = equal[alike] = PartitionInfo(
                    partition=each.partition_index,
                    leader=each.leader_id if each.leader_id >= 0 else None,
                    leader_epoch=each.leader_epoch,
                    replicas=replicas,
                    in_sync=in_sync,
                    offline=offline,
                )
            found.append(fact)
        return found

    def _take_topic_settings(self, answer: Any) -> None:
        for result in answer.results:
            problem = problem_of(f"settings of {result.resource_name}", result.error_code, result.error_message)
            if problem is not None:
                self.note(Part.TOPIC_SETTINGS, f"topic {result.resource_name}", str(problem))
            else:
                self.settings[result.resource_name] = messages.settings_of(result)

    def _take_moves(self, answer: Any) -> None:
        if self._is_good(Part.MOVES, "cluster", answer):
            self.rest["moves"] = messages.moves_of(answer)

    def _take_quorum(self, answer: Any) -> None:
        if self._is_good(Part.QUORUM, "cluster", answer):
            quorum = messages.quorum_of(answer)
            self.rest["quorum"] = quorum
            if quorum is None:
                self.note(Part.QUORUM, "cluster", "the broker describes no metadata quorum")

    def _take_acls(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.SECURITY_DISABLED:
            self.rest["acls"] = ()
        elif self._is_good(Part.ACLS, "cluster", answer):
            self.rest["acls"] = messages.acls_of(answer)

    def _take_quotas(self, answer: Any) -> None:
        if self._is_good(Part.QUOTAS, "cluster", answer):
            self.rest["quotas"] = messages.quotas_of(answer)

    def _take_features(self, broker: int, answer: Any) -> None:
        if self._is_good(Part.FEATURES, f"broker {broker}", answer):
            features = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
            self._set(broker, features=features)
            self.rest["finalized_features"] = {each.name: each.max_version_level for each in answer.finalized_features}

    def _take_log_dirs(self, broker: int, answer: Any) -> None:
        if self._is_good(Part.LOG_DIRS, f"broker {broker}", answer):
            found = messages.log_dirs_of(answer)
            if not found:
                self.note(Part.LOG_DIRS, f"broker {broker}", "it named no directory: DESCRIBE on the cluster is needed")
            else:
                self._set(broker, log_dirs=found)

    def _take_broker_settings(self, broker: int, answer: Any) -> None:
        for result in answer.results:
            if self._is_good(Part.BROKER_SETTINGS, f"broker {broker}", result):
                self._set(broker, settings=messages.settings_of(result))

    def _take_groups(self, broker: int, answer: Any) -> None:
        if self._is_good(Part.GROUPS, f"broker {broker}", answer):
            for each in answer.groups:
                kind = each.group_type.capitalize() or "Classic"
                listed = _listed(each.group_id, kind, each.group_state, broker, each.protocol_type)
                self.groups[each.group_id] = _Group(listed)

    def _describes_groups(self) -> bool:
        """Return whether a group of a name exists is only known when it was described."""
        return Part.GROUP_MEMBERS in self.parts or self.wanted.groups is not None

    def _describes(self, kind: str, broker: int) -> Callable[[Any], None]:
        def take(answer: Any) -> None:
            for described in answer.groups:
                entry = self.groups.get(described.group_id)
                is_unknown = described.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
                if entry is None or is_unknown or (kind == "Classic" and described.group_state == "Dead"):
                    continue
                if self._is_good(Part.GROUP_MEMBERS, f"group {described.group_id}", described):
                    entry.described = (
                        messages.classic_group(described, coordinator=broker)
                        if kind == "Classic"
                        else messages.modern_group(described, kind=kind, coordinator=broker)
                    )

        return take

    def _take_group_offsets(self, answer: Any) -> None:
        for group in answer.groups:
            entry = self.groups.get(group.group_id)
            if entry is None or (group.error_code == ErrorCode.GROUP_ID_NOT_FOUND and not entry.listed.type):
                continue  # franz-go's kfake answers so for a share group; Kafka has no offsets and no error
            if self._is_good(Part.GROUP_OFFSETS, f"group {group.group_id}", group):
                entry.offsets = messages.offsets_of(group.topics) or entry.offsets or ()

    def _take_share_offsets(self, answer: Any) -> None:
        for group in answer.groups:
            entry = self.groups.get(group.group_id)
            if entry is None or (group.error_code and not entry.listed.type):
                continue  # it may be a group of another type
            if self._is_good(Part.GROUP_OFFSETS, f"group {group.group_id}", group):
                entry.offsets = messages.share_offsets_of(group.topics) or entry.offsets or ()

    def _take_group_settings(self, answer: Any) -> None:
        for result in answer.results:
            entry = self.groups.get(result.resource_name)
            if entry is not None and self._is_good(Part.GROUP_SETTINGS, f"group {result.resource_name}", result):
                entry.settings = messages.settings_of(result)

    def _take_listed(self, broker: int, answer: Any) -> None:
        if self._is_good(Part.TRANSACTIONS, f"broker {broker}", answer):
            names = [each.transactional_id for each in answer.transaction_states]
            if names:
                self.open_transactions[broker] = names

    def _take_transactions(self, answer: Any) -> None:
        for state in answer.transaction_states:
            if state.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND and self._is_good(
                Part.TRANSACTIONS, f"transactional id {state.transactional_id}", state
            ):
                self.transactions.append(messages.transaction_of(state))

    def _offsets(
        self, part: Part, broker: int, wanted: Mapping[TopicPartition, int], name: str, *, stable: bool = False
    ) -> _FactsRequest:
        def take(answer: Any) -> None:
            failed: dict[int, list[str]] = {}
            for topic in answer.topics:
                for each in topic.partitions:
                    if each.error_code:
                        failed.setdefault(each.error_code, []).append(f"{topic.name}-{each.partition_index}")
                        continue
                    offsets = self.offsets.setdefault(TopicPartition(topic.name, each.partition_index), {})
                    offsets[name] = each.offset
                    if name == "newest_timestamp":
                        offsets["newest_timestamp_ms"] = each.timestamp
            for code, places in failed.items():
                more = f" and {len(places) - 1} more" if len(places) > 1 else ""
                self.note(part, f"{places[0]}{more}", str(problem_of("offsets", code)))

        return _FactsRequest(part, f"offsets of broker {broker}", offsets_ask(broker, wanted, stable=stable), take)

    # The whole

    def facts(self) -> ClusterFacts:
        return ClusterFacts(
            at_ms=self.wanted.at_ms,
            cluster_id=self.cluster_id,
            controller_id=self.controller_id,
            parts=tuple(sorted(self.parts)),
            brokers=tuple(self.brokers[number] for number in sorted(self.brokers)),
            topics=tuple(self._topic_with_all(self.topics[name]) for name in sorted(self.topics)),
            groups=tuple(self._group(self.groups[name]) for name in sorted(self.groups)),
            transactions=tuple(sorted(self.transactions, key=lambda each: each.transactional_id)),
            not_read=tuple(dict.fromkeys(self.not_read)),
            **self.rest,
        )

    def note(self, part: Part, subject: str, reason: str) -> None:
        self.not_read.append(NotRead(part=part, subject=subject, reason=reason))

    def _topic_with_all(self, topic: TopicInfo) -> TopicInfo:
        if not self.offsets and not self.settings:  # a list of topics, which has tens of thousands of partitions
            return topic
        partitions = topic.partitions
        if self.offsets:
            partitions = tuple(
                self._partition_with_all(TopicPartition(topic.name, each.partition), each) for each in partitions
            )
        return replace(topic, partitions=partitions, settings=self.settings.get(topic.name, {}))

    def _partition_with_all(self, place: TopicPartition, fact: PartitionInfo) -> PartitionInfo:
        found = self.offsets.get(place)
        if found is None:
            return fact
        end = found.get("high_watermark")

        def by_time(name: str) -> int | None:
            offset = found.get(name)
            return end if offset is not None and offset < 0 else offset

        newest = found.get("newest_timestamp")
        return PartitionInfo(  # `replace` takes longer, and there are tens of thousands
            partition=fact.partition,
            leader=fact.leader,
            leader_epoch=fact.leader_epoch,
            replicas=fact.replicas,
            in_sync=fact.in_sync,
            offline=fact.offline,
            log_start=found.get("log_start"),
            high_watermark=end,
            last_stable_offset=found.get("last_stable_offset"),
            newest_timestamp_ms=found.get("newest_timestamp_ms") if newest is not None and newest >= 0 else None,
            newest_timestamp_offset=newest if newest is not None and newest >= 0 else None,
            hour_ago_offset=by_time("hour_ago_offset"),
            expires_within_hour=by_time("expires_within_hour"),
            expires_within_day=by_time("expires_within_day"),
        )

    @staticmethod
    def _group(entry: _Group) -> GroupInfo:
        return replace(entry.described or entry.listed, offsets=entry.offsets, settings=entry.settings)

    def _is_good(self, part: Part, subject: str, answer: Any) -> bool:
        problem = problem_of(subject, answer.error_code, getattr(answer, "error_message", None))
        if problem is not None:
            self.note(part, subject, str(problem))
            if isinstance(problem, RetriableError) and part in (Part.GROUP_MEMBERS, Part.GROUP_OFFSETS):
                self.moving = problem
        return problem is None

    def _partitions(self) -> Iterator[tuple[TopicPartition, PartitionInfo]]:
        for topic in self.topics.values():
            for each in topic.partitions:
                yield TopicPartition(topic.name, each.partition), each

    def _all_partitions(self) -> list[dict[str, Any]] | None:
        """Return the topics of a DescribeLogDirs request; None asks for all."""
        if self.wanted.topics is None:
            return None
        return [
            {"topic": topic.name, "partitions": [each.partition for each in topic.partitions]}
            for topic in self.topics.values()
        ]

    def _offset(self, topic: str, partition: int, name: str) -> int:
        return self.offsets.get(TopicPartition(topic, partition), {}).get(name, -1)

    def _retention_ms(self, topic: str) -> int | None:
        """Return how long a topic keeps its records; None where time takes none, or that is not known."""
        settings = self.settings.get(topic, {})
        policy = settings.get("cleanup.policy")
        retention_ms = whole_number(settings.get("retention.ms"))
        if policy is None or "delete" not in (policy.value or "") or retention_ms is None or retention_ms < 0:
            return None
        return retention_ms

    def _set(self, broker: int, **changes: Any) -> None:
        self.brokers[broker] = replace(self.brokers[broker], **changes)

    def _unreachable(self, broker: int, reason: str) -> None:
        if broker in self.brokers and self.brokers[broker].answers_as is None:
            self._set(broker, unreachable=reason)

    def _note_fenced(self, broker: int) -> None:
        for part in (Part.LOG_DIRS, Part.BROKER_SETTINGS):
            if part in self.parts:
                self.note(part, f"broker {broker}", "it is fenced: the controller gets no heartbeats from it")


def is_dead_letter_name(topic: str) -> bool:
    """Return whether a topic is named as dead letter topics usually are."""
    words = topic.lower().replace("_", "-").replace(".", "-").split("-")
    return bool({"dlq", "dlt", "deadletter", "deadletters"} & set(words)) or any(
        pair in (("dead", "letter"), ("dead", "letters")) for pair in pairwise(words)
    )


def expiry_horizon_ms(retention_ms: int, horizon_ms: int) -> int:
    """Return how near to its end a record is near to it: a horizon, and at most a quarter of what it is kept."""
    return min(horizon_ms, retention_ms // 4)


def offsets_ask(broker: int, wanted: Mapping[TopicPartition, int], *, stable: bool = False) -> AdminRequest:
    """Return the ListOffsets request of one leader. With `stable`, latest is the last stable offset."""
    # The epoch is its default: it takes longer to fill in what is missing, thousands of times, than to write it.
    topics = named_topics(
        (place, {"partition_index": place.partition, "current_leader_epoch": -1, "timestamp": timestamp})
        for place, timestamp in wanted.items()
    )
    body = {"replica_id": -1, "isolation_level": int(stable), "topics": topics}
    return AdminRequest(api=ApiKey.LIST_OFFSETS, body=body, broker=broker)


def _listed(group: str, kind: str, state: str, coordinator: int, protocol_type: str = "consumer") -> GroupInfo:
    return GroupInfo(group_id=group, type=kind, state=state, coordinator=coordinator, protocol_type=protocol_type)


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


_DESCRIBING: Final = {
    "Classic": ApiKey.DESCRIBE_GROUPS,
    "Consumer": ApiKey.CONSUMER_GROUP_DESCRIBE,
    "Share": ApiKey.SHARE_GROUP_DESCRIBE,
}
"""The API that describes groups of each type. Where the type is not known, all are asked, and one knows the group."""
