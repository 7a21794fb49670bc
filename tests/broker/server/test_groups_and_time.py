"""What the clock does to groups, through the wire: offsets expire, `__consumer_offsets` is compacted and replayed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.common.clock import ManualClock
from ottla_wire.protocol import ApiKey
from ottla_wire.records.batch import iter_headers
from ottla_wire.records.record import RecordData, decode_batch, encode_batch

DAY_MS = 86_400_000
SETTINGS = {"offsets.topic.num.partitions": 1, "offsets.retention.check.interval.ms": 20}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def connect(make_wire_client: Callable[[str], Any]) -> Callable[[str], Any]:
    def connect(bootstrap_servers: str) -> Any:
        client = make_wire_client(bootstrap_servers)
        return lambda api, version, **body: client.call(api, version, body)

    return connect


def wait_until(condition: Callable[[], bool], *, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


def commit(call: Any, group: str, offset: int, *, generation: int = -1, member: str = "") -> None:
    partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": "x" * 100}]
    body = {"group_id": group, "generation_id_or_member_epoch": generation, "member_id": member}
    answer = call(ApiKey.OFFSET_COMMIT, 8, **body, topics=[{"name": "t", "partitions": partitions}])
    assert answer.topics[0].partitions[0].error_code == 0


def committed(call: Any, group: str) -> int:
    topics = [{"name": "t", "partition_indexes": [0]}]
    answer = call(ApiKey.OFFSET_FETCH, 7, group_id=group, topics=topics)
    assert answer.error_code == 0
    return int(answer.topics[0].partitions[0].committed_offset)


def join(call: Any, group: str) -> tuple[int, str]:
    """Become the only member of a classic group; returns generation and member id."""
    joined = call(
        ApiKey.JOIN_GROUP,
        3,
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    assert joined.error_code == 0
    plan = [{"member_id": joined.member_id, "assignment": b""}]
    identity = {"generation_id": joined.generation_id, "member_id": joined.member_id}
    assert call(ApiKey.SYNC_GROUP, 2, group_id=group, **identity, assignments=plan).error_code == 0
    return joined.generation_id, joined.member_id


def test_offsets_expire_when_their_group_has_been_dead_for_the_retention_and_not_before(connect, clock: ManualClock):
    with EmbeddedCluster(clock=clock, config=SETTINGS) as cluster:
        cluster.create_topic("t")
        call = connect(cluster.bootstrap_servers)
        assert call(ApiKey.FIND_COORDINATOR, 3, key="dead", key_type=0).error_code == 0
        commit(call, "dead", 5)
        generation, member = join(call, "alive")
        commit(call, "alive", 7, generation=generation, member=member)
        for _ in range(6):
            clock.advance(DAY_MS)
            assert committed(call, "dead") == 5
        clock.advance(DAY_MS)
        wait_until(lambda: committed(call, "dead") == -1)
        assert committed(call, "alive") == 7
        assert call(ApiKey.LEAVE_GROUP, 1, group_id="alive", member_id=member).error_code == 0
        commit(call, "later", 1)
        clock.advance(6 * DAY_MS)
        assert committed(call, "alive") == 7, "counted from when it became empty, not from the commit"
        clock.advance(DAY_MS)
        wait_until(lambda: committed(call, "alive") == committed(call, "later") == -1)


def records_of_offsets_topic(bootstrap_servers: str, connect: Any) -> list[RecordData]:
    call = connect(bootstrap_servers)
    found: list[RecordData] = []
    offset = 0
    while True:
        wanted = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1_000_000}]
        answer = call(
            ApiKey.FETCH,
            11,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=10_000_000,
            topics=[{"topic": "__consumer_offsets", "partitions": wanted}],
        )
        data, position = bytes(answer.responses[0].partitions[0].records), 0
        for header in iter_headers(data):
            found += decode_batch(data, position)
            position += header.size_in_bytes
            offset = header.next_offset
        if not position:
            return found


def test_the_offsets_topic_is_compacted_as_time_passes_and_a_restart_replays_what_is_left(
    connect, clock: ManualClock, tmp_path
):
    settings = {**SETTINGS, "offsets.topic.segment.bytes": 2000}
    with EmbeddedCluster(clock=clock, config=settings, data_dir=tmp_path) as cluster:
        cluster.create_topic("t")
        call = connect(cluster.bootstrap_servers)
        assert call(ApiKey.FIND_COORDINATOR, 3, key="g", key_type=0).error_code == 0
        commit(call, "quiet", 3)
        for offset in range(200):
            commit(call, "busy", offset)
        assert len(records_of_offsets_topic(cluster.bootstrap_servers, connect)) >= 201
        clock.advance(16_000)  # log.cleaner.backoff.ms
        wait_until(lambda: len(records_of_offsets_topic(cluster.bootstrap_servers, connect)) < 40)
    with EmbeddedCluster(clock=clock, config=settings, data_dir=tmp_path) as cluster:
        call = connect(cluster.bootstrap_servers)
        wait_until(lambda: call(ApiKey.OFFSET_FETCH, 7, group_id="quiet", topics=None).error_code == 0)
        assert committed(call, "quiet") == 3
        assert committed(call, "busy") == 199


def test_clients_cannot_write_to_the_offsets_topic(connect):
    with EmbeddedCluster(config=SETTINGS) as cluster:
        call = connect(cluster.bootstrap_servers)
        assert call(ApiKey.FIND_COORDINATOR, 3, key="g", key_type=0).error_code == 0
        records = bytes(encode_batch([RecordData(0, 0, b"k", b"v", ())]))
        data = [{"name": "__consumer_offsets", "partition_data": [{"index": 0, "records": records}]}]
        answer = call(ApiKey.PRODUCE, 9, acks=-1, timeout_ms=1000, topic_data=data)
        assert answer.responses[0].partition_responses[0].error_code != 0
