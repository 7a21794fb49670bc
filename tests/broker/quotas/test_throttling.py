"""Who uses more than a quota is answered at once, told how long, and held for that time: by the broker's clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.time import VirtualClock
from broker_embedded.common.errors import BrokerError
from ottla_wire.protocol import ApiKey, ErrorCode, headers

LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
APP = {"client-id": "app"}


def produce_body(topic: str, records: bytes, *, acks: int = -1) -> dict[str, Any]:
    partition = {"index": 0, "records": records}
    return {"acks": acks, "timeout_ms": 5_000, "topic_data": [{"name": topic, "partition_data": [partition]}]}


def send_together(client: WireClient, *requests: tuple[ApiKey, int, dict[str, Any]]) -> None:
    """In one piece, so that the broker has the later ones when it answers the first."""
    frames = []
    for number, (api, version, body) in enumerate(requests, 1_000):
        client._sent[number] = (api, version)
        frames.append(headers.encode_request_frame(api, version, number, client.client_id, body))
    client.socket.sendall(b"".join(frames))


def append_time(answer: Any) -> int:
    partition = answer.responses[0].partition_responses[0]
    assert partition.error_code == 0
    return int(partition.log_append_time_ms)


@pytest.mark.parametrize("acks", [-1, 1])
def test_what_follows_a_produce_over_the_quota_waits_for_the_throttle_time(
    cluster: EmbeddedCluster,
    clock: VirtualClock,
    connect: Callable[..., Any],
    set_quota: Callable[..., None],
    batch: Callable[[int], bytes],
    acks: int,
) -> None:
    cluster.create_topic("t", config=LOG_APPEND_TIME)
    set_quota(APP, producer_byte_rate=1_000.0)
    client = connect()
    began_ms = clock.now_ms()
    first, second = produce_body("t", batch(30_000), acks=acks), produce_body("t", batch(1), acks=acks)
    send_together(client, (ApiKey.PRODUCE, 9, first), (ApiKey.PRODUCE, 9, second))
    answer = client.receive()[1]
    assert append_time(answer) == began_ms
    assert 20_000 < answer.throttle_time_ms < 20_500  # 30 KB at 1 KB/s, of which ten seconds' worth are free
    clock.advance(answer.throttle_time_ms)
    assert append_time(client.receive()[1]) == began_ms + answer.throttle_time_ms


def test_a_client_that_wants_no_answer_is_held_all_the_same(
    cluster: EmbeddedCluster,
    clock: VirtualClock,
    connect: Callable[..., Any],
    set_quota: Callable[..., None],
    batch: Callable[[int], bytes],
    wait_until: Callable[..., None],
) -> None:
    cluster.create_topic("t", config=LOG_APPEND_TIME)
    set_quota(APP, producer_byte_rate=1_000.0)
    client = connect()
    began_ms = clock.now_ms()
    silent, loud = produce_body("t", batch(30_000), acks=0), produce_body("t", batch(1), acks=1)
    send_together(client, (ApiKey.PRODUCE, 9, silent), (ApiKey.PRODUCE, 9, loud))
    reader = connect("other")
    wait_until(lambda: reader.fetch("t").high_watermark == 1)
    clock.advance(60_000)
    assert began_ms + 20_000 < append_time(client.receive()[1]) < began_ms + 20_500


def test_other_connections_of_other_clients_go_on(
    cluster: EmbeddedCluster,
    connect: Callable[..., Any],
    set_quota: Callable[..., None],
    batch: Callable[[int], bytes],
) -> None:
    cluster.create_topic("t")
    set_quota(APP, producer_byte_rate=1_000.0)
    assert connect("app").call(ApiKey.PRODUCE, 9, produce_body("t", batch(30_000))).throttle_time_ms > 0
    other = connect("other")
    for _ in range(3):
        assert other.call(ApiKey.PRODUCE, 9, produce_body("t", batch(30_000))).throttle_time_ms == 0


def test_a_throttled_fetch_keeps_its_session_and_gives_the_records_later(
    cluster: EmbeddedCluster,
    clock: VirtualClock,
    connect: Callable[..., Any],
    set_quota: Callable[..., None],
    batch: Callable[[int], bytes],
) -> None:
    cluster.create_topic("t")
    admin, client = connect("other"), connect()
    for _ in range(2):
        admin.produce("t", batch(8_000))
    set_quota(APP, consumer_byte_rate=1_000.0)
    body = {**client.fetch_body("t", max_bytes=8_500), "session_id": 0, "session_epoch": 0}
    first = client.call(ApiKey.FETCH, 11, body)
    assert first.throttle_time_ms == 0
    assert len(first.responses[0].partitions[0].records) == 8_500
    next_body = {**client.fetch_body("t", 1), "session_id": first.session_id, "session_epoch": 1}
    throttled = client.call(ApiKey.FETCH, 11, next_body)
    assert (throttled.error_code, throttled.session_id, throttled.responses) == (0, first.session_id, [])
    assert 6_500 < throttled.throttle_time_ms < 6_700
    clock.advance(11_000)
    again = {**client.fetch_body("t"), "session_id": first.session_id, "session_epoch": 2, "topics": []}
    answer = client.call(ApiKey.FETCH, 11, again)
    assert answer.throttle_time_ms == 0
    assert len(answer.responses[0].partitions[0].records) > 8_000


def test_a_session_does_not_begin_with_a_throttled_answer(
    cluster: EmbeddedCluster,
    clock: VirtualClock,
    connect: Callable[..., Any],
    set_quota: Callable[..., None],
    batch: Callable[[int], bytes],
) -> None:
    cluster.create_topic("t")
    client = connect()
    connect("other").produce("t", batch(8_000))
    set_quota(APP, consumer_byte_rate=1_000.0)
    assert len(client.fetch("t").records) > 8_000
    whole = {**client.fetch_body("t"), "session_id": 0, "session_epoch": 0}
    throttled = client.call(ApiKey.FETCH, 11, whole)
    assert (throttled.session_id, throttled.responses, throttled.throttle_time_ms > 0) == (0, [], True)
    clock.advance(11_000)
    assert client.call(ApiKey.FETCH, 11, whole).session_id > 0


def test_a_batch_larger_than_ten_seconds_worth_is_never_fetched_as_in_kafka(
    cluster: EmbeddedCluster,
    clock: VirtualClock,
    connect: Callable[..., Any],
    set_quota: Callable[..., None],
    batch: Callable[[int], bytes],
) -> None:
    cluster.create_topic("t")
    client = connect()
    connect("other").produce("t", batch(20_000))
    set_quota(APP, consumer_byte_rate=1_000.0)
    for _ in range(3):
        answer = client.call(ApiKey.FETCH, 11, client.fetch_body("t"))
        assert (answer.responses, answer.throttle_time_ms > 0) == ([], True)
        clock.advance(answer.throttle_time_ms)


def test_time_of_handlers_is_held_against_its_quota(
    cluster: EmbeddedCluster, clock: VirtualClock, connect: Callable[..., Any], set_quota: Callable[..., None]
) -> None:
    set_quota(APP, request_percentage=0.0001)
    client = connect()
    answer = client.call(ApiKey.METADATA, 9, {"topics": None})
    assert 0 < answer.throttle_time_ms <= 1_000
    client.send(ApiKey.METADATA, 9, {"topics": None})
    clock.advance(answer.throttle_time_ms)
    assert client.receive()[1].throttle_time_ms > 0
    assert connect("other").call(ApiKey.METADATA, 9, {"topics": None}).throttle_time_ms == 0


def test_connections_of_an_address_beyond_its_quota_are_closed_unanswered(
    cluster: EmbeddedCluster, clock: VirtualClock, connect: Callable[..., Any], set_quota: Callable[..., None]
) -> None:
    set_quota({"ip": "127.0.0.1"}, connection_creation_rate=1.0)
    clients = [connect() for _ in range(11)]
    for client in clients[:10]:
        assert client.call(ApiKey.METADATA, 9, {"topics": []}).brokers
    clients[10].send(ApiKey.METADATA, 9, {"topics": []})
    clock.advance(1_000)
    with pytest.raises((ConnectionError, OSError)):
        clients[10].receive()
    set_quota({"ip": "127.0.0.1"}, connection_creation_rate=None)
    assert connect().call(ApiKey.METADATA, 9, {"topics": []}).brokers


def test_a_client_that_leaves_while_it_is_held_is_gone(
    cluster: EmbeddedCluster,
    connect: Callable[..., Any],
    set_quota: Callable[..., None],
    batch: Callable[[int], bytes],
    wait_until: Callable[..., None],
) -> None:
    cluster.create_topic("t")
    set_quota(APP, producer_byte_rate=1_000.0)
    server = cluster._cluster.nodes[1].broker.server
    before = len(server.connections)
    client = connect()
    assert client.call(ApiKey.PRODUCE, 9, produce_body("t", batch(30_000))).throttle_time_ms > 0
    assert len(server.connections) == before + 1
    client.close()
    wait_until(lambda: len(server.connections) == before)


def test_a_long_poll_is_forgotten_with_its_client(
    cluster: EmbeddedCluster,
    connect: Callable[..., Any],
    set_quota: Callable[..., None],
    wait_until: Callable[..., None],
) -> None:
    cluster.create_topic("t")
    set_quota(APP, consumer_byte_rate=1_000.0)
    fetches = cluster._cluster.nodes[1].broker.replicas.fetches
    client = connect()
    client.send(ApiKey.FETCH, 11, client.fetch_body("t", max_wait_ms=3_600_000))
    wait_until(lambda: len(fetches) == 1)
    client.close()
    wait_until(lambda: len(fetches) == 0)


def test_without_quotas_nothing_is_measured(
    cluster: EmbeddedCluster, set_quota: Callable[..., None], wait_until: Callable[..., None]
) -> None:
    broker = cluster._cluster.nodes[1].broker
    assert broker.quotas is None
    set_quota(APP, producer_byte_rate=1_000.0)
    assert broker.quotas is not None
    set_quota(APP, producer_byte_rate=None)
    wait_until(lambda: broker.quotas is None)


class TestClusters:
    @pytest.fixture
    def cluster(self, clock: VirtualClock) -> Any:
        with EmbeddedCluster(brokers=3, clock=clock) as running:
            yield running

    def other_than_the_controller(self, cluster: EmbeddedCluster) -> str:
        port = cluster._cluster.nodes[1 + cluster.controller_id % 3].port
        return f"127.0.0.1:{port}"

    def create(self, client: WireClient, name: str, partitions: int, *, version: int = 6) -> Any:
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        return client.call(ApiKey.CREATE_TOPICS, version, {"topics": [topic], "timeout_ms": 60_000})

    def test_changes_of_topics_are_counted_for_who_asked_whichever_broker_was_asked(
        self, cluster: EmbeddedCluster, clock: VirtualClock, connect: Callable[..., Any], set_quota: Callable[..., None]
    ) -> None:
        set_quota({"user": "ANONYMOUS", "client-id": None}, controller_mutation_rate=1.0)
        elsewhere = self.other_than_the_controller(cluster)
        client, other = connect("app", address=elsewhere), connect("other", address=elsewhere)
        first = self.create(client, "first", 13)
        assert (first.topics[0].error_code, first.throttle_time_ms) == (0, 0)
        refused = self.create(client, "second", 1)
        assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert refused.throttle_time_ms == 2_000
        assert self.create(other, "others", 1).topics[0].error_code == 0
        client.send(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["first"], "timeout_ms": 60_000})
        clock.advance(2_000)  # the connection is free again, and so is what was owed
        deleted = client.receive()[1]
        assert (deleted.responses[0].error_code, deleted.throttle_time_ms) == (0, 0)
        grown = {"topics": [{"name": "others", "count": 3, "assignments": None}], "timeout_ms": 60_000}
        answer = client.call(ApiKey.CREATE_PARTITIONS, 2, {**grown, "validate_only": False})
        assert (answer.results[0].error_code, answer.throttle_time_ms) == (0, 15_000)  # thirteen deleted, two added

    def test_replicas_are_fetched_whatever_the_quotas_are(
        self,
        cluster: EmbeddedCluster,
        connect: Callable[..., Any],
        set_quota: Callable[..., None],
        batch: Callable[[int], bytes],
    ) -> None:
        everybody = {"user": None, "client-id": None}
        set_quota(everybody, producer_byte_rate=1.0, consumer_byte_rate=1.0)
        set_quota({"user": None}, producer_byte_rate=1.0, consumer_byte_rate=1.0)
        cluster.create_topic("t", replication_factor=3)
        leader = cluster._cluster.nodes[cluster.leader("t")]
        client = connect("app", address=f"127.0.0.1:{leader.port}")
        answer = client.call(ApiKey.PRODUCE, 9, produce_body("t", batch(50_000)))
        assert answer.responses[0].partition_responses[0].error_code == 0  # every replica has it
        assert answer.throttle_time_ms > 1_000_000


def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    body = {"components": [], "strict": False}
    with EmbeddedCluster(brokers=3, data_dir=tmp_path) as cluster:
        client = WireClient(cluster.bootstrap_servers, timeout_s=60)
        entry = {
            "entity": [
                {"entity_type": "user", "entity_name": "alice"},
                {"entity_type": "client-id", "entity_name": None},
            ],
            "ops": [{"key": "producer_byte_rate", "value": 5.0, "remove": False}],
        }
        altered = client.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [entry], "validate_only": False})
        assert altered.entries[0].error_code == 0
        client.close()
    with EmbeddedCluster(brokers=3, data_dir=tmp_path) as cluster:
        for address in cluster.bootstrap_servers.split(","):
            client = WireClient(address, timeout_s=60)
            (found,) = client.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, body).entries
            assert {each.entity_type: each.entity_name for each in found.entity} == {"user": "alice", "client-id": None}
            assert {each.key: each.value for each in found.values} == {"producer_byte_rate": 5.0}
            client.close()


def test_a_test_sets_quotas_by_itself_and_hears_what_cannot_be(cluster: EmbeddedCluster) -> None:
    broker = cluster._cluster.nodes[1].broker
    cluster.set_quotas({"user": "alice", "client-id": None}, producer_byte_rate=5)
    assert broker.metadata.image.client_quotas == {
        (("client-id", None), ("user", "alice")): {"producer_byte_rate": 5.0}
    }
    with pytest.raises(BrokerError, match="Invalid configuration key speed"):
        cluster.set_quotas({"user": "alice"}, speed=5)
    cluster.set_quotas({"user": "alice", "client-id": None}, producer_byte_rate=None)
    assert broker.quotas is None
