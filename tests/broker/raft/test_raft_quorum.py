"""Members of the metadata quorum with their logs, timers and wires: elections, failover, the old leader's return."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from broker_embedded.common.errors import BrokerError, StartupError
from broker_embedded.common.filesystem import read_whole, write_whole
from broker_embedded.controller.raft import wire
from broker_embedded.controller.raft.messages import VoteRequest
from broker_embedded.controller.raft.raft_quorum import FATE_S
from broker_embedded.metadata.records import CreateTopic
from ottla_wire.protocol import ApiKey, ErrorCode, codec
from ottla_wire.records.batch import iter_batches
from ottla_wire.records.record import decode_batch

Make = Callable[..., Any]


def started(world: Make, *, nodes: int, voters: int) -> Any:
    """A world whose nodes all run and whose first node leads."""
    made = world(nodes=nodes, voters=voters)
    for node in made.disks:
        made.start(node)
    made.until(made.leader)
    return made


def test_a_fresh_cluster_has_its_first_voter_as_controller_after_a_few_milliseconds(world: Make) -> None:
    cluster = world(nodes=3, voters=3)
    before = cluster.loop.time()
    for node in (1, 2, 3):
        cluster.start(node)
    assert cluster.until(cluster.leader) == 1
    assert cluster.loop.time() - before < 0.02
    cluster.until(lambda: all(member.leader_id == 1 for member in cluster.members.values()))
    assert cluster.subscribers[1].leaderships[-1] == (True, 1)


def test_a_first_voter_that_starts_before_the_others_asks_them_again(world: Make) -> None:
    cluster = world(nodes=3, voters=3)
    cluster.start(1)
    cluster.run(0.05)
    assert cluster.leader() is None
    cluster.start(2)
    assert cluster.until(cluster.leader, within_s=0.15) == 1


def test_a_new_leader_knows_how_long_the_one_before_was_silent(world: Make) -> None:
    cluster = started(world, nodes=3, voters=3)
    cluster.run(1)
    cluster.kill(1)
    died = cluster.loop.time()
    new = cluster.until(cluster.leader)
    took_ms = (cluster.loop.time() - died) * 1000
    quorum = cluster.members[new]
    assert took_ms >= 400, "the fetch timeout"
    assert quorum.silence_of(1) == 400, "what goes beyond a fetch timeout may be the new leader's own lateness"
    assert [quorum.silence_of(node) for node in (2, 3)] == [0, 0]


def test_an_append_is_answered_when_every_subscriber_of_the_leader_has_it_and_reaches_all_nodes(world: Make) -> None:
    cluster = started(world, nodes=4, voters=3)
    seen: list[list[str]] = []
    cluster.members[1].append(
        [CreateTopic(name="a", topic_id=bytes(16))], lambda error: seen.append(cluster.subscribers[1].names)
    )
    assert seen == []
    cluster.until(lambda: seen)
    assert seen == [["a"]]
    cluster.until(lambda: cluster.everybody_has("a"))  # node 4 observes
    assert cluster.members[4].leader_id == 1


def test_a_change_of_two_megabytes_is_one_batch(world: Make) -> None:
    cluster = started(world, nodes=3, voters=3)
    names = [f"{index:0240}" for index in range(8_000)]
    cluster.append(1, *names)
    cluster.until(lambda: cluster.answered)
    assert cluster.answered == [None]
    cluster.until(lambda: cluster.everybody_has(*names))


def test_every_node_is_given_every_offset_in_the_same_order(world: Make) -> None:
    cluster = started(world, nodes=3, voters=3)
    names = [f"t{index}" for index in range(20)]
    for name in names:
        cluster.append(1, name)
    cluster.until(lambda: cluster.everybody_has(*names))
    cluster.until(lambda: len({each.last_offset for each in cluster.subscribers.values()}) == 1)
    assert cluster.answered == [None] * 20


def test_an_append_elsewhere_than_at_the_controller_is_refused(world: Make) -> None:
    cluster = started(world, nodes=3, voters=3)
    cluster.append(2, "a")
    (error,) = cluster.answered
    assert error.code == ErrorCode.NOT_CONTROLLER


def test_an_append_from_within_a_subscriber_is_delivered_after_the_batch_it_reacts_to(world: Make) -> None:
    cluster = started(world, nodes=3, voters=3)
    order: list[str] = []

    def react(batch: Any) -> None:
        order.extend(record.name for record in batch.records)
        if order == ["a"]:
            cluster.append(1, "b")

    cluster.members[1].subscribe(react)
    cluster.append(1, "a")
    cluster.until(lambda: cluster.everybody_has("a", "b"))
    assert order == ["a", "b"]


def test_when_the_controller_dies_another_has_everything_in_less_than_a_second_and_the_old_one_follows(
    world: Make,
) -> None:
    cluster = started(world, nodes=3, voters=3)
    cluster.append(1, "before")
    cluster.until(lambda: cluster.answered == [None])
    cluster.kill(1)
    died = cluster.loop.time()
    second = cluster.until(cluster.leader)
    assert cluster.loop.time() - died < 1
    assert second in (2, 3)
    cluster.append(second, "after")
    cluster.until(lambda: cluster.answered == [None, None])
    cluster.start(1)
    cluster.until(lambda: cluster.everybody_has("before", "after"))
    assert cluster.leader() == second
    assert cluster.members[1].epoch == cluster.members[second].epoch > 1


def test_a_controller_that_was_cut_off_cannot_commit_and_truncates_when_it_returns(world: Make) -> None:
    cluster = started(world, nodes=3, voters=3)
    cluster.append(1, "kept")
    cluster.until(lambda: cluster.everybody_has("kept"))
    cluster.isolate(1)
    cluster.append(1, "lost", "lost too")
    second = cluster.until(lambda: next((n for n in (2, 3) if cluster.members[n].is_leader), None))
    cluster.until(lambda: not cluster.members[1].is_leader)
    cluster.until(lambda: len(cluster.answered) == 2)
    assert cluster.answered[0] is None
    assert cluster.answered[1].code == ErrorCode.NOT_CONTROLLER
    cluster.append(second, "kept too")
    cluster.until(lambda: cluster.answered[2:] == [None])
    cluster.cut.clear()
    cluster.until(lambda: cluster.everybody_has("kept", "kept too"))
    assert cluster.subscribers[1].leaderships[-1][0] is False
    logs = {node: stored_bytes(cluster, node) for node in (1, 2, 3)}
    assert logs[1] == logs[2] == logs[3]


def test_an_append_that_the_next_controller_commits_was_done(world: Make) -> None:
    """Who is told NOT_CONTROLLER asks the next one, which refuses to create what is there."""
    cluster = started(world, nodes=3, voters=3)
    cluster.append(1, "before")
    cluster.until(lambda: cluster.everybody_has("before"))
    cluster.run(0.01)  # followers' fetches wait at node 1
    end = cluster.stores[2].logs[0].log_end_offset
    cluster.cut |= {(2, 1), (3, 1)}
    cluster.append(1, "a")
    cluster.until(lambda: cluster.stores[2].logs[0].log_end_offset > end)
    assert cluster.answered == [None], "node 1 does not know that others have it"
    second = cluster.until(lambda: next((n for n in (2, 3) if cluster.members[n].is_leader), None))
    cluster.until(lambda: not cluster.members[1].is_leader)
    assert cluster.answered == [None]
    cluster.cut.clear()
    cluster.until(lambda: cluster.everybody_has("before", "a"))
    cluster.until(lambda: len(cluster.answered) == 2)
    assert cluster.answered == [None, None]
    assert cluster.leader() == second


def test_an_append_whose_fate_nobody_tells_is_given_up_in_seconds(world: Make) -> None:
    cluster = started(world, nodes=3, voters=3)
    cluster.isolate(1)
    cluster.append(1, "a")
    cluster.until(lambda: not cluster.members[1].is_leader)
    assert not cluster.answered
    lost = cluster.loop.time()
    cluster.until(lambda: cluster.answered)
    assert cluster.answered[0].code == ErrorCode.NOT_CONTROLLER
    assert cluster.loop.time() - lost == pytest.approx(FATE_S, abs=1)


def test_a_controller_that_leads_again_before_another_did_commits_what_it_appended(world: Make) -> None:
    cluster = started(world, nodes=3, voters=3)
    cluster.append(1, "before")
    cluster.until(lambda: cluster.everybody_has("before"))
    for other in (2, 3):
        cluster.kill(other, loses_power=False)
    cluster.append(1, "a")
    cluster.until(lambda: not cluster.members[1].is_leader)
    cluster.start(2)
    assert cluster.until(cluster.leader) == 1, "its log is longer"
    cluster.until(lambda: len(cluster.answered) == 2)
    assert cluster.answered == [None, None]
    cluster.append(1, "b")
    cluster.until(lambda: cluster.answered == [None, None, None])


def stored_bytes(cluster: Any, node: int) -> bytes:
    log = cluster.stores[node].logs[0]
    return b"".join(log.read(0, 1 << 20).buffers())


def test_a_controller_that_stops_cleanly_is_followed_at_once(world: Make) -> None:
    cluster = started(world, nodes=3, voters=3)
    cluster.append(1, "a")
    cluster.until(lambda: cluster.everybody_has("a"))
    before = cluster.loop.time()
    cluster.loop.run_until_complete(cluster.members[1].resign())
    cluster.kill(1, loses_power=False)
    assert cluster.until(cluster.leader) in (2, 3)
    assert cluster.loop.time() - before < 0.05


def test_a_controller_that_sleeps_is_replaced_and_finds_that_out_when_it_wakes(world: Make) -> None:
    cluster = started(world, nodes=3, voters=3)
    cluster.append(1, "a")
    cluster.until(lambda: cluster.everybody_has("a"))
    cluster.isolate(1)
    sleeper = cluster.members[1]
    sleeper.pause()
    second = cluster.until(lambda: next((n for n in (2, 3) if cluster.members[n].is_leader), None))
    cluster.append(second, "b")
    cluster.until(lambda: len(cluster.answered) == 2)
    cluster.run(30)
    assert sleeper.is_leader, "it has not looked"
    cluster.cut.clear()
    sleeper.resume()
    woken = cluster.loop.time()
    cluster.until(lambda: not sleeper.is_leader)
    assert cluster.loop.time() - woken < 0.02
    cluster.until(lambda: cluster.everybody_has("a", "b"))
    assert cluster.leader() == second


def test_without_a_majority_nothing_is_committed(world: Make) -> None:
    cluster = started(world, nodes=3, voters=3)
    cluster.kill(2)
    cluster.kill(3)
    cluster.append(1, "a")
    cluster.until(lambda: cluster.answered)
    assert cluster.answered[0].code == ErrorCode.NOT_CONTROLLER
    assert cluster.subscribers[1].names == []
    cluster.start(2)
    leader = cluster.until(cluster.leader)
    cluster.append(leader, "b")
    cluster.until(lambda: len(cluster.answered) == 2)
    assert cluster.answered[1] is None


@pytest.mark.parametrize("loses_power", [True, False])
def test_a_whole_cluster_that_restarts_has_its_metadata_and_a_higher_epoch(world: Make, loses_power: bool) -> None:
    cluster = started(world, nodes=4, voters=3)
    cluster.append(1, "a")
    cluster.until(lambda: cluster.everybody_has("a"))
    epoch = cluster.members[1].epoch
    for node in (1, 2, 3, 4):
        cluster.kill(node, loses_power=loses_power)
    for node in (4, 3, 2, 1):
        cluster.start(node)
    leader = cluster.until(cluster.leader, within_s=1)
    assert cluster.members[leader].epoch > epoch
    cluster.until(lambda: cluster.everybody_has("a"))


def test_one_voter_needs_no_message_and_observers_follow_it(world: Make) -> None:
    cluster = world(nodes=2, voters=1)
    cluster.start(1)
    assert cluster.members[1].is_leader
    cluster.append(1, "a")
    assert cluster.answered == [None]
    cluster.start(2)
    cluster.until(lambda: cluster.everybody_has("a"))
    cluster.kill(1)
    cluster.start(1)
    assert cluster.subscribers[1].names == ["a"]
    cluster.append(1, "b")
    cluster.until(lambda: cluster.everybody_has("a", "b"))


def test_observers_follow_the_quorum_of_one_voter_that_commits_at_once(world: Make) -> None:
    cluster = world(nodes=3, voters=1)
    cluster.start_single_voter()
    cluster.append(1, "a")
    assert cluster.answered == [None]
    cluster.start(2)
    cluster.start(3)
    cluster.until(lambda: cluster.everybody_has("a"))
    before = cluster.loop.time()
    cluster.append(1, "b")
    cluster.until(lambda: cluster.everybody_has("a", "b"))
    assert cluster.loop.time() - before < 0.02, "a waiting fetch is woken by the append"
    view = cluster.members[1].describe()
    assert [each.replica_id for each in view.observers] == [2, 3]
    cluster.kill(1)
    cluster.start_single_voter()
    cluster.append(1, "c")
    cluster.until(lambda: cluster.everybody_has("a", "b", "c"))
    assert cluster.members[2].epoch == 2


def test_five_voters_survive_two_deaths(world: Make) -> None:
    cluster = started(world, nodes=5, voters=5)
    cluster.append(1, "a")
    cluster.until(lambda: cluster.answered == [None])
    cluster.kill(1)
    second = cluster.until(cluster.leader)
    cluster.kill(second)
    third = cluster.until(cluster.leader)
    cluster.append(third, "b")
    cluster.until(lambda: cluster.everybody_has("a", "b"))


def test_the_quorum_is_described_by_its_leader_alone(world: Make) -> None:
    cluster = started(world, nodes=4, voters=3)
    cluster.append(1, "a")
    cluster.until(lambda: cluster.everybody_has("a"))
    cluster.run(0.5)
    view = cluster.members[1].describe()
    assert (view.leader_id, view.epoch, view.high_watermark) == (1, 1, 2)
    assert [each.replica_id for each in view.voters] == [1, 2, 3]
    assert [each.replica_id for each in view.observers] == [4]
    now_ms = cluster.clock.now_ms()
    for each in (*view.voters, *view.observers):
        assert each.log_end_offset == 2
        assert now_ms - 500 <= each.last_fetch_ms <= now_ms
        assert now_ms - 500 <= each.last_caught_up_ms <= now_ms
    with pytest.raises(BrokerError) as refused:
        cluster.members[2].describe()
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- files


def test_the_promise_is_in_kafkas_file_and_the_epoch_begins_with_kafkas_control_record(world: Make) -> None:
    cluster = started(world, nodes=3, voters=3)
    cluster.until(lambda: cluster.members[2].leader_id == 1)
    path = "/controller-{}/__cluster_metadata-0/quorum-state"
    assert read_whole(cluster.disks[1], path.format(1)).decode() == (
        '{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}'
    )
    assert json.loads(read_whole(cluster.disks[2], path.format(2)))["leaderId"] == 1
    data = stored_bytes(cluster, 1)
    ((_, header),) = iter_batches(data)
    assert header.is_control
    assert header.partition_leader_epoch == 1
    (record,) = decode_batch(data)
    assert record.key == bytes.fromhex("0000 0002")
    head, voters = "0000 00000001", "04 0000000100 0000000200 0000000300"
    granting = "03 0000000100 0000000200"
    assert record.value is not None
    assert record.value.startswith(bytes.fromhex(head + voters))
    assert record.value[-12:-6] == bytes.fromhex(granting)[:6]
    assert record.value[-1] == 0


def test_a_state_that_kafka_wrote_with_directory_ids_is_read_and_damage_is_refused(world: Make) -> None:
    cluster = world(nodes=1, voters=1)
    cluster.start(1)
    cluster.kill(1)
    path = "/controller-1/__cluster_metadata-0/quorum-state"
    text = b'{"leaderId":-1,"leaderEpoch":7,"votedId":1,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}'
    write_whole(cluster.disks[1], path, text)
    cluster.start(1)
    assert cluster.members[1].epoch == 8
    cluster.kill(1)
    write_whole(cluster.disks[1], path, b'{"leaderId":1}')
    with pytest.raises(StartupError, match="quorum-state is not a quorum state"):
        cluster.start(1)


def test_a_vote_is_on_the_disk_before_it_is_answered_and_survives_the_power(world: Make) -> None:
    cluster = world(nodes=3, voters=3)
    cluster.start(2)
    assert vote(cluster, voter=2, candidate=3, epoch=5) == (ErrorCode.NONE, True)
    cluster.kill(2)
    cluster.start(2)
    assert vote(cluster, voter=2, candidate=1, epoch=5) == (ErrorCode.NONE, False)
    assert vote(cluster, voter=2, candidate=3, epoch=5) == (ErrorCode.NONE, True)


def test_a_disk_that_fails_ends_the_membership_and_grants_nothing(
    world: Make, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = started(world, nodes=3, voters=3)
    cluster.until(lambda: cluster.members[1].is_leader)

    def broken(operation: str, path: str) -> None:
        if operation == "flush":
            raise OSError(5, "Input/output error", path)

    cluster.disks[1].before_change = broken
    with pytest.raises(BrokerError) as refused:
        cluster.append(1, "a")
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not cluster.members[1].is_leader
    assert cluster.subscribers[1].leaderships[-1][0] is False
    assert cluster.until(lambda: next((n for n in (2, 3) if cluster.members[n].is_leader), None)) in (2, 3)
    assert "leaves the metadata quorum" in caplog.text
    cluster.disks[1].before_change = None


# --- requests that concern another cluster, another node, another log


def vote(cluster: Any, *, voter: int, candidate: int, epoch: int) -> tuple[ErrorCode, bool]:
    request = VoteRequest(candidate_id=candidate, epoch=epoch, last_epoch=0, end_offset=0)
    body = wire.encode_request(request, to=voter, cluster_id="a-cluster", max_wait_ms=0)
    answer = ask(cluster, voter, ApiKey.VOTE, 2, body)
    (partition,) = answer.topics[0].partitions
    return ErrorCode(partition.error_code), partition.vote_granted


def ask(cluster: Any, node: int, api: ApiKey, version: int, body: Any) -> Any:
    request = codec.decode_request(api, version, codec.encode_request(api, version, body))
    answer = cluster.dispatch(cluster.members[node], api, request)
    if isinstance(answer, asyncio.Future):
        answer = cluster.loop.run_until_complete(answer)
    return codec.decode_response(api, version, codec.encode_response(api, version, answer))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"voter_id": 9}, ErrorCode.INVALID_VOTER_KEY),
        ({"topics": []}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_vote_that_is_not_meant_for_this_quorum_is_refused(
    world: Make, change: dict[str, Any], error: ErrorCode
) -> None:
    cluster = started(world, nodes=3, voters=3)
    request = VoteRequest(candidate_id=2, epoch=9, last_epoch=0, end_offset=0)
    body = wire.encode_request(request, to=1, cluster_id="a-cluster", max_wait_ms=0) | change
    assert ask(cluster, 1, ApiKey.VOTE, 2, body).error_code == error
    assert cluster.members[1].epoch == 1


def test_a_candidate_that_is_no_voter_and_one_that_is_behind_are_refused(world: Make) -> None:
    cluster = started(world, nodes=3, voters=3)
    assert vote(cluster, voter=1, candidate=7, epoch=9) == (ErrorCode.INCONSISTENT_VOTER_SET, False)
    assert vote(cluster, voter=1, candidate=2, epoch=0) == (ErrorCode.FENCED_LEADER_EPOCH, False)


@pytest.mark.parametrize("version", [4, 12, 17, 18])
def test_a_consumer_reads_the_committed_metadata_log_at_every_version(world: Make, version: int) -> None:
    cluster = started(world, nodes=3, voters=3)
    cluster.append(1, "a")
    cluster.until(lambda: cluster.everybody_has("a"))
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "log_start_offset": -1}
    topic = {"topic": "__cluster_metadata", "topic_id": bytes(15) + b"\x01", "partitions": [partition]}
    body = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": 0, "topics": [topic]}
    body |= {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
    answer = ask(cluster, 1, ApiKey.FETCH, version, body)
    (read,) = answer.responses[0].partitions
    assert (read.error_code, read.high_watermark) == (0, 2)
    assert bytes(read.records) == stored_bytes(cluster, 1)
    elsewhere = ask(cluster, 2, ApiKey.FETCH, version, body)
    (refused,) = elsewhere.responses[0].partitions
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_nobody_is_answered_before_the_start_and_after_the_end(world: Make) -> None:
    cluster = started(world, nodes=3, voters=3)
    cluster.members[2].close()
    request = VoteRequest(candidate_id=3, epoch=9, last_epoch=0, end_offset=0)
    body = wire.encode_request(request, to=2, cluster_id="a-cluster", max_wait_ms=0)
    assert ask(cluster, 2, ApiKey.VOTE, 2, body).error_code == ErrorCode.BROKER_NOT_AVAILABLE
