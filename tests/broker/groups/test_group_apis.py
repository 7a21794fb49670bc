"""The group APIs on the wire, in every version, with the answers that no client asks for on a good day."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla_wire.protocol import ApiKey, ErrorCode, codec, headers, schemas
from ottla_wire.protocol.message import Message

Call = Callable[..., Message]


@pytest.fixture
def connect() -> Iterator[Callable[[str], Call]]:
    """Opens a connection to a bootstrap server; gives a function that sends a request and returns its response."""
    sockets = []

    def connect(server: str) -> Call:
        host, port = server.split(":")
        sock = socket.create_connection((host, int(port)), timeout=20)
        sockets.append(sock)

        def read(size: int) -> bytes:
            data = b""
            while len(data) < size:
                chunk = sock.recv(size - len(data))
                assert chunk, "the broker closed the connection"
                data += chunk
            return data

        def call(api: ApiKey, version: int, **body: Any) -> Message:
            sock.sendall(headers.encode_request_frame(api, version, 7, "wire", body))
            frame = read(int.from_bytes(read(4), "big"))
            _, position = headers.decode_response_header(api, version, frame)
            return codec.decode_response(api, version, frame, position)

        return call

    yield connect
    for sock in sockets:
        sock.close()


@pytest.fixture
def call(cluster: EmbeddedCluster, connect: Callable[[str], Call]) -> Call:
    call = connect(cluster.bootstrap_servers)
    call(ApiKey.FIND_COORDINATOR, 0, key="any")  # makes __consumer_offsets
    return call


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return request.node.name


def versions(api: ApiKey) -> range:
    return schemas.api(api).versions


def topic_id_of(call: Call, topic: str) -> bytes:
    return bytes(call(ApiKey.METADATA, 12, topics=[{"name": topic}]).topics[0].topic_id)


# -- FindCoordinator


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_the_coordinator_is_found(call: Call, cluster: EmbeddedCluster, version: int):
    port = int(cluster.bootstrap_servers.split(":")[1])
    if version < 4:
        found = call(ApiKey.FIND_COORDINATOR, version, key="g")
        assert (found.error_code, found.port) == (0, port)
    else:
        found = call(ApiKey.FIND_COORDINATOR, version, key_type=0, coordinator_keys=["g", "h"])
        assert [(one.key, one.error_code, one.port) for one in found.coordinators] == [("g", 0, port), ("h", 0, port)]


def test_the_first_question_about_a_group_creates_the_offsets_topic_before_it_is_answered(connect):
    with EmbeddedCluster() as fresh:
        call = connect(fresh.bootstrap_servers)
        assert call(ApiKey.FIND_COORDINATOR, 3, key="g", key_type=0).error_code == 0
        topics = call(ApiKey.METADATA, 12, topics=None).topics
        assert [(topic.name, topic.is_internal) for topic in topics] == [("__consumer_offsets", True)]


@pytest.mark.parametrize("version", [3, 6])
def test_what_is_not_coordinated_is_said(call: Call, version: int):
    for key_type, error in ((2, ErrorCode.INVALID_REQUEST), (9, ErrorCode.INVALID_REQUEST)):
        found = call(ApiKey.FIND_COORDINATOR, version, key="t", key_type=key_type, coordinator_keys=["t"])
        one = found if version < 4 else found.coordinators[0]
        assert one.error_code == error
        assert one.error_message


def test_a_broker_that_does_not_keep_the_group_says_so(connect):
    with EmbeddedCluster(brokers=3) as three:
        calls = [connect(server) for server in three.bootstrap_servers.split(",")]
        owner = calls[0](ApiKey.FIND_COORDINATOR, 3, key="g", key_type=0)
        for server, call in zip(three.bootstrap_servers.split(","), calls, strict=True):
            answer = call(ApiKey.HEARTBEAT, 4, group_id="g", generation_id=1, member_id="m")
            is_owner = int(server.split(":")[1]) == owner.port
            assert answer.error_code == (ErrorCode.UNKNOWN_MEMBER_ID if is_owner else ErrorCode.NOT_COORDINATOR)


# -- the classic protocol, version by version


def join(call: Call, version: int, group: str, **fields: Any) -> Message:
    body = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
        **fields,
    }
    answer = call(ApiKey.JOIN_GROUP, version, **body)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = call(ApiKey.JOIN_GROUP, version, **{**body, "member_id": answer.member_id})
    return answer


def upto(api: ApiKey, version: int) -> int:
    return min(version, schemas.api(api).max_version)


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_a_member_joins_syncs_lives_and_leaves(call: Call, group: str, version: int):
    joined = join(call, version, group)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id == joined.members[0].member_id
    assert bytes(joined.members[0].metadata) == b"m"
    if version >= 7:
        assert joined.protocol_type == "consumer"
    who = {"group_id": group, "member_id": joined.member_id}
    plan = [{"member_id": joined.member_id, "assignment": b"plan"}]
    synced = call(ApiKey.SYNC_GROUP, upto(ApiKey.SYNC_GROUP, version), **who, generation_id=1, assignments=plan)
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"plan")
    assert call(ApiKey.HEARTBEAT, upto(ApiKey.HEARTBEAT, version), **who, generation_id=1).error_code == 0
    described = call(ApiKey.DESCRIBE_GROUPS, upto(ApiKey.DESCRIBE_GROUPS, version), groups=[group]).groups[0]
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert described.members[0].client_id == "wire"
    assert described.members[0].client_host == "/127.0.0.1"
    left = call(
        ApiKey.LEAVE_GROUP,
        upto(ApiKey.LEAVE_GROUP, version),
        group_id=group,
        member_id=joined.member_id,
        members=[{"member_id": joined.member_id, "group_instance_id": None}],
    )
    assert left.error_code == 0
    assert call(ApiKey.HEARTBEAT, upto(ApiKey.HEARTBEAT, version), **who, generation_id=1).error_code == (
        ErrorCode.UNKNOWN_MEMBER_ID
    )


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_leaving_what_one_never_joined_is_an_error(call: Call, group: str, version: int):
    left = call(
        ApiKey.LEAVE_GROUP,
        version,
        group_id=group,
        member_id="m",
        members=[{"member_id": "m", "group_instance_id": None}],
    )
    errors = [left.error_code, *(member.error_code for member in left.members)]
    assert sorted(errors) == ([25] if version < 3 else [0, 25])


@pytest.mark.parametrize("version", [0, 6, 9])
def test_an_empty_group_id_and_a_session_timeout_out_of_range_are_refused(call: Call, group: str, version: int):
    assert join(call, version, "").error_code == ErrorCode.INVALID_GROUP_ID
    assert join(call, version, group, session_timeout_ms=5_999).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert join(call, version, group, session_timeout_ms=1_800_001).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert call(ApiKey.DESCRIBE_GROUPS, 6, groups=[group]).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_static_member_restarts_in_its_place(call: Call, group: str):
    first = join(call, 9, group, group_instance_id="i")
    plan = [{"member_id": first.member_id, "assignment": b"plan"}]
    call(ApiKey.SYNC_GROUP, 5, group_id=group, member_id=first.member_id, generation_id=1, assignments=plan)
    again = join(call, 9, group, group_instance_id="i")
    assert (again.error_code, again.generation_id, again.skip_assignment) == (0, 1, True)
    assert again.member_id.startswith("i-")
    who = {"group_id": group, "generation_id": 1, "group_instance_id": "i"}
    assert call(ApiKey.HEARTBEAT, 4, **who, member_id=first.member_id).error_code == ErrorCode.FENCED_INSTANCE_ID
    synced = call(ApiKey.SYNC_GROUP, 5, **who, member_id=again.member_id, assignments=[])
    assert bytes(synced.assignment) == b"plan"


# -- offsets, version by version


def commit(call: Call, version: int, group: str, topic: str, *, offset: int = 5, partition: int = 0, **fields: Any):
    topic_id = topic_id_of(call, topic)
    body = {
        "group_id": group,
        "topics": [
            {
                "name": topic,
                "topic_id": topic_id,
                "partitions": [
                    {"partition_index": partition, "committed_offset": offset, "committed_metadata": "note"}
                ],
            }
        ],
        **fields,
    }
    answer = call(ApiKey.OFFSET_COMMIT, version, **body).topics[0]
    if version >= 10:
        assert bytes(answer.topic_id) == topic_id
    else:
        assert answer.name == topic
    return answer.partitions[0].error_code


def fetch(call: Call, version: int, group: str, topic: str, *, everything: bool = False, **fields: Any) -> Message:
    """The answer for partition 0 (or for the group, if there is none)."""
    topic_id = topic_id_of(call, topic)
    by_id = {"topic_id": topic_id} if version >= 8 else {}
    topics = None if everything else [{"name": topic, **by_id, "partition_indexes": [0]}]
    body = {"group_id": group, "topics": topics} if version < 8 else {"groups": [{"group_id": group, "topics": topics}]}
    answer = call(ApiKey.OFFSET_FETCH, version, **body, **fields)
    answer = answer if version < 8 else answer.groups[0]
    return answer.topics[0].partitions[0] if answer.topics else answer


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_offsets_are_committed(call: Call, group: str, topic: str, version: int):
    assert commit(call, version, group, topic) == 0
    found = fetch(call, 9, group, topic)
    assert (found.committed_offset, found.metadata, found.error_code) == (5, "note", 0)
    assert commit(call, version, group, topic, partition=99) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(call, version, group, topic, generation_id_or_member_epoch=4, member_id="m") == (
        ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert commit(call, version, "", topic) == ErrorCode.NONE  # as in Kafka, for old clients' sake


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_offsets_are_read_back(call: Call, group: str, topic: str, version: int):
    assert fetch(call, version, group, topic).committed_offset == -1
    commit(call, 8, group, topic)
    found = fetch(call, version, group, topic)
    assert (found.committed_offset, found.metadata, found.error_code) == (5, "note", 0)
    if version >= 2:
        assert fetch(call, version, group, topic, everything=True).committed_offset == 5


def test_a_topic_id_that_no_topic_has_is_said(call: Call, group: str):
    unknown = {"topic_id": b"?" * 16}
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": None}]
    answer = call(ApiKey.OFFSET_COMMIT, 10, group_id=group, topics=[{**unknown, "partitions": partitions}])
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    wanted = {"group_id": group, "topics": [{**unknown, "partition_indexes": [0]}]}
    answer = call(ApiKey.OFFSET_FETCH, 10, groups=[wanted])
    assert answer.groups[0].topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_several_groups_are_read_at_once(call: Call, group: str, topic: str):
    commit(call, 8, f"{group}-1", topic, offset=1)
    commit(call, 8, f"{group}-2", topic, offset=2)
    wanted = [{"group_id": f"{group}-{number}", "topics": None} for number in (1, 2, 3)]
    answer = call(ApiKey.OFFSET_FETCH, 8, groups=wanted)
    found = [[one.partitions[0].committed_offset for one in each.topics] for each in answer.groups]
    assert found == [[1], [2], []]


def test_offsets_are_deleted_one_by_one(call: Call, group: str, topic: str):
    commit(call, 8, group, topic)
    wanted = [{"name": topic, "partitions": [{"partition_index": 0}, {"partition_index": 99}]}]
    answer = call(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=wanted)
    assert [one.error_code for one in answer.topics[0].partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert fetch(call, 9, group, topic).committed_offset == -1
    nobody = call(ApiKey.OFFSET_DELETE, 0, group_id=f"{group}-nobody", topics=wanted)
    assert nobody.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_a_deleted_topic_do_not_come_back_with_a_new_topic_of_its_name(
    call: Call, cluster: EmbeddedCluster, group: str, topic: str
):
    commit(call, 8, group, topic)
    call(ApiKey.DELETE_TOPICS, 5, topic_names=[topic], timeout_ms=10_000)
    cluster.create_topic(topic)
    assert fetch(call, 9, group, topic).committed_offset == -1


# -- operators


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_groups_are_listed_by_state_and_type(call: Call, group: str, topic: str, version: int):
    commit(call, 8, group, topic)

    def listed(**filters: Any) -> bool:
        return group in [one.group_id for one in call(ApiKey.LIST_GROUPS, version, **filters).groups]

    assert listed()
    if version >= 4:
        assert listed(states_filter=["empty"])
        assert not listed(states_filter=["Stable"])
    if version >= 5:
        assert listed(types_filter=["Classic"])
        assert not listed(types_filter=["consumer"])


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_each_group_to_delete_has_its_own_answer(call: Call, group: str, topic: str, version: int):
    commit(call, 8, group, topic)
    alive = join(call, 5, f"{group}-alive")
    assert alive.error_code == 0
    answer = call(ApiKey.DELETE_GROUPS, version, groups_names=[group, f"{group}-alive", f"{group}-nobody"])
    assert [one.error_code for one in answer.results] == [0, ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_a_group_nobody_knows_is_dead(call: Call, group: str, version: int):
    described = call(ApiKey.DESCRIBE_GROUPS, version, groups=[group], include_authorized_operations=version >= 3)
    assert described.groups[0].group_state == "Dead"
    assert described.groups[0].error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


# -- KIP-848


def beat(call: Call, version: int, group: str, **fields: Any) -> Message:
    return call(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **{"group_id": group, "member_id": "", "member_epoch": 0, **fields}
    )


@pytest.mark.parametrize("version", versions(ApiKey.CONSUMER_GROUP_HEARTBEAT))
def test_a_member_of_the_new_protocol_joins_is_described_and_leaves(call: Call, group: str, topic: str, version: int):
    member_id = "chosen" if version >= 1 else ""
    joined = beat(
        call,
        version,
        group,
        member_id=member_id,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (0, 1, 100)
    assert joined.member_id == member_id or version == 0
    assert [sorted(one.partitions) for one in joined.assignment.topic_partitions] == [[0, 1, 2, 3, 4, 5]]
    for describe in versions(ApiKey.CONSUMER_GROUP_DESCRIBE):
        described = call(ApiKey.CONSUMER_GROUP_DESCRIBE, describe, group_ids=[group, "nobody"]).groups
        assert (described[0].group_state, described[0].group_epoch, described[0].assignor_name) == (
            "Stable",
            1,
            "uniform",
        )
        assert described[0].members[0].assignment.topic_partitions[0].topic_name == topic
        assert described[1].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    left = beat(call, version, group, member_id=joined.member_id, member_epoch=-1)
    assert (left.error_code, left.member_epoch) == (0, -1)


def test_from_version_1_on_a_member_chooses_its_id(call: Call, group: str, topic: str):
    sound = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": [topic], "topic_partitions": []}
    refused = beat(call, 1, group, **sound)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "member id" in refused.error_message


def test_the_new_protocol_can_be_switched_off(connect):
    with EmbeddedCluster(config={"group.coordinator.rebalance.protocols": "classic"}) as classic:
        call = connect(classic.bootstrap_servers)
        assert beat(call, 1, "g", member_id="m").error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_commit_of_an_older_epoch_is_stale(call: Call, group: str, topic: str):
    beat(
        call,
        1,
        group,
        member_id="m",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    assert commit(call, 9, group, topic, member_id="m", generation_id_or_member_epoch=1) == 0
    assert commit(call, 9, group, topic, member_id="m", generation_id_or_member_epoch=0) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(call, 8, group, topic, member_id="m", generation_id_or_member_epoch=1) == (
        ErrorCode.UNSUPPORTED_VERSION
    )
