"""The fetch and produce clients against a broker that misbehaves on demand."""

from __future__ import annotations

import socket

import pyarrow as pa
import pytest

import ottla.columnar as columnar
from broker_embedded.cluster import EmbeddedCluster
from ottla.columnar import (
    BrokerRefused,
    Cluster,
    CorruptBatch,
    OffsetOutOfRange,
    OffsetRange,
    OnDataLoss,
    PartitionUnavailable,
    TopicWriter,
    read_ranges,
    wire_settings,
)
from ottla.columnar.arrays.schema import HEADERS
from ottla.errors import BrokerUnavailable, ConfigError, DeliveryError, InputError, RecordTooLarge, UnknownTopic
from ottla.records import TopicPartition
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records import RecordData, encode_batch, iter_batches


def fill(broker, topic="orders", partitions=1, batches=3, rows=10):
    broker.add_topic(topic, partitions)
    for p in range(partitions):
        for b in range(batches):
            base = b * rows
            batch = [
                RecordData(base + i, 1_000 * (base + i), b"k%d" % p, b"%d-%d" % (p, base + i)) for i in range(rows)
            ]
            broker.append(topic, p, encode_batch(batch, base_offset=base))


def values(reader):
    return sorted(v.decode() for v in reader.read_all().column("value").to_pylist())


def expected(partitions=1, first=0, last=29):
    return sorted(f"{p}-{i}" for p in range(partitions) for i in range(first, last + 1))


def partition_error(code):
    def answer(request, healthy):
        body = healthy(request)
        for topic in body.get("responses", body.get("topics")):
            for entry in topic.get("partitions", topic.get("partition_responses")):
                entry["error_code"] = code
                entry.pop("records", None)
        return body

    return answer


def refuse_first_partition(code):
    """A produce answer in which the first batch was not appended."""

    def answer(request, healthy):
        first = request.topic_data[0]
        rest = [
            {"name": t.name, "partition_responses": [{"index": p.index, "error_code": code} for p in t.partition_data]}
            for t in [first]
        ]
        return {"responses": rest}

    return answer


def lose_the_answer(hang_up):
    def answer(request, healthy):
        healthy(request)
        raise hang_up

    return answer


def hang_up_at_once(hang_up):
    def answer(request, healthy):
        raise hang_up

    return answer


# Reading


def test_a_topic_is_read_to_the_end_it_had(broker, settings):
    fill(broker, partitions=3)
    assert values(columnar.read("orders", settings=settings)) == expected(3)
    fetches = [request for api, request in broker.requests if api is ApiKey.FETCH]
    asked = [p.fetch_offset for request in fetches for t in request.topics for p in t.partitions]
    assert max(asked) < 30  # nothing waits at the end of a range, in the way of whoever reads the next one


def test_since_and_until_take_times_and_offsets(broker, settings):
    fill(broker)
    read = columnar.read("orders", settings=settings, since="1970-01-01T00:00:12", until="1970-01-01T00:00:15+00:00")
    assert values(read) == expected(first=12, last=14)
    assert len(values(columnar.read("orders", settings=settings, since="1960-01-01"))) == 30
    assert values(columnar.read("orders", settings=settings, until="1969-12-31T23:59:59.999")) == []
    read = columnar.read("orders", settings=settings, since={TopicPartition("orders", 0): 25})
    assert values(read) == expected(first=25)
    assert values(columnar.read("orders", settings=settings, since="-1h")) == []


def test_a_reader_is_a_stream_of_record_batches_for_other_libraries(broker, settings):
    fill(broker)
    frame = columnar.read("orders", settings=settings, columns=["offset", "value"]).read_pandas()
    assert list(frame.columns) == ["offset", "value"]
    assert len(frame) == 30


