"""Two or three brokers replicate a partition: acknowledgements, high watermarks, ISR changes, elections, lost disks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker_embedded.common.types import TopicPartition
from broker_embedded.metadata.records import CreatePartition, CreateTopic
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records.record import RecordData, encode_batch

MakeCluster = Callable[..., Any]
NONE = ErrorCode.NONE


def test_followers_copy_what_the_leader_appends_and_acks_all_waits_for_them(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    results = cluster[1].append(b"a", b"b")
    assert results == [], "nobody else has it yet"
    cluster.settle()
    assert [each.error for each in results] == [NONE]
    assert [cluster[node].values() for node in (1, 2, 3)] == [[b"a", b"b"]] * 3
    assert cluster[1].partition().high_watermark == 2


def test_a_follower_keeps_the_bytes_as_they_are_and_learns_the_leader_epochs(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    cluster[1].append(b"a")
    cluster.settle()
    cluster.elect(2)
    cluster.settle()
    cluster[2].append(b"b")
    cluster.settle()
    logs = [cluster[node].partition().log for node in (1, 2, 3)]
    stored = [b"".join(each.read(0, 1 << 20).buffers()) for each in logs]
    assert stored[0] == stored[1] == stored[2]
    assert [list(each.leader_epochs) for each in logs] == [[(0, 0), (1, 1)]] * 3


def test_followers_learn_the_high_watermark_with_the_next_records(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    cluster[1].append(b"a")
    cluster.settle()
    cluster[1].append(b"b")
    cluster.settle()
    assert cluster[2].partition().high_watermark >= 1
    cluster.advance(1_000)  # the long poll ends
    assert [cluster[node].partition().high_watermark for node in (1, 2, 3)] == [2, 2, 2]


def test_acks_1_does_not_wait_and_acks_all_times_out_without_followers(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    cluster.wire.cut |= {(2, 1), (3, 1)}
    cluster.wire.fail(1, 2)
    cluster.wire.fail(1, 3)
    assert [each.error for each in cluster[1].append(b"a", acks=1)] == [NONE]
    results = cluster[1].append(b"b", timeout_ms=1_000)
    cluster.advance(1_500)
    assert [each.error for each in results] == [ErrorCode.REQUEST_TIMED_OUT]
    assert cluster[1].values() == [b"a", b"b"], "what timed out stays in the log"
    assert cluster[1].partition().high_watermark == 0


def test_a_follower_that_lags_leaves_the_isr_and_comes_back_when_it_has_caught_up(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    cluster.wire.cut.add((3, 1))
    cluster.wire.fail(3, 1)
    results = cluster[1].append(b"a")
    cluster.settle()
    assert results == []
    cluster.advance(29_000)
    assert cluster.state.isr == (1, 2, 3), "not before replica.lag.time.max.ms"
    cluster.advance(20_000)
    assert cluster.state.isr == (1, 2)
    assert [each.error for each in results] == [NONE], "the smaller ISR has it"
    cluster.wire.cut.clear()
    cluster.advance(2_000)
    assert set(cluster.state.isr) == {1, 2, 3}
    assert cluster[3].values() == [b"a"]


def test_a_follower_without_new_records_stays_in_the_isr(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    cluster.advance(120_000, step_ms=250)
    assert cluster.state.isr == (1, 2, 3)


def test_too_few_in_sync_replicas_refuse_before_and_after_the_append(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create(min_insync_replicas=3)
    cluster.wire.cut.add((3, 1))
    cluster.wire.fail(3, 1)
    after = cluster[1].append(b"a")
    cluster.advance(50_000)
    assert cluster.state.isr == (1, 2)
    assert [each.error for each in after] == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    before = cluster[1].append(b"b")
    assert [each.error for each in before] == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert cluster[1].values() == [b"a"], "the second one was not appended"
    assert cluster[1].partition().high_watermark == 0, "consumers are shown nothing that too few have"
    cluster.wire.cut.clear()
    cluster.advance(2_000)
    assert cluster[1].partition().high_watermark == 1


def test_who_waits_for_acks_all_is_told_when_the_leader_changes(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    cluster.wire.cut |= {(2, 1), (3, 1)}
    cluster.wire.fail(1, 2)
    cluster.wire.fail(1, 3)
    results = cluster[1].append(b"a")
    cluster.settle()
    cluster.elect(2)
    assert [each.error for each in results] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_after_a_clean_election_the_old_leader_cuts_what_nobody_else_has(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    cluster[1].append(b"both")
    cluster.settle()
    cluster.wire.cut |= {(2, 1), (3, 1)}
    cluster.wire.fail(1, 2)
    cluster.wire.fail(1, 3)
    cluster[1].append(b"only 1", b"only 1 too", acks=1)
    cluster.elect(2, isr=(2, 3))
    cluster[2].append(b"after", acks=-1)
    cluster.wire.cut.clear()
    cluster.advance(2_000)
    assert [cluster[node].values() for node in (1, 2, 3)] == [[b"both", b"after"]] * 3
    assert set(cluster.state.isr) == {1, 2, 3}


def test_logs_that_parted_in_several_epochs_come_together(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    cluster.create((1, 2))
    cluster[1].append(b"shared")
    cluster.settle()
    cluster.wire.cut.add((2, 1))
    cluster.wire.fail(2, 1)
    for round_number in range(3):  # each writes while the other is away, by unclean elections
        cluster.elect(1, isr=(1,))
        cluster[1].append(b"1 in round %d" % round_number, acks=1)
        cluster.elect(2, isr=(2,))
        cluster[2].append(b"2 in round %d" % round_number, acks=1)
    cluster.elect(1, isr=(1,))
    cluster.wire.cut.clear()
    cluster.advance(3_000)
    cluster[1].append(b"end")
    cluster.settle()
    assert cluster[1].values() == [b"shared", *(b"1 in round %d" % each for each in range(3)), b"end"]
    assert cluster[2].values() == cluster[1].values()
    assert cluster[2].partition().log.leader_epochs == cluster[1].partition().log.leader_epochs


def test_a_leader_that_resigned_before_its_first_append_can_follow(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    cluster.create((1, 2))
    cluster[1].append(b"a")
    cluster.settle()
    cluster.tells_at_once = False
    cluster.elect(2)
    cluster[2].catch_up()  # 2 knows that it leads epoch 1, and nothing comes of it
    cluster.elect(1)
    cluster.tells_at_once = True
    cluster.tell()
    cluster[1].append(b"b")
    cluster.advance(1_000)
    assert cluster[2].values() == [b"a", b"b"]


def test_an_unclean_leader_makes_the_others_give_up_what_it_does_not_have(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    cluster.create((1, 2))
    cluster[1].append(b"a")
    cluster.settle()
    cluster.wire.cut.add((2, 1))
    cluster.wire.fail(2, 1)
    results = cluster[1].append(b"b")
    cluster.advance(50_000)
    assert cluster.state.isr == (1,)
    assert [each.error for each in results] == [NONE]
    cluster.elect(2, isr=(2,))
    cluster.wire.cut.clear()
    cluster[2].append(b"c", acks=1)
    cluster.advance(2_000)
    assert cluster[1].values() == cluster[2].values() == [b"a", b"c"]


def test_a_broker_with_an_empty_disk_copies_everything_again(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    cluster[1].append(b"a", b"b")
    cluster.settle()
    cluster.change(isr=(1, 2))
    cluster[3].stop()
    cluster[3].wipe()
    cluster[3].start()
    cluster.advance(1_000)
    assert cluster[3].values() == [b"a", b"b"]
    assert set(cluster.state.isr) == {1, 2, 3}


def test_a_leader_whose_disk_was_lost_makes_nobody_in_sync_delete_what_was_acknowledged(
    make_cluster: MakeCluster,
) -> None:
    """KAFKA-3410: the broker comes back as the leader, with nothing, and is not the result of an unclean election."""
    cluster = make_cluster()
    cluster.create()
    cluster[1].append(b"a", b"b")
    cluster.settle()
    cluster.advance(1_000)
    cluster[1].stop()
    cluster[1].wipe()
    cluster[1].start()
    cluster.elect(1)
    cluster.advance(60_000, step_ms=250)
    assert cluster[1].values() == []
    assert cluster[2].values() == cluster[3].values() == [b"a", b"b"]
    cluster.elect(2, isr=(2, 3))  # who still has it leads again, and the empty one gets it back
    cluster.advance(2_000)
    assert cluster[1].values() == [b"a", b"b"]
    assert set(cluster.state.isr) == {1, 2, 3}


def test_a_follower_that_the_leaders_log_start_has_passed_starts_anew_there(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    cluster.create((1, 2))
    cluster[1].append(b"a")
    cluster.settle()
    cluster.wire.cut.add((2, 1))
    cluster.wire.fail(2, 1)
    for value in (b"b", b"c", b"d"):
        cluster[1].append(value)
    cluster.advance(50_000)
    own = cluster[1].partition().log
    own.roll()
    own.delete_records(3)
    cluster.wire.cut.clear()
    cluster.advance(2_000)
    assert cluster[2].partition().log_start_offset == 3
    assert cluster[2].values() == [b"d"]
    assert set(cluster.state.isr) == {1, 2}


def test_a_follower_moves_its_log_start_as_the_leader_does(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    cluster.create((1, 2))
    for value in (b"a", b"b", b"c"):
        cluster[1].append(value)
    cluster.settle()
    cluster[1].partition().log.delete_records(2)
    cluster.advance(2_000)
    assert cluster[2].partition().log_start_offset == 2


def test_a_new_replica_joins_and_a_removed_one_deletes_its_files(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create((1, 2))
    cluster[1].append(b"a")
    cluster.settle()
    cluster.change(replicas=(1, 2, 3), adding_replicas=(3,))
    cluster.advance(1_000)
    assert set(cluster.state.isr) == {1, 2, 3}
    cluster.change(replicas=(1, 3), isr=(1, 3), adding_replicas=())
    cluster.advance(1_000)
    assert cluster[2].logs.get("t", 0) is None
    assert cluster[3].values() == [b"a"]


def test_a_replica_that_was_moved_away_while_its_broker_was_down_is_deleted_at_its_start(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster()
    cluster.create((1, 2))
    cluster[1].append(b"a")
    cluster.settle()
    cluster[2].stop()
    cluster.change(replicas=(1, 3), isr=(1,))
    cluster.advance(1_000)
    cluster[2].start()
    cluster.settle()
    assert cluster[2].logs.get("t", 0) is None
    assert cluster[3].values() == [b"a"]


def test_a_restarted_broker_starts_from_the_high_watermark_that_was_written_down(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    cluster[1].append(b"a", b"b")
    cluster.settle()
    cluster.advance(1_000)
    cluster.wire.cut |= {(2, 1), (3, 1)}
    cluster.wire.fail(1, 2)
    cluster.wire.fail(1, 3)
    cluster[1].append(b"c", acks=1)
    cluster[1].stop()
    cluster[1].start()
    cluster.tell()
    own = cluster[1].partition()
    assert (own.is_leader, own.high_watermark, own.log.log_end_offset) == (True, 2, 3)


def test_a_leader_refuses_the_latest_offset_until_it_knows_what_was_acknowledged(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    cluster[1].append(b"a")
    cluster.settle()
    assert cluster[2].partition().high_watermark == 0
    cluster.wire.cut |= {(1, 2), (3, 2)}
    cluster.elect(2)
    cluster.settle()
    wanted = {"partition_index": 0, "timestamp": -1}
    body = {"replica_id": -1, "topics": [{"name": "t", "partitions": [wanted]}]}
    for version, code in ((4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)):
        (answer,) = cluster.ask(2, ApiKey.LIST_OFFSETS, version, body)
        assert answer.topics[0].partitions[0].error_code == code
    cluster.wire.cut.clear()
    cluster.advance(2_000)
    (answer,) = cluster.ask(2, ApiKey.LIST_OFFSETS, 5, body)
    assert (answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].offset) == (0, 1)


def test_the_first_acks_all_of_a_new_partition_does_not_wait_for_a_long_poll(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create()
    cluster.tells_at_once = False
    other = bytes(15) + b"\x09"
    cluster.commit(
        CreateTopic(name="u", topic_id=other),
        CreatePartition(topic_id=other, partition=0, replicas=(1, 2, 3), isr=(1, 2, 3), leader=1),
    )
    cluster[1].catch_up()
    cluster.settle()  # the leader knows, the followers fetch again without knowing
    results: list[Any] = []
    cluster[1].replicas.append(TopicPartition("u", 0), _batch(b"v"), on_complete=results.append)
    cluster.tell()
    cluster.advance(20, step_ms=5)
    assert [each.error for each in results] == [NONE], "well before replica.fetch.wait.max.ms"


def _batch(value: bytes) -> bytes:
    return bytes(encode_batch([RecordData(0, 1_700_000_000_000, None, value, ())]))
