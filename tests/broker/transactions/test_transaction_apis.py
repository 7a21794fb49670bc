"""The transaction APIs on the wire: both generations of clients, and the answers that no client asks for on a good
day."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from transaction_wire import WireProducer, committed_offset, find_coordinator, markers_in, read_committed
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from ottla_wire.protocol import ApiKey, ErrorCode, schemas

MakeProducer = Callable[..., WireProducer]
NONE = ErrorCode.NONE

both = pytest.mark.parametrize("version", [1, 2])


# -- the whole way


@both
def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    client: WireClient, producer: MakeProducer, topic: str, version: int
):
    one = producer(version=version).init()
    one.send(topic, b"a1", b"a2")
    one.commit()
    one.send(topic, b"b")
    one.abort()
    one.send(topic, b"c")
    assert read_committed(client, topic) == [b"a1", b"a2"], "the last one is still open"
    one.commit()
    assert read_committed(client, topic) == [b"a1", b"a2", b"c"]
    assert [kind for _, _, kind in markers_in(client, topic)] == ["COMMIT", "ABORT", "COMMIT"]


@both
def test_a_transaction_spans_partitions(client: WireClient, producer: MakeProducer, topic: str, version: int):
    one = producer(version=version).init()
    for partition in range(3):
        one.send(topic, b"x", partition=partition)
    assert [read_committed(client, topic, partition=number) for number in range(3)] == [[], [], []]
    one.commit()
    assert [read_committed(client, topic, partition=number) for number in range(3)] == [[b"x"]] * 3


@both
def test_a_new_producer_fences_the_old_one(client: WireClient, producer: MakeProducer, topic: str, version: int):
    zombie = producer(version=version).init()
    zombie.send(topic, b"lost")
    living = producer(version=version)
    assert living.ask_init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS, "what was open is aborted first"
    living.init()
    assert zombie.end(commit=True) is ErrorCode.PRODUCER_FENCED
    assert zombie.add(topic, 0) is ErrorCode.PRODUCER_FENCED
    assert zombie.produce(topic, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.produce(topic, b"late", partition=1) is ErrorCode.INVALID_PRODUCER_EPOCH, "it was never here before"
    living.send(topic, b"kept")
    living.commit()
    assert read_committed(client, topic) == [b"kept"]


def test_older_clients_are_told_in_words_they_know(producer: MakeProducer, topic: str):
    zombie = producer().init()
    zombie.versions = {**zombie.versions, "init": 3, "add": 1, "end": 1, "add_offsets": 1}
    producer().init()
    assert zombie.add(topic, 0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.add_offsets("g") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.end(commit=True) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.ask_init(**zombie.identity).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


@both
def test_offsets_count_when_their_transaction_is_committed(
    client: WireClient, producer: MakeProducer, topic: str, name: str, version: int
):
    one = producer(version=version).init()
    for commit, offset, expected in ((True, 5, 5), (False, 9, 5), (True, 7, 7)):
        one.send(topic, b"x")
        if version == 1:
            assert one.add_offsets(name) is NONE
        before = committed_offset(client, name, topic).committed_offset
        assert one.commit_offset(name, topic, offset) is NONE
        assert committed_offset(client, name, topic).committed_offset == before
        stable = committed_offset(client, name, topic, require_stable=True)
        assert stable.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert one.end(commit=commit) is NONE
        assert committed_offset(client, name, topic, require_stable=True).committed_offset == expected


def test_offsets_alone_make_a_transaction(client: WireClient, producer: MakeProducer, topic: str, name: str):
    one = producer().init()
    assert one.add_offsets(name) is NONE
    assert one.commit_offset(name, topic, 3) is NONE
    one.commit()
    assert committed_offset(client, name, topic).committed_offset == 3


def test_offsets_of_an_aborted_transaction_are_not_found_by_anyone(
    client: WireClient, producer: MakeProducer, topic: str, name: str
):
    one = producer().init()
    one.add_offsets(name)
    one.commit_offset(name, topic, 3)
    producer().init()
    assert one.commit_offset(name, topic, 4) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed_offset(client, name, topic, require_stable=True).committed_offset == -1


def test_a_member_of_another_generation_commits_no_offsets(
    client: WireClient, producer: MakeProducer, topic: str, name: str
):
    one = producer().init()
    one.add_offsets(name)
    assert one.commit_offset(name, topic, 3, generation_id=4, member_id="gone") is ErrorCode.ILLEGAL_GENERATION
    member = client.call(
        ApiKey.JOIN_GROUP,
        3,
        {
            "group_id": name,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
    )
    identity = {"generation_id": member.generation_id, "member_id": member.member_id}
    assert one.commit_offset(name, topic, 3, **identity) is NONE
    stale = {**identity, "generation_id": member.generation_id - 1}
    assert one.commit_offset(name, topic, 4, **stale) is ErrorCode.ILLEGAL_GENERATION
    assert one.commit_offset(name, topic, 4, **{**identity, "member_id": "other"}) is ErrorCode.UNKNOWN_MEMBER_ID
    assert one.commit_offset(name, topic, 5) is NONE, "old clients do not say who they are"
    one.commit()
    assert committed_offset(client, name, topic).committed_offset == 5


def test_offsets_are_refused_outside_of_the_transaction(producer: MakeProducer, topic: str, name: str):
    one = producer().init()
    assert one.commit_offset(name, topic, 3) is ErrorCode.INVALID_TXN_STATE
    one.versions = {**one.versions, "offsets": 4}
    assert one.commit_offset(name, topic, 3) is ErrorCode.TRANSACTION_ABORTABLE
    one.add_offsets(name)
    assert one.commit_offset(name, "no-such-topic", 3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert one.commit_offset("", topic, 3) is ErrorCode.INVALID_GROUP_ID


# -- leaders ask before they take a batch (KIP-890)


def test_a_batch_outside_of_the_transaction_is_refused(client: WireClient, producer: MakeProducer, topic: str):
    one = producer().init()
    assert one.produce(topic, b"x") is ErrorCode.TRANSACTION_ABORTABLE
    one.versions = {**one.versions, "produce": 10}
    assert one.produce(topic, b"x") is ErrorCode.INVALID_TXN_STATE
    one.send(topic, b"in")
    one.commit()
    assert one.produce(topic, b"late") is ErrorCode.INVALID_TXN_STATE, "or it would hang there for ever"
    assert read_committed(client, topic) == [b"in"]
    assert client.fetch(topic).last_stable_offset == client.fetch(topic).high_watermark


def test_one_refused_partition_leaves_the_others_alone(client: WireClient, producer: MakeProducer, topic: str):
    one = producer().init()
    one.send(topic, b"x", partition=1)
    assert one.produce(topic, b"x", partition=0) is ErrorCode.TRANSACTION_ABORTABLE
    assert one.produce(topic, b"y", partition=1) is NONE
    one.commit()
    assert read_committed(client, topic, partition=1) == [b"x", b"y"]


def test_a_late_batch_of_the_transaction_before_is_fenced(client: WireClient, producer: MakeProducer, topic: str):
    one = producer(version=2).init()
    late = producer(version=2)
    late.producer_id, late.epoch, late.sequences = one.producer_id, one.epoch, {(topic, 0): 1}
    one.send(topic, b"first")
    one.commit()
    assert late.produce(topic, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    one.send(topic, b"second")
    assert late.produce(topic, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    one.commit()
    assert read_committed(client, topic) == [b"first", b"second"]


def test_verification_can_be_switched_off(name: str):
    settings = {"transaction.partition.verification.enable": False}
    with EmbeddedCluster(config=settings) as cluster:
        cluster.create_topic(name)
        client = WireClient(cluster.bootstrap_servers)
        assert WireProducer(client, name).init().produce(name, b"x") is NONE
        client.close()


# -- AddPartitionsToTxn


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_in_every_version_of_a_client(
    client: WireClient, producer: MakeProducer, topic: str, version: int
):
    one = producer().init()
    one.versions = {**one.versions, "add": version}
    assert one.add(topic, 0, 1) is NONE
    one.produce(topic, b"x")
    one.commit()
    assert read_committed(client, topic) == [b"x"]
    assert len(markers_in(client, topic, partition=1)) == 1, "also where nothing was written"


def test_a_partition_that_does_not_exist_refuses_all(client: WireClient, producer: MakeProducer, topic: str):
    one = producer().init()
    body = {
        "v3_and_below_transactional_id": one.transactional_id,
        "v3_and_below_producer_id": one.producer_id,
        "v3_and_below_producer_epoch": one.epoch,
        "v3_and_below_topics": [{"name": topic, "partitions": [0, 99]}],
    }
    answer = client.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, body)
    errors = [each.partition_error_code for each in answer.results_by_topic_v3_and_below[0].results_by_partition]
    assert errors == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert one.end(commit=True) is ErrorCode.INVALID_TXN_STATE, "none was added"


@pytest.mark.parametrize("version", [4, 5])
def test_leaders_ask_about_several_transactions_at_once(
    client: WireClient, producer: MakeProducer, topic: str, version: int
):
    one = producer().init()
    one.add(topic, 0)

    def about(**changes: object) -> dict[str, object]:
        return {
            "transactional_id": one.transactional_id,
            **one.identity,
            "verify_only": True,
            "topics": [{"name": topic, "partitions": [0, 1]}],
            **changes,
        }

    answer = client.call(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        version,
        {"transactions": [about(), about(transactional_id="unknown"), about(producer_epoch=7)]},
    )
    assert answer.error_code == 0
    errors = [
        [each.partition_error_code for each in result.topic_results[0].results_by_partition]
        for result in answer.results_by_transaction
    ]
    assert errors == [
        [NONE, ErrorCode.TRANSACTION_ABORTABLE],
        [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2,
        [ErrorCode.PRODUCER_FENCED] * 2,
    ]
    added = client.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": [about(verify_only=False)]})
    assert [
        each.partition_error_code for each in added.results_by_transaction[0].topic_results[0].results_by_partition
    ] == [0, 0]
    assert client.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": []}).results_by_transaction == []
    one.commit()
    assert len(markers_in(client, topic, partition=1)) == 1


# -- InitProducerId and FindCoordinator


@pytest.mark.parametrize("version", schemas.api(ApiKey.INIT_PRODUCER_ID).versions)
def test_a_transactional_id_is_served_in_every_version(producer: MakeProducer, version: int):
    one = producer()
    one.versions = {**one.versions, "init": version}
    assert [one.init().epoch for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_must_be_one_that_readers_can_bear(producer: MakeProducer, timeout_ms: int):
    assert producer(timeout_ms=timeout_ms).ask_init().error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_producer_raises_its_own_epoch(producer: MakeProducer):
    one = producer().init()
    before = one.identity
    assert one.init(**before).epoch == before["producer_epoch"] + 1
    assert (
        producer().ask_init(producer_id=one.producer_id + 1, producer_epoch=0).error_code == ErrorCode.PRODUCER_FENCED
    )
    assert one.ask_init(producer_id=one.producer_id, producer_epoch=-1).error_code == ErrorCode.INVALID_REQUEST


def test_two_phase_commit_is_not_enabled(client: WireClient, producer: MakeProducer, name: str):
    producer()
    body = {"transactional_id": name, "transaction_timeout_ms": 1_000, "enable2_pc": True, "keep_prepared_txn": False}
    answer = client.call(ApiKey.INIT_PRODUCER_ID, 6, body)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", [3, 6])
def test_the_coordinator_of_a_transactional_id_is_found(
    client: WireClient, cluster: EmbeddedCluster, name: str, version: int
):
    answer = client.call(ApiKey.FIND_COORDINATOR, version, {"key": name, "key_type": 1, "coordinator_keys": [name]})
    one = answer if version == 3 else answer.coordinators[0]
    assert (one.error_code, one.port) == (0, int(cluster.bootstrap_servers.split(":")[1]))
    topics = client.call(ApiKey.METADATA, 9, {"topics": [{"name": "__transaction_state"}]}).topics
    assert (topics[0].is_internal, len(topics[0].partitions)) == (True, 4)


def test_without_its_topic_there_is_no_coordinator():
    with EmbeddedCluster() as cluster:
        client = WireClient(cluster.bootstrap_servers)
        body = {"transactional_id": "x", "transaction_timeout_ms": 1_000}
        assert client.call(ApiKey.INIT_PRODUCER_ID, 4, body).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert client.call(ApiKey.LIST_TRANSACTIONS, 0, {}).transaction_states == []
        find_coordinator(client, "x")
        assert client.call(ApiKey.INIT_PRODUCER_ID, 4, body).error_code == 0
        body["transactional_id"] = ""
        assert client.call(ApiKey.INIT_PRODUCER_ID, 4, body).error_code == ErrorCode.INVALID_REQUEST
        client.close()


def test_clients_learn_which_generation_of_transactions_to_speak(client: WireClient):
    software = {"client_software_name": "test", "client_software_version": "1"}
    for version in (3, 4):
        answer = client.call(ApiKey.API_VERSIONS, version, software)
        finalized = {each.name: each.max_version_level for each in answer.finalized_features}
        supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        assert finalized["transaction.version"] == 2
        # A client that knows version 3 only cannot read a lowest level of 0.
        assert supported["transaction.version"] == (0 if version == 4 else 1, 2)
        assert answer.finalized_features_epoch >= 0


# -- WriteTxnMarkers


def write_marker(client: WireClient, one: WireProducer, topic: str, *, version: int = 2, **changes: int) -> ErrorCode:
    marker = {
        **one.identity,
        "transaction_result": True,
        "topics": [{"name": topic, "partition_indexes": [0]}],
        "coordinator_epoch": 100,
        "transaction_version": 1,
        **changes,
    }
    answer = client.call(ApiKey.WRITE_TXN_MARKERS, version, {"markers": [marker]})
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_is_written_once(client: WireClient, producer: MakeProducer, topic: str, version: int):
    one = producer().init()
    one.send(topic, b"x")
    for _ in range(3):
        assert write_marker(client, one, topic, version=version) is NONE
    assert read_committed(client, topic) == [b"x"]
    assert len(markers_in(client, topic)) == 1


def test_a_coordinator_that_was_replaced_writes_no_markers(client: WireClient, producer: MakeProducer, topic: str):
    one = producer().init()
    one.send(topic, b"x")
    assert write_marker(client, one, topic) is NONE
    one.add(topic, 0)
    one.produce(topic, b"y")
    assert write_marker(client, one, topic, coordinator_epoch=99) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert read_committed(client, topic) == [b"x"]


def test_a_late_marker_does_not_end_the_next_transaction(client: WireClient, producer: MakeProducer, topic: str):
    one = producer(version=2).init()
    one.send(topic, b"open")
    late = write_marker(client, one, topic, transaction_version=2)
    assert late is ErrorCode.INVALID_PRODUCER_EPOCH, "its own marker will be one epoch above"
    assert read_committed(client, topic) == []
    one.commit()
    assert read_committed(client, topic) == [b"open"]


def test_a_marker_for_what_is_not_here_is_refused(client: WireClient, producer: MakeProducer, topic: str):
    one = producer().init()
    no_such = [{"name": topic, "partition_indexes": [99]}]
    marker = {**one.identity, "transaction_result": True, "topics": no_such, "coordinator_epoch": 1}
    answer = client.call(ApiKey.WRITE_TXN_MARKERS, 2, {"markers": [{**marker, "transaction_version": 0}]})
    assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- time


@both
def test_a_transaction_left_open_is_aborted_in_time(
    client: WireClient, producer: MakeProducer, topic: str, version: int, until: Callable[..., None]
):
    one = producer(version=version, timeout_ms=100).init()
    one.send(topic, b"lost")
    until(lambda: markers_in(client, topic))
    assert [kind for _, _, kind in markers_in(client, topic)] == ["ABORT"]
    assert one.end(commit=True) is ErrorCode.PRODUCER_FENCED
    assert one.produce(topic, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert read_committed(client, topic) == []


# -- looking


def test_transactions_are_described(client: WireClient, producer: MakeProducer, topic: str):
    one = producer(timeout_ms=45_000).init()
    one.send(topic, b"x", partition=2)

    def describe(*ids: str) -> list:
        return client.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": list(ids)}).transaction_states

    found, unknown, empty = describe(one.transactional_id, "unknown", "")
    assert (found.error_code, found.transaction_state) == (0, "Ongoing")
    assert (found.producer_id, found.producer_epoch, found.transaction_timeout_ms) == (one.producer_id, 0, 45_000)
    assert found.transaction_start_time_ms > 0
    assert [(each.topic, list(each.partitions)) for each in found.topics] == [(topic, [2])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST
    one.commit()
    (found,) = describe(one.transactional_id)
    assert (found.transaction_state, list(found.topics)) == ("CompleteCommit", [])


def test_transactions_are_listed_by_filters(client: WireClient, producer: MakeProducer, topic: str, name: str):
    one = producer().init()
    other = WireProducer(client, f"{name}-other").init()
    one.send(topic, b"x")

    def listed(version: int = 2, **filters: object) -> set[str]:
        answer = client.call(ApiKey.LIST_TRANSACTIONS, version, filters)
        assert answer.error_code == 0
        return {each.transactional_id for each in answer.transaction_states if each.transactional_id.startswith(name)}

    assert listed(0) == {name, f"{name}-other"}
    assert listed(state_filters=["Ongoing"]) == {name}
    assert listed(state_filters=["Empty", "Ongoing"]) == {name, f"{name}-other"}
    assert listed(producer_id_filters=[other.producer_id]) == {f"{name}-other"}
    assert listed(duration_filter=3_600_000) == {f"{name}-other"}, "as Kafka: what has none open counts as long open"
    assert listed(transactional_id_pattern=".*-other") == {f"{name}-other"}
    assert listed(transactional_id_pattern=name) == {name}
    answer = client.call(ApiKey.LIST_TRANSACTIONS, 2, {"state_filters": ["Nonsense"]})
    assert (list(answer.unknown_state_filters), list(answer.transaction_states)) == (["Nonsense"], [])
    refused = client.call(ApiKey.LIST_TRANSACTIONS, 2, {"transactional_id_pattern": "("})
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    one.abort()


def test_a_partition_tells_who_has_a_transaction_open(client: WireClient, producer: MakeProducer, topic: str):
    one = producer().init()

    def described() -> object:
        body = {"topics": [{"name": topic, "partition_indexes": [0]}]}
        (found,) = client.call(ApiKey.DESCRIBE_PRODUCERS, 0, body).topics[0].partitions[0].active_producers
        return found

    one.send(topic, b"x", b"y")
    open_one = described()
    assert (open_one.producer_id, open_one.current_txn_start_offset, open_one.last_sequence) == (one.producer_id, 0, 1)
    one.commit()
    assert described().current_txn_start_offset == -1
    assert described().coordinator_epoch >= 0
    one.send(topic, b"z")
    assert described().current_txn_start_offset == 3
    one.abort()
