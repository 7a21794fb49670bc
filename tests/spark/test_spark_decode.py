"""Decoding without throwing, splitting, and dead letters with the SDK's headers."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

from ottla.errors import ConfigError
from ottla.failures.dead_letter import PREFIX
from ottla.serdes import Avro, Json, SerdeContext, Str
from ottla.spark import dead_letters, decode, read, read_stream, split
from ottla.testing.registry import EmbeddedRegistry

pytestmark = pytest.mark.spark


@dataclasses.dataclass
class Sale:
    shop: str
    amount: int
    note: str | None


@dataclasses.dataclass
class Checked:
    amount: int

    def __post_init__(self):
        if self.amount < 0:
            raise ValueError("an amount is not negative")


OLDER_FIELDS = {"shop": "string", "amount": "long"}
SALE = {
    "type": "record",
    "name": "Sale",
    "fields": [
        *({"name": name, "type": kind} for name, kind in OLDER_FIELDS.items()),
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def encoded(serde, *values):
    return [serde.serialize(v, SerdeContext("sales")) if not isinstance(v, bytes | None) else v for v in values]


def test_when_rows_expire_is_a_column_and_no_row_is_dropped(topics, kafka, make_topic):
    topic = make_topic()
    ms = 1_700_000_000_123
    given = [[], [b"%d" % ms], [b"1", b"%d" % ms], [b"soon"], [None], [b"9" * 18], [b"9" * 40], [b""]]
    for number, values in enumerate(given):
        headers = [("trace", b"x"), *(("ottla-expires-at", value) for value in values)]
        kafka.produce(topic, [b"%d" % number], headers=headers)
    frame = decode(topics.read(topic, includeHeaders=True), value=Json(int), expiry=True)
    rows = {row.value: row for row in frame.selectExpr("value", "_error", "unix_millis(_expires_at) ms").collect()}
    assert {number: row.ms for number, row in rows.items()} == {
        number: ms if number in (1, 2) else None for number in range(len(given))
    }
    good, _ = split(frame)
    assert good.where("_expires_at is null or _expires_at > current_timestamp()").count() == len(given) - 2


def test_expiry_needs_the_headers(topics, make_topic):
    with pytest.raises(ConfigError, match="includeHeaders"):
        decode(topics.read(make_topic()), value=Json(int), expiry=True)


def test_good_rows_are_columns_and_bad_rows_keep_their_bytes(topics, kafka, make_topic):
    topic = make_topic()
    avro = encoded(Avro(Sale), Sale("a", 5, None), b"\x00", None, b"", Sale("b", -7, "n"))
    kafka.produce(topic, avro, keys=["k0", "k1", "k2", "k3", "k4"])
    good, bad = split(decode(topics.read(topic), value=Avro(Sale)))
    rows = {r.offset: r for r in good.collect()}
    assert rows.keys() == {0, 2, 4}
    assert rows[0].value.asDict() == {"shop": "a", "amount": 5, "note": None}
    assert rows[2].value is None  # a tombstone is not an error
    assert good.selectExpr("sum(value.amount) total").first().total == -2
    wrong = {r.offset: r for r in bad.collect()}
    assert wrong.keys() == {1, 3}
    assert (wrong[1].key, wrong[1].value) == (b"k1", b"\x00")
    assert (wrong[3]._error.part, wrong[3]._error.kind) == ("value", "malformed")


def test_json_keys_and_rules_of_a_type(topics, kafka, make_topic):
    topic = make_topic()
    kafka.produce(topic, [b'{"amount": 1}', b'{"amount": -1}', b"{", b""], keys=["a", "b", b"\xff", "c"])
    decoded = decode(topics.read(topic), value=Json(Checked), key=Str())
    assert dict(decoded.dtypes)["key"] == "string"
    rows = {r.offset: r for r in decoded.collect()}
    assert (rows[0].key, rows[0].value.amount, rows[0]._error, rows[0]._raw) == ("a", 1, None, None)
    assert rows[1]._error.kind == "invalid"
    assert "not negative" in rows[1]._error.message
    assert rows[2]._error.part == "key"
    assert (rows[2]._raw.key, rows[2]._raw.value) == (b"\xff", b"{")
    assert (rows[3]._error.kind, rows[3]._raw.value) == ("malformed", b"")  # Spark's from_json says nothing of these


def test_what_cannot_be_decoded_is_said_when_the_query_is_built(topics, make_topic):
    frame = topics.read(make_topic())
    with pytest.raises(ConfigError, match="does not say what its values look like"):
        decode(frame, value=Json())
    with pytest.raises(ConfigError, match="give a serde"):
        decode(frame)
    with pytest.raises(ConfigError, match="column value: found no such column"):
        decode(frame.drop("value"), value=Str())
    with pytest.raises(ConfigError, match="found no column _error"):
        split(frame)
    with pytest.raises(ConfigError, match="includeHeaders"):
        dead_letters(split(decode(frame, value=Str()))[1], pipeline="p")


def test_a_function_makes_the_serde_where_it_cannot_travel(topics, kafka, make_topic):
    topic = make_topic()
    kafka.produce(topic, [b'{"shop": "a", "amount": 1, "note": null}'])
    decoded = decode(topics.read(topic), value=lambda: Json(Sale))
    assert decoded.first().value.shop == "a"


def test_several_schema_ids_of_a_registry_are_in_one_topic(topics, kafka, make_topic):
    """Workers ask the registry themselves, so a function makes the serde where they are."""
    topic, context = make_topic(), SerdeContext("sales")
    older = {"type": "record", "name": "Sale", "fields": [{"name": n, "type": t} for n, t in OLDER_FIELDS.items()]}
    with EmbeddedRegistry() as registry:
        url = registry.url
        old, new = Avro(older, registry=url), Avro(SALE, registry=url)
        kafka.produce(topic, [old.serialize({"shop": "a", "amount": 1}, context)])
        kafka.produce(
            topic,
            [
                new.serialize({"shop": "b", "amount": 2, "note": "new"}, context),
                b"\0\0\0\xff\xff\x04",
                b"",
                b"unframed",
            ],
        )
        frame = read(
            topics.spark, topic, bootstrap_servers=kafka.bootstrap_servers, value=lambda: Avro(SALE, registry=url)
        )
        good, bad = split(frame)
        assert sorted(tuple(r.value) for r in good.collect()) == [("a", 1, None), ("b", 2, "new")]
        assert [r._error.kind for r in bad.collect()] == ["malformed"] * 3


def test_bad_rows_of_a_stream_become_the_sdks_dead_letters(topics, kafka, make_topic):
    source, dlq = make_topic("in"), make_topic("dlq")
    good, bad = b'{"amount": 1}', b'{"amount": '
    kafka.produce(source, [good, bad, good], keys=["a", "b", "c"], headers=[("trace", b"1"), ("empty", None)])
    _, wrong = split(decode(topics.stream(source, includeHeaders=True), value=Json(Checked)))
    topics.run(dead_letters(wrong, pipeline="sales-v1"), topic=dlq)
    (letter,) = kafka.consume_all(dlq)
    assert (letter.raw_key, letter.raw_value) == (b"b", bad)
    assert letter.headers[:2] == [("trace", b"1"), ("empty", None)]
    family = {name.removeprefix(PREFIX): value.decode() for name, value in letter.headers[2:]}
    assert (family["topic"], family["partition"], family["offset"]) == (source, "0", "1")
    assert (family["kind"], family["group"], family["attempts"]) == ("malformed", "sales-v1", "1")
    assert family["error-message"].startswith("value: not JSON")
    assert int(family["timestamp"]) <= int(family["dead-lettered"])


def test_decoding_inside_the_source_gives_the_same_rows(topics, kafka, make_topic):
    topic = make_topic(partitions=2)
    avro = encoded(Avro(Sale), *[Sale(f"shop {i}", i, None if i % 2 else "note") for i in range(50)], b"\x01", None)
    kafka.produce(topic, avro, keys=[f"k{i}" for i in range(len(avro))])
    inside = read(topics.spark, topic, bootstrap_servers=kafka.bootstrap_servers, value=Avro(Sale), key=Str())
    outside = decode(topics.read(topic), value=Avro(Sale), key=Str())
    assert inside.schema == outside.schema
    by_place = {(r.partition, r.offset): r for r in inside.collect()}
    assert by_place == {(r.partition, r.offset): r for r in outside.collect()}
    good, bad = split(inside)
    assert (good.count(), bad.count()) == (51, 1)


def test_a_stream_decoded_inside_the_source_keeps_its_start_beside_the_checkpoint(topics, kafka, make_topic, tmp_path):
    topic = make_topic()
    kafka.produce(topic, [b"before"])
    checkpoint = str(tmp_path / "kept")

    def rows():
        frame = read_stream(
            topics.spark, topic, bootstrap_servers=kafka.bootstrap_servers, checkpoint=checkpoint, value=str
        )
        batches, _ = topics.collect(frame, checkpoint="kept")
        return [r.value for batch in batches for r in batch]

    assert rows() == []  # from the end, as streams start by default
    assert (tmp_path / "kept" / "ottla-starting-offsets.json").exists()
    kafka.produce(topic, [b"after"])
    assert rows() == ["after"]


@pytest.mark.parametrize("serde", [Avro, Json])
def test_nested_types_of_a_class_that_no_module_has_pass_through_spark(topics, kafka, make_topic, serde):
    """As in a notebook: the class exists in this process only, and its annotations are text."""

    @dataclasses.dataclass
    class Basket:
        lines: list[Sale]
        counts: dict[str, int]
        at: datetime.datetime
        total: int = 0

        def __post_init__(self):
            if self.total < 0:
                raise ValueError("a total is not negative")

    topic = make_topic()
    at = datetime.datetime(2026, 5, 4, 3, 2, 1, tzinfo=datetime.UTC)
    raw = encoded(serde(Basket), Basket([Sale("a", 1, None)], {"x": 3}, at))
    raw.append(raw[0].replace(b'"total":0', b'"total":-1') if serde is Json else raw[0][:-1] + b"\x01")
    kafka.produce(topic, raw)
    frame = read(topics.spark, topic, bootstrap_servers=kafka.bootstrap_servers, value=serde(Basket))
    good_rows, bad_rows = split(frame)
    row = good_rows.selectExpr("value.lines[0].shop shop", "value.counts['x'] x", "unix_millis(value.at) at").first()
    assert (row.shop, row.x, row["at"]) == ("a", 3, int(at.timestamp() * 1000))
    assert [r._error.kind for r in bad_rows.collect()] == ["invalid"]


def test_where_sparks_own_connector_is_not_there_auto_does_without_and_jvm_says_so(topics, kafka, make_topic):
    from ottla.spark.reading.engine import jvm_source_is_there

    topic = make_topic()
    kafka.produce(topic, [b"x"])
    frame = read(topics.spark, topic, bootstrap_servers=kafka.bootstrap_servers, engine="auto")
    assert frame.count() == 1
    if not jvm_source_is_there(topics.spark):
        with pytest.raises(Exception, match=r"(?i)kafka"):
            read(topics.spark, topic, bootstrap_servers=kafka.bootstrap_servers, engine="jvm")