def test_polars_and_duckdb_take_a_reader_as_it_is(broker, settings):
    import duckdb
    import polars

    fill(broker)
    frame = polars.from_arrow(columnar.read("orders", settings=settings, columns=["offset", "value", "timestamp"]))
    assert frame.columns == ["offset", "value", "timestamp"]
    assert frame["offset"].sum() == sum(range(30))
    records = columnar.read("orders", settings=settings)
    with duckdb.connect() as database:
        database.register("records", records)
        found = database.execute("SELECT count(*), max(\"offset\") FROM records WHERE topic = 'orders'").fetchall()
    assert found == [(30, 29)]
    for name in ("copy", "names"):
        broker.add_topic(name)
    assert columnar.write("copy", frame, settings=settings).rows == 30
    assert written(broker, topic="copy") == written(broker)
    with duckdb.connect() as database:
        result = database.sql("SELECT 'from ' || range AS value FROM range(3)")
        assert columnar.write("names", result, settings=settings).rows == 3
    assert written(broker, topic="names") == ["from 0", "from 1", "from 2"]


def test_small_fetches_that_cut_batches_lose_nothing(broker, settings):
    fill(broker, partitions=2, batches=5)
    small = settings | {"max.partition.fetch.bytes": 100, "fetch.max.bytes": 100}
    assert values(columnar.read("orders", settings=small)) == expected(2, last=49)


def test_a_moved_leader_is_asked_where_it_went(broker, settings):
    fill(broker, partitions=2)
    broker.script[ApiKey.FETCH] = [partition_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)]

    assert values(columnar.read("orders", settings=settings)) == expected(2)
    assert broker.count(ApiKey.METADATA) >= 3


def test_a_lost_connection_is_opened_again_where_reading_stood(broker, settings, hang_up):
    fill(broker, batches=6)
    small = settings | {"max.partition.fetch.bytes": 300}
    broker.script[ApiKey.FETCH] = [lambda r, healthy: healthy(r), hang_up_at_once(hang_up)]
    reader = columnar.read("orders", settings=small)
    table = reader.read_all()
    assert table.column("offset").to_pylist() == list(range(60))


def nearer(replica):
    """The leader's answer where a follower is in the client's rack (KIP-392)."""

    def answer(request, healthy):
        body = healthy(request)
        for topic in body["responses"]:
            for entry in topic["partitions"]:
                entry |= {"preferred_read_replica": replica, "records": b""}
        return body

    return answer


