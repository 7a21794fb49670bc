"""What the group coordinator answers in the classic protocol, and what offsets do."""

from __future__ import annotations

import os
from itertools import count
from typing import Any

import pytest

from ottla_wire.protocol import ApiKey, ErrorCode

_numbers = count(1)


class Group:
    """One member of a classic group, driven by hand."""

    def __init__(self, kafka: Any, group_id: str | None = None) -> None:
        self.kafka = kafka
        self.group_id = group_id or f"group-{os.getpid()}-{next(_numbers)}"
        self.member_id = ""
        self.generation = -1
        body = {"key_type": 0, "coordinator_keys": [self.group_id]}
        kafka.until(lambda: kafka.call(ApiKey.FIND_COORDINATOR, 4, body).coordinators[0].error_code == 0)
        # Found is not loaded yet: the coordinator knows its groups when it knows that it does not know a member.
        kafka.until(lambda: self.heartbeat(member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID)

    def join(self, **changes: Any) -> Any:
        return self.kafka.call(ApiKey.JOIN_GROUP, 7, self.joining(**changes))

    def ask_to_join(self, **changes: Any) -> None:
        """Without waiting for the answer, which comes when the others have joined too."""
        self.kafka.send(ApiKey.JOIN_GROUP, 7, self.joining(**changes))

    def joining(self, **changes: Any) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": self.member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"meta"}],
            **changes,
        }

    def join_and_lead(self) -> Any:
        """Join as the only member and hand out the assignment."""
        first = self.join()
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        self.member_id = first.member_id
        joined = self.join()
        assert joined.error_code == 0
        self.generation = joined.generation_id
        return self.sync()

    def sync(self, **changes: Any) -> Any:
        body = {
            "group_id": self.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": self.member_id, "assignment": b"all"}],
            **changes,
        }
        return self.kafka.call(ApiKey.SYNC_GROUP, 5, body)

    def heartbeat(self, **changes: Any) -> int:
        body = {"group_id": self.group_id, "generation_id": self.generation, "member_id": self.member_id, **changes}
        return int(self.kafka.call(ApiKey.HEARTBEAT, 4, {"group_instance_id": None, **body}).error_code)

    def leave(self, member_id: str | None = None) -> Any:
        members = [{"member_id": self.member_id if member_id is None else member_id, "group_instance_id": None}]
        return self.kafka.call(ApiKey.LEAVE_GROUP, 5, {"group_id": self.group_id, "members": members})

    def describe(self) -> Any:
        body = {"groups": [self.group_id], "include_authorized_operations": False}
        return self.kafka.call(ApiKey.DESCRIBE_GROUPS, 5, body).groups[0]

    def becomes(self, state: str) -> None:
        """Wait for a state: Kafka describes a group as its log has it committed, which comes a moment behind."""
        self.kafka.until(lambda: self.describe().group_state == state)

    def commit(self, topic: str, offset: int, **changes: Any) -> int:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
        body = {
            "group_id": self.group_id,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": None,
            "topics": [{"name": topic, "partitions": [{**partition, "committed_metadata": "note"}]}],
            **changes,
        }
        return int(self.kafka.call(ApiKey.OFFSET_COMMIT, 8, body).topics[0].partitions[0].error_code)

    def committed(self, topic: str) -> Any:
        wanted = {"group_id": self.group_id, "topics": [{"name": topic, "partition_indexes": [0]}]}
        answer = self.kafka.call(ApiKey.OFFSET_FETCH, 8, {"groups": [wanted], "require_stable": False})
        return answer.groups[0].topics[0].partitions[0]

    def delete(self) -> int:
        return int(self.kafka.call(ApiKey.DELETE_GROUPS, 2, {"groups_names": [self.group_id]}).results[0].error_code)


@pytest.fixture
def group(kafka: Any) -> Group:
    return Group(kafka)


