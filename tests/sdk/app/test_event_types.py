"""Several event types on one topic: which handler gets a record, what none takes, and what is refused."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, duration_pb2, struct_pb2, timestamp_pb2

from ottla import (
    App,
    Avro,
    BindingError,
    CommitPolicy,
    ConfigError,
    Context,
    Dead,
    Inbox,
    InvalidRecord,
    Json,
    Malformed,
    Outcome,
    Producer,
    Protobuf,
    Record,
    RetryPolicy,
    RetryTopics,
    SchemaName,
    Skip,
    TagField,
    TagHeader,
)
from ottla.app.app import declarations_of
from ottla.serdes import SchemaRegistry, SerdeContext
from ottla.stores import Memory
from ottla.telemetry import Counters
from ottla.testing import consumer_for


@dataclass
class Created:
    id: int


@dataclass
class Shipped:
    id: int
    by: str


BY = TagHeader("type")


def shop(is_async: bool = False, app: App | None = None, **options: Any) -> tuple[App, list[Any]]:
    """An app of two types whose handlers note what they get."""
    app = app or App("billing", dead_letter_topic="dead", retry=RetryPolicy(initial_s=0.01, max_attempts=3))
    seen: list[Any] = []
    orders = app.topic("orders", by=options.pop("by", BY), **options)

    def on_created(order: Created) -> None:
        seen.append(order)

    def on_shipped(order: Shipped, key: bytes | None, context: Context) -> None:
        seen.append(order)

    async def on_created_async(order: Created) -> None:
        await asyncio.sleep(0)
        seen.append(order)

    async def on_shipped_async(order: Shipped, key: bytes | None, context: Context) -> None:
        seen.append(order)

    orders.on("order.created", "order.imported", value=Json(Created))(on_created_async if is_async else on_created)
    orders.on("order.shipped")(on_shipped_async if is_async else on_shipped)
    return app, seen


def typed(tag: str) -> list[tuple[str, bytes | None]]:
    return [("type", tag.encode())]


@pytest.mark.parametrize("is_async", [False, True])
def test_each_type_reaches_its_handler_decoded_as_it_wants(is_async: bool) -> None:
    app, seen = shop(is_async)
    consumer = consumer_for(app)
    for tag, value in (
        ("order.created", b'{"id": 1}'),
        ("order.shipped", b'{"id": 2, "by": "sea"}'),
        ("order.imported", b'{"id": 3}'),
    ):
        assert consumer.deliver(value, headers=typed(tag)).outcome == "done"
    assert seen == [Created(1), Shipped(2, "sea"), Created(3)]
    assert consumer.position() == 3


def test_a_test_delivers_values_and_their_type_follows() -> None:
    app, seen = shop()
    consumer = consumer_for(app)
    deliveries = consumer.deliver_all([Created(1), Shipped(2, "air"), Created(3)])
    assert [delivery.outcome for delivery in deliveries] == ["done"] * 3
    assert seen == [Created(1), Shipped(2, "air"), Created(3)]
    assert deliveries[1].record.headers == [("type", b"order.shipped")]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("otherwise", "outcome", "reason"),
    [
        (None, "dead", "no handler for an event of the type 'order.lost'"),
        (Skip(), "skipped", ""),
        (Dead("not ours"), "dead", "not ours"),
    ],
)
def test_a_type_without_a_handler_has_its_outcome_and_is_counted(
    is_async: bool, otherwise: Outcome | None, outcome: str, reason: str
) -> None:
    counters = Counters()
    app = App("billing", dead_letter_topic="dead", hooks=counters)
    app, seen = shop(is_async, app, otherwise=otherwise)
    consumer = consumer_for(app)
    delivery = consumer.deliver(b"\xff what nobody decodes", headers=typed("order.lost"))
    assert (delivery.outcome, seen) == (outcome, [])
    assert reason in delivery.reason
    assert counters["event_type_unhandled"] == 1
    assert consumer.deliver(b"{}").outcome == outcome, "no type at all"
    assert consumer.deliver(Created(1)).outcome == "done"
    assert counters["event_type_unhandled"] == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_default_handler_gets_what_no_other_takes(is_async: bool) -> None:
    app = App("billing")
    orders = app.topic("orders", by=BY)
    others: list[Record[bytes]] = []

    async def on_created(order: Created) -> None: ...

    async def on_other(record: Record[bytes]) -> None:
        others.append(record)

    if is_async:
        orders.on("order.created")(on_created)
        orders.otherwise(on_other)
    else:
        orders.on("order.created")(lambda order: None)
        orders.otherwise(lambda record: others.append(record))
    consumer = consumer_for(app)
    consumer.deliver(b"{}", headers=typed("order.lost"))
    consumer.deliver(None, key=b"k")
    assert [(record.value, record.key) for record in others] == [(b"{}", None), (None, b"k")]


def test_the_order_of_a_key_holds_across_types_and_retries() -> None:
    app = App("billing", retry=RetryPolicy(initial_s=0.01, max_attempts=5))
    orders = app.topic("orders", by=BY, ordering="key", concurrency=8, key=bytes)
    seen: list[tuple[bytes, str, int]] = []
    failed: set[int] = set()

    @orders.on("order.created", value=Json(Created))
    def on_created(order: Created, key: bytes) -> None:
        if order.id % 3 == 0 and order.id not in failed:
            failed.add(order.id)
            raise ConnectionError("once")
        seen.append((key, "created", order.id))

    @orders.on("order.shipped", value=Json(Shipped))
    def on_shipped(order: Shipped, key: bytes) -> None:
        seen.append((key, "shipped", order.id))

    numbers = list(range(60))
    values = [Created(number) if number % 2 else Shipped(number, "sea") for number in numbers]
    consumer = consumer_for(app)
    for value in values:
        consumer.deliver_all([value], keys=[b"%d" % (value.id % 5)])
    for key in range(5):
        of_key = [number for at, _, number in seen if at == b"%d" % key]
        assert of_key == [number for number in numbers if number % 5 == key]
    assert failed


def test_a_failed_record_comes_back_to_its_handler_out_of_a_retry_topic() -> None:
    app, seen = App("billing", dead_letter_topic="dead"), list[int]()
    orders = app.topic("orders", by=BY, retry_topics=RetryTopics())

    @orders.on("order.created", value=Json(Created))
    def on_created(order: Created, record: Record[Created], context: Context) -> None:
        assert record.topic == "orders"
        seen.append(context.attempt)
        if context.attempt < 3:
            raise ConnectionError("not yet")

    @orders.on("order.shipped", value=Json(Shipped))
    def on_shipped(order: Shipped) -> None:
        raise InvalidRecord("never")

    consumer = consumer_for(app)
    assert consumer.deliver(Created(1)).outcome == "done"
    assert seen == [1, 2, 3]
    delivery = consumer.deliver(Shipped(1, "sea"))
    assert delivery.outcome == "dead"
    assert delivery.dead_letter is not None
    assert ("type", b"order.shipped") in delivery.dead_letter.headers


def test_a_middleware_sees_each_record_decoded_and_may_pass_on_another() -> None:
    app, seen = shop()

    @app.middleware
    def renumber(record: Any, context: Context, call_next: Callable[[Any], Any]) -> Any:
        other = Record("orders", 0, 7, 0, None, Shipped(9, "rail"), typed("order.shipped"), None, b"")
        return call_next(other if isinstance(record.value, Created) else record)

    consumer = consumer_for(app)
    assert consumer.deliver(Created(1)).outcome == "done"
    assert consumer.deliver(Shipped(2, "sea")).outcome == "done"
    assert seen == [Shipped(9, "rail"), Shipped(2, "sea")]


@pytest.mark.parametrize("is_async", [False, True])
def test_values_that_do_not_decode_are_dead_letters_with_the_serde_of_their_type(is_async: bool) -> None:
    app, seen = shop(is_async)
    consumer = consumer_for(app)
    deliveries = [
        consumer.deliver(b"no json", headers=typed("order.created")),
        consumer.deliver(b'{"id": 1}', headers=typed("order.shipped")),
        consumer.deliver(b'{"id": 1}', headers=[("type", b"\xff")]),
    ]
    assert [delivery.outcome for delivery in deliveries] == ["dead"] * 3
    letters = [delivery.dead_letter for delivery in deliveries]
    assert [letter.kind for letter in letters if letter is not None] == ["malformed", "invalid", "malformed"]
    assert "header type is not UTF-8" in deliveries[2].reason
    assert seen == []


def test_a_message_is_handled_once_by_its_id_whichever_its_type() -> None:
    app, seen = shop(inbox=Inbox(Memory()), otherwise=Skip(), app=App("billing", hooks=(counters := Counters())))
    consumer = consumer_for(app)
    headers = [("ce_id", b"1"), ("ce_source", b"shop")]
    for tag in ("order.created", "order.created", "order.lost"):
        consumer.deliver(b'{"id": 1}', headers=[*headers, *typed(tag)])
        headers = headers if tag == "order.created" else []
    consumer.deliver(b'{"id": 2}', headers=[("ce_id", b"2"), ("ce_source", b"shop"), *typed("order.lost")])
    assert seen == [Created(1)]
    assert counters["event_type_unhandled"] == 1, "counted once, although a run is decoded twice"


class TestTags:
    """What the three selectors read, and what they refuse."""

    @pytest.mark.parametrize(
        ("value", "tag"),
        [
            (b'{"type": "a", "n": [1, {"type": "b"}]}', "a"),
            (b'{"n": 1, "type": 7}', "7"),
            (b'\0\0\0\0\x05{"type": "a"}', "a"),
            (b'{"n": 1}', None),
            (b'{"type": null}', None),
            (None, None),
        ],
    )
    def test_a_field_of_json(self, value: bytes | None, tag: str | None) -> None:
        assert TagField("type").tag_of(record_of(value)) == tag

    @pytest.mark.parametrize(
        ("value", "kind"),
        [(b"", "malformed"), (b'{"type": ', "malformed"), (b"[1]", "invalid"), (b'{"type": []}', "invalid")],
    )
    def test_a_field_that_cannot_be_read_is_evidence(self, value: bytes, kind: str) -> None:
        found = TagField("type").tag_of(record_of(value))
        assert isinstance(found, Malformed)
        assert (found.kind, found.raw, found.part) == (kind, value, "value")

    @pytest.mark.parametrize(
        "odd",
        [
            b'{"type": "7"}',
            b'{"type": -7}',
            b'{"type": null}',
            b'{"n": 1}',
            b'{"type": 1, "type": 2}',
            b'{"type": 7.0}',
            b'{"type": 7.5}',
            b'{"type": true}',
            b'{"type": %s}' % (b"9" * 4_000),
            b'{"type": %s}' % (b"9" * 5_000),
            b'{"type": 1e400}',
            b'{"type": {"type": 7}}',
            b'{"type": 7',
            b'\0\0\0\0\x05{"type": 7}',
            None,
        ],
    )
    def test_a_run_has_the_tags_that_its_records_have_one_by_one(self, odd: bytes | None) -> None:
        by = TagField("type")
        records = [record_of(value) for value in (b'{"type": 7}', odd, b'{"type": "a"}', b'{"type": 8}')]
        assert by.tags_of(records) == [by.tag_of(record) for record in records]

    def test_a_run_with_numbers_is_read_once(self) -> None:
        class OnceOnly(TagField):
            def tag_of(self, record: Record[Any]) -> str | Malformed | None:
                raise AssertionError("read again, one by one")

        records = [record_of(value) for value in (b'{"type": 7}', b'{"type": "a"}', b"{}", b'{"type": 7}')]
        assert OnceOnly("type").tags_of(records) == ["7", "a", None, "7"]

    def test_the_last_header_of_the_name_counts(self) -> None:
        assert BY.tag_of(record_of(b"", [("type", b"a"), ("type", b"b"), ("other", b"c")])) == "b"
        assert BY.tag_of(record_of(b"", [("type", None)])) is None

    def test_the_name_of_a_schema(self, schema_registry: Any) -> None:
        client = SchemaRegistry(schema_registry.url)
        created = Avro(Created, registry=client, namespace="shop", subject=lambda ctx, name: str(name))
        shipped = Avro(Shipped, registry=client, namespace="shop", subject=lambda ctx, name: str(name))
        context = SerdeContext("orders", "value")
        app, seen = App("billing", dead_letter_topic="dead"), list[Any]()
        orders = app.topic("orders", by=SchemaName(schema_registry.url))
        orders.on("shop.Created", value=created)(lambda order: seen.append(order))
        orders.on("shop.Shipped", value=shipped)(lambda order: seen.append(order))
        consumer = consumer_for(app)
        for data in (created.serialize(Created(1), context), shipped.serialize(Shipped(2, "sea"), context)):
            assert consumer.deliver(data).outcome == "done"
        assert seen == [Created(1), Shipped(2, "sea")]
        assert consumer.deliver(b"{}").outcome == "dead", "no schema id"
        unknown = consumer.deliver(b"\0\0\0\x77\x77rest")
        assert (unknown.outcome, len(seen)) == ("dead", 2)

    def test_the_name_of_a_protobuf_message(self, schema_registry: Any) -> None:
        client = SchemaRegistry(schema_registry.url)
        moments, spans = (
            Protobuf(message, registry=client, subject=lambda ctx, name: str(name))
            for message in (timestamp_pb2.Timestamp, duration_pb2.Duration)
        )
        context = SerdeContext("orders", "value")
        app, seen = App("billing", dead_letter_topic="dead"), list[Any]()
        orders = app.topic("orders", by=SchemaName(schema_registry.url))
        orders.on("google.protobuf.Timestamp", value=moments)(lambda moment: seen.append(moment))
        orders.on("google.protobuf.Duration", value=spans)(lambda span: seen.append(span))
        consumer = consumer_for(app)
        moment, span = timestamp_pb2.Timestamp(seconds=1), duration_pb2.Duration(seconds=2)
        for data in (moments.serialize(moment, context), spans.serialize(span, context)):
            assert consumer.deliver(data).outcome == "done"
        assert seen == [moment, span]

    def test_a_run_has_the_schema_names_of_its_records_one_by_one_and_later_without_looking(
        self, schema_registry: Any
    ) -> None:
        class Counted(SchemaName):
            looked = 0

            def tag_of(self, record: Record[Any]) -> str | Malformed | None:
                self.looked += 1
                return super().tag_of(record)

        client, context = SchemaRegistry(schema_registry.url), SerdeContext("orders", "value")
        created = Avro(Created, registry=client).serialize(Created(1), context)
        first, nested = (  # the first message of its file, and one inside another
            Protobuf(type(value), registry=client, subject=lambda ctx, name: str(name)).serialize(value, context)
            for value in (struct_pb2.Struct(), descriptor_pb2.DescriptorProto.ExtensionRange(start=1))
        )
        assert first is not None
        known = [record_of(value) for value in (created, first) * 2]
        others = [record_of(value) for value in (nested, None, b"", b"{}", first[:5], b"\0\0\0\x77\x77rest")]
        by = Counted(client)
        names = ["Created", "google.protobuf.Struct", "google.protobuf.DescriptorProto.ExtensionRange", None]
        for _ in range(2):
            found = by.tags_of([*known, *others])
            assert found == [*names[:2] * 2, *names[2:], *map(by.tag_of, others[2:])]
            assert all(isinstance(tag, Malformed) for tag in found[6:])
        by.looked = 0
        assert by.tags_of(known) == names[:2] * 2
        assert by.looked == 0

    @pytest.mark.parametrize("name", ["", None, 7, "x" * 250])
    def test_a_name_that_is_none_is_refused(self, name: Any) -> None:
        for kind in (TagHeader, TagField):
            with pytest.raises(ConfigError, match="wanted text"):
                kind(name)
        with pytest.raises(ConfigError, match="SchemaRegistry"):
            SchemaName(7)  # type: ignore[arg-type]


def record_of(value: bytes | None, headers: list[tuple[str, bytes | None]] | None = None) -> Record[Any]:
    return Record("orders", 0, 0, 0, None, value, headers or [], None, value)


class TestDeclarations:
    """What is refused, and leaves what was declared before as it was."""

    @pytest.mark.parametrize(
        ("options", "wanted"),
        [
            ({"by": "type"}, "TagHeader"),
            ({"otherwise": "skip"}, "wanted Skip"),
            ({"batch": True}, "batch="),
            ({"columns": True}, "columns="),
            ({"to": "x"}, "to="),
            ({"linger_ms": 1}, "linger_ms="),
            ({"value": Json()}, "value="),
        ],
    )
    def test_a_topic_refuses(self, options: dict[str, Any], wanted: str) -> None:
        with pytest.raises(ConfigError, match=wanted):
            App("billing").topic("orders", **{"by": BY, **options})

    def test_a_type_has_one_handler(self) -> None:
        app = App("billing")
        orders = app.topic("orders", by=BY)
        orders.on("order.created", value=Json(Created))(lambda order: None)
        orders.on("order.shipped", value=Json(Shipped))(lambda order: None)
        with pytest.raises(ConfigError, match=r"orders: 'order\.shipped' has a handler already"):
            orders.on("order.lost", "order.shipped")(lambda value: None)
        for tags in ((), ("",), (7,)):
            with pytest.raises((ConfigError, TypeError)):
                orders.on(*tags)(lambda value: None)
        with pytest.raises(ConfigError, match="async def and def"):
            orders.on("order.lost")(asyncio.sleep)
        with pytest.raises(BindingError, match="Malformed"):

            @orders.on("order.lost", value=Json(Created))
            def on_lost(order: Created | Malformed) -> None: ...

        with pytest.raises(BindingError, match="annotation says"):
            orders.on("order.lost", value=Json(Created))(lambda_of_shipped)  # type: ignore[arg-type]
        assert len(declarations_of(app).routes) == 1
        assert consumer_for(app).deliver(Created(1)).outcome == "done", "what was there still is"

    @pytest.mark.parametrize(
        ("options", "wanted"),
        [
            (
                {"concurrency": 3},
                r"on: found concurrency=, wanted in app\.topic\(\.\.\.\): all event types share",
            ),
            ({"ordering": "key"}, "found ordering="),
            ({"retry_topics": None}, "found retry_topics="),
            ({"dead_letter_topic": "dead"}, "found dead_letter_topic="),
            ({"serde": Json()}, "orders: on: found serde=, wanted value="),
        ],
    )
    def test_what_belongs_to_the_subscription_is_not_of_one_type(self, options: dict[str, Any], wanted: str) -> None:
        orders = App("billing").topic("orders", by=BY, concurrency=2)
        with pytest.raises(ConfigError, match=wanted):
            orders.on("order.created", **options)(lambda order: None)

    def test_others_have_one_handler_or_an_outcome(self) -> None:
        orders = App("billing").topic("orders", by=BY, otherwise=Skip())
        with pytest.raises(ConfigError, match="otherwise=Skip"):
            orders.otherwise(lambda value: None)
        orders = App("billing").topic("orders", by=BY)
        orders.otherwise(lambda value: None)
        with pytest.raises(ConfigError, match="already"):
            orders.otherwise(lambda value: None)

    def test_a_topic_without_a_handler_does_not_run(self) -> None:
        app = App("billing", bootstrap_servers="localhost:1")
        app.topic("orders", by=BY)
        app.handler("returns")(lambda value: None)
        with pytest.raises(ConfigError, match="orders: found no handler of an event type"):
            app.run()

    def test_another_handler_of_the_topic_is_refused(self) -> None:
        app, _ = shop()
        with pytest.raises(ConfigError, match="two handlers"):
            app.handler("orders", name="again")(lambda value: None)
        other = app.topic("orders", by=BY, name="again")
        with pytest.raises(ConfigError, match="two handlers"):
            other.on("x")(lambda value: None)

    def test_what_a_store_needs_is_asked_of_every_type(self) -> None:
        orders = App("billing").topic("orders", by=BY)
        with pytest.raises(BindingError, match="transaction"):
            orders.on("x")(lambda value, transaction: None)

    def test_handlers_agree_about_the_key(self) -> None:
        orders = App("billing").topic("orders", by=BY)

        @orders.on("a", value=Json(Created))
        def on_a(order: Created, key: str) -> None: ...

        with pytest.raises(BindingError, match="annotate the key differently"):

            @orders.on("b", value=Json(Created))
            def on_b(order: Created, key: int) -> None: ...


def lambda_of_shipped(order: Shipped) -> None: ...


def test_types_share_one_subscription_through_the_clients(
    shell: Any, kafka: Any, make_topic: Callable[..., str], kafka_group: str, wait: Any
) -> None:
    topic, dead = make_topic("orders", partitions=3), make_topic("dead")
    counters = Counters()
    app = App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        dead_letter_topic=dead,
        commit=CommitPolicy(every_s=0.05),
        hooks=counters,
    )
    orders = app.topic(topic, by=BY, ordering="key", concurrency=4)
    seen: dict[bytes, list[int]] = {}
    lock = threading.Lock()

    def note(number: int, key: bytes | None) -> None:
        with lock:
            seen.setdefault(key or b"", []).append(number)

    if shell.name == "asyncio":

        @orders.on("created", value=Json(Created))
        async def on_created(order: Created, key: bytes | None) -> None:
            note(order.id, key)

        @orders.on("shipped", value=Json(Shipped))
        async def on_shipped(order: Shipped, key: bytes | None) -> None:
            note(order.id, key)
    else:

        @orders.on("created", value=Json(Created))
        def on_created_here(order: Created, key: bytes | None) -> None:
            note(order.id, key)

        @orders.on("shipped", value=Json(Shipped))
        def on_shipped_here(order: Shipped, key: bytes | None) -> None:
            note(order.id, key)

    with Producer(kafka.bootstrap_servers) as producer:
        for number in range(300):
            tag, value = ("created", {"id": number}) if number % 2 else ("shipped", {"id": number, "by": "sea"})
            tag = "lost" if number % 50 == 49 else tag
            producer.send(topic, json.dumps(value).encode(), key=b"%d" % (number % 7), headers=typed(tag))
    shell.start(app)
    wait(lambda: sum(map(len, seen.values())) == 294 and len(kafka.consume_all(dead)) == 6)
    shell.stop(app)
    lost = {number for number in range(300) if number % 50 == 49}
    for key, numbers in seen.items():
        assert numbers == [number for number in range(300) if number % 7 == int(key) and number not in lost]
    assert Tally(letter.header_text("type") for letter in kafka.consume_all(dead)) == {"lost": 6}
    assert counters["event_type_unhandled"] >= 1