@pytest.mark.parametrize("refusal", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_follower_that_does_not_have_the_offset_leads_back_to_the_leader(broker, settings, refusal):
    fill(broker, partitions=1)
    broker.add_topic("other")
    broker.leaders["other", 0] = 2
    broker.script[ApiKey.FETCH] = [nearer(2), partition_error(refusal)]
    assert values(columnar.read("orders", settings=settings | {"client.rack": "b"})) == expected()
    assert broker.count(ApiKey.FETCH) == 3


def test_a_client_with_a_rack_reads_from_the_replica_in_it():
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with EmbeddedCluster(brokers=3, racks=["a", "b", "c"], config={"replica.selector.class": selector}) as kafka:
        kafka.create_topic("orders", partitions=3, replication_factor=3)
        servers = {"bootstrap_servers": kafka.bootstrap_servers}
        columnar.write("orders", table(300), **servers)
        found = columnar.read("orders", settings={"client.rack": "b"}, **servers).read_all()
        assert found.num_rows == 300


class Waiting:
    """Time that passes only where somebody waits, and while what was read is worked on."""

    def __init__(self):
        self.seconds = 1_000.0

    def now(self):
        return self.seconds

    def sleep(self, seconds):
        self.seconds += seconds


def without_data_of_partition_1(request, healthy):
    body = healthy(request)
    for entry in body["responses"][0]["partitions"]:
        if entry["partition_index"] == 1:
            entry["records"] = b""
    return body


@pytest.mark.parametrize("leader_of_1", [1, 2])
def test_a_range_whose_turn_comes_late_or_whose_reader_is_slow_does_not_stand_still(broker, settings, leader_of_1):
    """A response has room for some partitions only; a leader that moved is asked when the others are read."""
    fill(broker, partitions=2, batches=5)
    broker.leaders["orders", 1] = leader_of_1
    refuse = partition_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    refusals = iter([True, True])

    def late(request, healthy):
        numbers = [p.partition for p in request.topics[0].partitions]
        if numbers == [1]:
            return refuse(request, healthy) if next(refusals, False) else healthy(request)
        return without_data_of_partition_1(request, healthy)

    broker.script[ApiKey.FETCH] = [late] * 50
    small, time = settings | {"max.partition.fetch.bytes": 100}, Waiting()
    with Cluster(wire_settings(small), now=time.now, sleep=time.sleep) as cluster:
        ranges = [OffsetRange(topic="orders", partition=p, start=0, end=50) for p in range(2)]
        rows = 0
        for batch in read_ranges(cluster, ranges):
            rows += batch.num_rows
            time.sleep(0.4)  # the API timeout is half a second
    assert rows == 100


@pytest.fixture
def dead_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def led_by_a_dead_broker(broker, dead_port):
    """A metadata answer from just before broker 2 died; by the next one, broker 1 leads."""

    def answer(request, healthy):
        broker.ports[2] = dead_port
        broker.leaders["orders", 0] = 2
        body = healthy(request)
        broker.leaders["orders", 0] = 1
        return body

    return answer


def test_reading_goes_on_with_the_leader_that_took_over(broker, settings, dead_port):
    fill(broker)
    with Cluster(wire_settings(settings)) as cluster:
        broker.script[ApiKey.METADATA] = [led_by_a_dead_broker(broker, dead_port)]
        batches = list(read_ranges(cluster, [OffsetRange(topic="orders", partition=0, start=0, end=30)]))
    assert sum(b.num_rows for b in batches) == 30


def test_writing_goes_on_with_the_leader_that_took_over(broker, settings, dead_port):
    broker.add_topic("orders")
    broker.script[ApiKey.METADATA] = [led_by_a_dead_broker(broker, dead_port)]
    assert columnar.write("orders", table(), settings=settings).rows == 10
    assert written(broker) == [str(i) for i in range(10)]


def test_no_leader_for_too_long_is_an_error_that_says_so(broker, settings):
    fill(broker)
    broker.leaders["orders", 0] = -1
    with pytest.raises(PartitionUnavailable, match=r"orders-0 has no leader"):
        columnar.read("orders", settings=settings)


def test_offsets_that_are_gone_are_named_with_what_is_there(broker, settings):
    fill(broker)
    broker.logs["orders", 0] = b""
    broker.log_start["orders", 0] = 100
    with Cluster(wire_settings(settings)) as cluster, pytest.raises(OffsetOutOfRange, match=r"offset 5 .* 100 to 100"):
        list(read_ranges(cluster, [OffsetRange(topic="orders", partition=0, start=5, end=120)]))


@pytest.mark.parametrize(("policy", "resumed"), [(OnDataLoss.EARLIEST, 20), (OnDataLoss.LATEST, 30)])
def test_lost_offsets_can_be_passed_over_and_are_reported(broker, settings, policy, resumed):
    fill(broker)
    log = broker.logs["orders", 0]
    broker.logs["orders", 0] = log[next(p for p, h in iter_batches(log) if h.base_offset == 20) :]
    broker.log_start["orders", 0] = 20
    losses = []
    with Cluster(wire_settings(settings)) as cluster:
        wanted = OffsetRange(topic="orders", partition=0, start=5, end=30)
        batches = list(read_ranges(cluster, [wanted], on_data_loss=policy, report_loss=losses.append))
    assert sum(b.num_rows for b in batches) == 30 - resumed
    assert [(loss.first_missing, loss.resumed_at) for loss in losses] == [(5, resumed)]


def test_a_range_that_compaction_emptied_still_ends(broker, settings):
    broker.add_topic("orders")
    broker.append("orders", 0, encode_batch([RecordData(0, 1, b"k", b"v")], last_offset=19))
    broker.append("orders", 0, encode_batch([], base_offset=0, last_offset=9))
    table = columnar.read("orders", settings=settings).read_all()
    assert table.column("offset").to_pylist() == [0]


def test_a_corrupt_batch_stops_the_read_with_its_place(broker, settings):
    fill(broker)
    damaged = bytearray(broker.logs["orders", 0])
    damaged[-2] ^= 1  # in the last value
    broker.logs["orders", 0] = bytes(damaged)
    with pytest.raises(CorruptBatch, match=r"orders-0.*offset 20 fails its CRC"):
        columnar.read("orders", settings=settings).read_all()
    assert values(columnar.read("orders", settings=settings | {"check.crcs": "false"}))


def test_an_abandoned_read_leaves_no_answer_behind_for_the_next(broker, settings):
    fill(broker, partitions=2, batches=5)
    with Cluster(wire_settings(settings | {"max.partition.fetch.bytes": 100})) as cluster:
        ranges = [OffsetRange(topic="orders", partition=p, start=0, end=50) for p in range(2)]
        first = read_ranges(cluster, ranges)
        next(first)
        (lent,) = cluster._lent.values()
        assert [each.connection.in_flight for each in lent] == [
            1
        ]  # the next answer is on its way while this batch is worked on
        first.close()
        again = [b.num_rows for b in read_ranges(cluster, ranges)]
    assert sum(again) == 100


def test_an_unknown_topic_is_said_at_once(broker, settings):
    with pytest.raises(UnknownTopic, match="nothing-here"):
        columnar.read("nothing-here", settings=settings)


def test_nobody_at_the_address_names_the_address(settings):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(BrokerUnavailable, match=rf"127.0.0.1:{port}.*bootstrap.servers"):
        columnar.read("orders", settings=settings | {"bootstrap.servers": f"127.0.0.1:{port}"})


def test_a_server_that_is_not_kafka_is_recognised(settings, hang_up, broker):
    broker.script[ApiKey.API_VERSIONS] = [hang_up_at_once(hang_up)] * 1000
    with pytest.raises(BrokerUnavailable, match="does not answer as a Kafka broker"):
        columnar.read("orders", settings=settings)


def test_sasl_plain_logs_in_and_a_wrong_password_is_the_brokers_word(broker, settings):
    fill(broker)
    login = settings | {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "ann", "sasl.password": "secret"}
    assert values(columnar.read("orders", settings=login)) == expected()
    with pytest.raises(BrokerRefused, match="'ann': wrong password"):
        columnar.read("orders", settings=login | {"sasl.password": "guess"})


# Writing


def table(count=10, start=0):
    return pa.table({"key": [f"k{i % 3}" for i in range(count)], "value": [str(start + i) for i in range(count)]})


def written(broker, partition=0, topic="orders"):
    return [r.value.decode() for r in broker.records(topic, partition)]


def test_rows_arrive_in_order_with_their_offsets(broker, settings):
    broker.add_topic("orders")
    result = columnar.write("orders", table(), settings=settings)
    assert written(broker) == [str(i) for i in range(10)]
    assert (result.rows, result.ranges) == (10, {TopicPartition("orders", 0): (0, 9)})


def test_all_columns_of_a_record_can_be_written(broker, settings):
    broker.add_topic("orders", 3)
    rows = pa.table(
        {
            "key": pa.array([b"k", None]),
            "value": pa.array([None, "text"]),
            "partition": pa.array([2, 0], pa.int32()),
            "timestamp": pa.array([5, 7], pa.timestamp("ms", tz="UTC")),
            "headers": pa.array([[{"key": "h", "value": b"1"}], []], HEADERS),
        }
    )
    columnar.write("orders", rows, settings=settings)
    assert broker.records("orders", 2) == [RecordData(0, 5, b"k", None, [("h", b"1")])]
    assert broker.records("orders", 0) == [RecordData(0, 7, None, b"text", [])]


def test_what_was_read_is_written_as_it_is_batch_by_batch(broker, settings):
    fill(broker, partitions=3)
    broker.add_topic("copy", 3)
    reader = columnar.read("orders", settings=settings | {"max.partition.fetch.bytes": 100})
    assert columnar.write("copy", reader, settings=settings).rows == 90
    assert reader.read_all().num_rows == 0
    for p in range(3):  # keys, values, headers, times, and partitions; the offsets are the new topic's own
        assert broker.records("copy", p) == broker.records("orders", p)


class Frame:
    """A frame of another library: all that is known of it is the Arrow stream that it gives."""

    def __arrow_c_stream__(self, requested_schema=None):
        kinds = {"topic": pa.large_string(), "value": pa.large_string(), "partition": pa.int64()}
        return pa.table({"topic": ["b"], "value": ["1"], "partition": [0]}, pa.schema(kinds)).__arrow_c_stream__()


def test_frames_of_other_libraries_are_written_by_their_arrow_stream(broker, settings):
    broker.add_topic("orders")
    columnar.write("orders", Frame(), settings=settings)
    assert written(broker) == ["1"]
    with pytest.raises(InputError, match="found list, wanted an Arrow table, record batch or stream"):
        columnar.write("orders", [{"value": "1"}], settings=settings)


def test_a_topic_column_sends_rows_to_their_topics(broker, settings):
    broker.add_topic("a")
    broker.add_topic("b")
    rows = pa.record_batch({"topic": ["a", "b", "a"], "value": ["1", "2", "3"]})
    with Cluster(wire_settings(settings)) as cluster, TopicWriter(cluster) as writer:
        writer.write(rows)
        writer.flush()
    assert (written(broker, topic="a"), written(broker, topic="b")) == (["1", "3"], ["2"])


def test_a_moved_leader_gets_the_batch_again_once(broker, settings):
    broker.add_topic("orders")
    broker.script[ApiKey.PRODUCE] = [refuse_first_partition(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    columnar.write("orders", table(), settings=settings)
    assert written(broker) == [str(i) for i in range(10)]


def test_a_lost_answer_does_not_append_twice(broker, settings, hang_up):
    broker.add_topic("orders")
    broker.script[ApiKey.PRODUCE] = [lose_the_answer(hang_up)]
    result = columnar.write("orders", table(), settings=settings)
    assert written(broker) == [str(i) for i in range(10)]
    assert result.rows == 10


@pytest.mark.parametrize("failing", range(4))
def test_batches_behind_one_that_failed_go_again_behind_it(broker, settings, failing):
    broker.add_topic("orders")
    healthy_first = [lambda request, healthy: healthy(request)] * failing
    broker.script[ApiKey.PRODUCE] = [*healthy_first, refuse_first_partition(ErrorCode.NOT_ENOUGH_REPLICAS)]
    small = settings | {"batch.size": 400, "max.request.size": 2000}
    columnar.write("orders", table(200), settings=small)
    assert written(broker) == [str(i) for i in range(200)]
    assert broker.count(ApiKey.PRODUCE) > 5


@pytest.mark.parametrize("failing", range(4))
def test_a_connection_lost_in_the_middle_keeps_order_and_count(broker, settings, hang_up, failing):
    broker.add_topic("orders", 2)
    healthy_first = [lambda request, healthy: healthy(request)] * failing
    broker.script[ApiKey.PRODUCE] = [*healthy_first, lose_the_answer(hang_up)]
    small = settings | {"batch.size": 400, "max.request.size": 2000, "delivery.timeout.ms": 5000}
    columnar.write("orders", table(300), settings=small)
    both = [[int(v) for v in written(broker, p)] for p in range(2)]
    assert sorted(both[0] + both[1]) == list(range(300))
    assert both == [sorted(rows) for rows in both]


def test_what_is_never_acknowledged_is_a_delivery_error_with_the_count(broker, settings):
    broker.add_topic("orders")
    broker.script[ApiKey.PRODUCE] = [refuse_first_partition(ErrorCode.NOT_ENOUGH_REPLICAS)] * 10_000
    with pytest.raises(DeliveryError, match=r"10 record\(s\) not delivered.*delivery.timeout.ms: NOT_ENOUGH_REPLICAS"):
        columnar.write("orders", table(), settings=settings)


def test_an_answer_that_no_retry_changes_fails_at_once(broker, settings):
    broker.add_topic("orders")
    broker.script[ApiKey.PRODUCE] = [refuse_first_partition(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(DeliveryError, match="TOPIC_AUTHORIZATION_FAILED"):
        columnar.write("orders", table(), settings=settings)
    assert broker.count(ApiKey.PRODUCE) == 1


def test_a_record_over_the_topics_limit_is_refused_before_it_is_sent(broker, settings):
    broker.add_topic("orders")
    rows = pa.table({"value": ["small", "x" * 150_000]})
    with pytest.raises(RecordTooLarge, match=r"orders: record is 150,\d+ bytes.*100,000.*max.message.bytes"):
        columnar.write("orders", rows, settings=settings)
    assert broker.count(ApiKey.PRODUCE) == 0


def test_a_topic_that_is_missing_is_not_created_also_where_the_broker_would(broker, settings):
    with pytest.raises(
        UnknownTopic, match=r"fresh: the cluster has no such topic; create it with `ottla topics create"
    ):
        columnar.write("fresh", table(), settings=settings)
    with pytest.raises(UnknownTopic):
        columnar.read("fresh", settings=settings)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({"key": ["a"]}, "column value is missing"),
        ({"value": [1]}, "column value: found int64, wanted bytes or text"),
        ({"value": ["a"], "colour": ["red"]}, "no such column in a topic: colour"),
        ({"value": ["a"], "partition": [7]}, "found 7, but the topic has partitions 0 to 0"),
    ],
)
def test_rows_that_are_no_records_are_refused(broker, settings, rows, reason):
    broker.add_topic("orders")
    with pytest.raises(InputError, match=reason):
        columnar.write("orders", pa.table(rows), settings=settings)


# Groups


def test_offsets_of_a_group_are_published_and_read(broker, settings):
    fill(broker, partitions=2)
    partitions = [TopicPartition("orders", p) for p in range(2)]
    with Cluster(wire_settings(settings)) as cluster:
        columnar.commit_group_offsets(cluster, "report", {partitions[0]: 12})
        assert columnar.group_offsets(cluster, "report", partitions) == {partitions[0]: 12}


def test_a_coordinator_that_moved_is_found_again(broker, settings):
    fill(broker)
    broker.script[ApiKey.OFFSET_COMMIT] = [partition_error(ErrorCode.NOT_COORDINATOR)]
    with Cluster(wire_settings(settings)) as cluster:
        columnar.commit_group_offsets(cluster, "report", {TopicPartition("orders", 0): 3})
    assert broker.committed == {("orders", 0): 3}


def test_a_group_with_members_is_refused_with_advice(broker, settings):
    fill(broker)
    broker.script[ApiKey.OFFSET_COMMIT] = [partition_error(ErrorCode.UNKNOWN_MEMBER_ID)]
    with Cluster(wire_settings(settings)) as cluster, pytest.raises(BrokerRefused, match="choose a name"):
        columnar.commit_group_offsets(cluster, "report", {TopicPartition("orders", 0): 3})


def test_a_partition_is_read_in_one_range_at_a_time(broker, settings):
    wanted = OffsetRange(topic="orders", partition=0, start=0, end=1)
    with Cluster(wire_settings(settings)) as cluster, pytest.raises(ConfigError, match="one range only"):
        read_ranges(cluster, [wanted, wanted])