class TestJoining:
    def test_a_member_is_given_its_id_first_and_joins_with_it(self, group: Group) -> None:
        synced = group.join_and_lead()
        assert (synced.error_code, bytes(synced.assignment)) == (0, b"all")
        assert group.generation == 1
        described = group.describe()
        assert (described.group_state, described.protocol_type, described.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        assert [each.member_id for each in described.members] == [group.member_id]

    def test_the_leader_gets_the_members_and_the_protocol_is_named(self, group: Group) -> None:
        group.join_and_lead()
        again = group.join()
        assert (again.error_code, again.leader, again.protocol_name) == (0, group.member_id, "range")
        assert [bytes(each.metadata) for each in again.members] == [b"meta"]
        assert again.generation_id == 2

    def test_an_empty_group_id_is_invalid(self, group: Group) -> None:
        assert group.join(group_id="").error_code == ErrorCode.INVALID_GROUP_ID

    @pytest.mark.parametrize("timeout_ms", [1, 100_000_000])
    def test_a_session_timeout_outside_of_the_bounds_is_refused(self, group: Group, timeout_ms: int) -> None:
        assert group.join(session_timeout_ms=timeout_ms).error_code == ErrorCode.INVALID_SESSION_TIMEOUT

    def test_an_unknown_member_is_told_so(self, group: Group) -> None:
        group.join_and_lead()
        assert group.join(member_id="somebody").error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert group.heartbeat(member_id="somebody") == ErrorCode.UNKNOWN_MEMBER_ID
        assert group.sync(member_id="somebody").error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_protocol_that_the_others_do_not_have_is_inconsistent(self, group: Group) -> None:
        group.join_and_lead()
        other = Group(group.kafka, group.group_id)
        answer = other.join(protocols=[{"name": "roundrobin", "metadata": b""}])
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_a_protocol_type_of_another_kind_is_inconsistent(self, group: Group) -> None:
        group.join_and_lead()
        other = Group(group.kafka, group.group_id)
        assert other.join(protocol_type="connect").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class TestLiving:
    def test_a_heartbeat_of_the_generation_is_welcome_and_of_another_is_not(self, group: Group) -> None:
        group.join_and_lead()
        assert group.heartbeat() == 0
        assert group.heartbeat(generation_id=9) == ErrorCode.ILLEGAL_GENERATION

    def test_a_heartbeat_to_a_group_that_does_not_exist(self, group: Group) -> None:
        group.member_id = "nobody"
        assert group.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_second_member_makes_the_first_rebalance(self, group: Group, connect: Any) -> None:
        group.join_and_lead()
        other = Group(connect(), group.group_id)
        other.member_id = other.join().member_id
        other.ask_to_join(protocols=[{"name": "range", "metadata": b"other"}])
        group.kafka.until(lambda: group.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS)
        group.becomes("PreparingRebalance")
        mine = group.join()
        _, theirs = other.kafka.receive()
        assert mine.generation_id == theirs.generation_id == 2
        assert mine.leader == theirs.leader == group.member_id
        assert len(mine.members) == 2
        assert len(theirs.members) == 0

    def test_who_leaves_is_gone_and_the_group_is_empty(self, group: Group) -> None:
        group.join_and_lead()
        answer = group.leave()
        assert (answer.error_code, answer.members[0].error_code) == (0, 0)
        group.becomes("Empty")
        assert group.leave("nobody").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_group_that_never_was_is_dead(self, group: Group) -> None:
        described = group.describe()
        assert described.group_state == "Dead"


class TestOffsets:
    def test_nothing_committed_is_minus_one(self, group: Group) -> None:
        topic = group.kafka.create_topic()
        answer = group.committed(topic)
        assert (answer.error_code, answer.committed_offset, answer.metadata) == (0, -1, "")

    def test_a_member_commits_and_anybody_reads(self, group: Group) -> None:
        topic = group.kafka.create_topic()
        group.join_and_lead()
        assert group.commit(topic, 42) == 0
        answer = group.committed(topic)
        assert (answer.committed_offset, answer.metadata) == (42, "note")

    def test_without_a_group_a_commit_needs_no_member(self, group: Group) -> None:
        topic = group.kafka.create_topic()
        assert group.commit(topic, 7) == 0
        assert group.committed(topic).committed_offset == 7
        group.becomes("Empty")

    def test_a_stranger_s_commit_is_refused_while_the_group_has_members(self, group: Group) -> None:
        topic = group.kafka.create_topic()
        group.join_and_lead()
        assert group.commit(topic, 1, member_id="", generation_id_or_member_epoch=-1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert group.commit(topic, 1, generation_id_or_member_epoch=9) == ErrorCode.ILLEGAL_GENERATION

    def test_who_has_joined_and_has_no_assignment_yet_cannot_commit(self, group: Group) -> None:
        topic = group.kafka.create_topic()
        group.member_id = group.join().member_id
        group.generation = group.join().generation_id
        group.becomes("CompletingRebalance")
        assert group.commit(topic, 3) == ErrorCode.REBALANCE_IN_PROGRESS
        group.sync()
        assert group.commit(topic, 3) == 0

    def test_while_others_join_a_member_commits_what_it_did_before(self, group: Group, connect: Any) -> None:
        topic = group.kafka.create_topic()
        group.join_and_lead()
        other = Group(connect(), group.group_id)
        other.member_id = other.join().member_id
        other.ask_to_join()
        group.kafka.until(lambda: group.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS)
        assert group.commit(topic, 3) == 0
        group.join()
        other.kafka.receive()

    def test_metadata_above_the_limit_is_too_large(self, group: Group) -> None:
        topic = group.kafka.create_topic()
        partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
        topics = [{"name": topic, "partitions": [{**partition, "committed_metadata": "x" * 5_000}]}]
        assert group.commit(topic, 1, topics=topics) == ErrorCode.OFFSET_METADATA_TOO_LARGE


class TestDeleting:
    def test_a_group_with_members_is_not_deleted(self, group: Group) -> None:
        group.join_and_lead()
        assert group.delete() == ErrorCode.NON_EMPTY_GROUP

    def test_an_empty_group_is_deleted_with_its_offsets(self, group: Group) -> None:
        topic = group.kafka.create_topic()
        group.commit(topic, 5)
        assert group.delete() == 0
        assert group.committed(topic).committed_offset == -1
        assert group.delete() == ErrorCode.GROUP_ID_NOT_FOUND
