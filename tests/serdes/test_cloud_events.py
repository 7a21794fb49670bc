"""CloudEvents: what is written and read, held against the official SDK; and what is malformed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla import (
    App,
    CloudEvent,
    CloudEvents,
    CloudEventType,
    ConfigError,
    Context,
    Inbox,
    InputError,
    Json,
    Malformed,
    Record,
    Str,
)
from ottla.event_attributes import event_of_record
from ottla.once.message_id import message_id_of
from ottla.serdes import Avro, Bytes, SerdeContext
from ottla.stores import Memory
from ottla.testing import consumer_for


@dataclass
class Order:
    id: int


EVENTS = CloudEvents(Json(Order), source="/shop")
STRUCTURED: list[tuple[str, bytes | None]] = [("content-type", b"application/cloudevents+json; charset=utf-8")]
NEEDED: dict[str, Any] = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "order.created"}
ORDERS = SerdeContext("orders")


def structured(**attributes: Any) -> bytes:
    return json.dumps({name: value for name, value in {**NEEDED, **attributes}.items() if value is not ...}).encode()


def record_of(value: bytes | None, headers: Any) -> Record[Any]:
    return Record("orders", 0, 0, 0, None, value, list(headers), None, value)


def read(value: bytes | None, headers: Any, serde: Any = EVENTS) -> Any:
    (found,) = serde.deserialize_records([record_of(value, headers)], ORDERS)
    again = serde.deserialize(value, SerdeContext("orders", "value", headers))
    assert found == again or isinstance(found, Malformed)
    return found


class TestBesideTheSdk:
    """The SDK of the CloudEvents project reads what is written here, and is read."""

    kafka: Any
    event_class: Any
    as_json: Any

    @pytest.fixture(autouse=True)
    def sdk(self) -> None:
        why = "the official SDK, cloudevents, is not installed"
        TestBesideTheSdk.kafka = pytest.importorskip("cloudevents.core.bindings.kafka", reason=why)
        from cloudevents.core.formats.json import JSONFormat
        from cloudevents.core.v1.event import CloudEvent as OfSdk

        TestBesideTheSdk.event_class, TestBesideTheSdk.as_json = OfSdk, JSONFormat()

    @given(
        st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=30),
        st.none() | st.text("abc/ä ", min_size=1, max_size=5),
        st.dictionaries(st.sampled_from(["traceid", "partitionkey", "x1"]), st.text("aä 1", max_size=5), max_size=3),
        st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)),
    )
    def test_it_reads_what_is_sent(
        self, name: str, subject: str | None, extensions: dict[str, str], time: datetime
    ) -> None:
        headers = EVENTS.headers(type=name, subject=subject, time=time, id=name, **extensions)
        value = EVENTS.serialize(Order(1), ORDERS)
        assert value is not None
        message = self.kafka.KafkaMessage({key: held or b"" for key, held in headers}, None, value)
        event = self.kafka.from_binary(message, self.as_json, self.event_class)
        assert (event.get_type(), event.get_id(), event.get_source()) == (name, name, "/shop")
        assert (event.get_subject(), event.get_time(), event.get_data()) == (subject, time, {"id": 1})
        assert {key: event.get_extension(key) for key in extensions} == extensions

    @pytest.mark.parametrize("mode", ["to_binary", "to_structured"])
    def test_what_it_writes_is_read(self, mode: str) -> None:
        at = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
        attributes = {**NEEDED, "time": at, "subject": "ä 1", "datacontenttype": "application/json", "x1": "y"}
        event = self.event_class(attributes, {"id": 1})
        message = getattr(self.kafka, mode)(event, self.as_json)
        headers = list(message.headers.items())
        assert read(message.value, headers) == Order(1)
        found = record_of(message.value, headers).event
        assert found == CloudEvent(
            id="7",
            source="/shop",
            type="order.created",
            time=at,
            subject="ä 1",
            datacontenttype="application/json",
            extensions={"x1": "y"},
        )


class TestSending:
    """The headers of an event."""

    def test_what_is_not_given_is_filled_in(self) -> None:
        before = datetime.now(UTC)
        found = record_of(b"", EVENTS.headers(type="a")).event
        other = record_of(b"", EVENTS.headers(type="a")).event
        assert found is not None
        assert other is not None
        assert found.time is not None
        assert before - timedelta(seconds=1) <= found.time <= datetime.now(UTC)
        assert found.id != other.id
        assert found.datacontenttype == "application/json"

    @pytest.mark.parametrize(
        ("serde", "content_type"),
        [(Str(), b"text/plain"), (Bytes(), None), (Avro(Order), b"avro/binary")],
    )
    def test_the_media_type_follows_from_the_serde(self, serde: Any, content_type: bytes | None) -> None:
        headers = dict(CloudEvents(serde, source="/s").headers(type="a"))
        assert headers.get("content-type") == content_type
        assert dict(CloudEvents(serde, source="/s", content_type="a/b").headers(type="a"))["content-type"] == b"a/b"

    @pytest.mark.parametrize(
        ("options", "wanted"),
        [
            ({"type": ""}, "type is empty"),
            ({"type": "a", "id": ""}, "id is empty"),
            ({"type": "a\nb"}, "control character"),
            ({"type": "a", "orderId": "1"}, "lower-case"),
            ({"type": "a", "time": datetime(2026, 1, 1)}, "time zone"),
            ({"type": 7}, "type: found int"),
        ],
    )
    def test_what_no_event_may_have_is_refused(self, options: dict[str, Any], wanted: str) -> None:
        with pytest.raises(InputError, match=wanted):
            EVENTS.headers(**options)
        with pytest.raises(InputError, match="source"):
            CloudEvents(Json()).headers(type="a")

    def test_what_is_no_serde_is_refused(self) -> None:
        for wrong in (7, EVENTS):
            with pytest.raises(ConfigError, match="CloudEvents"):
                CloudEvents(wrong)  # type: ignore[arg-type]


class TestReading:
    """Both modes, and what is malformed."""

    @pytest.mark.parametrize(
        ("value", "data"),
        [
            (structured(data={"id": 1}), b'{"id": 1}'),
            (structured(data_base64="AAE="), b"\0\1"),
            (structured(data="plain", datacontenttype="text/plain"), b"plain"),
            (structured(data="text", datacontenttype="application/json"), b'"text"'),
            (structured(data={"a": 1}, datacontenttype="application/x+json"), b'{"a": 1}'),
            (structured(), None),
            (structured(data=None, subject=None), None),
        ],
    )
    def test_the_data_of_a_structured_event(self, value: bytes, data: bytes | None) -> None:
        assert read(value, STRUCTURED, CloudEvents(Bytes())) == data

    @pytest.mark.parametrize(
        ("value", "headers", "found"),
        [
            (b"{}", [], "found no header ce_specversion"),
            (b"{}", [("ce_specversion", b"0.3")], "wanted 1.0"),
            (b"{}", [("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"s")], "found no header ce_type"),
            (b"{}", [("ce_specversion", b"1.0"), ("ce_id", b"\xff")], "not UTF-8"),
            (b"{}", [*EVENTS.headers(type="a"), ("ce_time", b"yesterday")], "wanted a time"),
            (b"{}", [*EVENTS.headers(type="a"), ("ce_time", b"2026-01-01")], "wanted a time"),
            (b"{}", [*EVENTS.headers(type="a"), ("ce_id", b"")], "id is empty"),
            (b"{}", [*EVENTS.headers(type="a"), ("ce_Big", b"x")], "lower-case"),
            (b"", STRUCTURED, "no event in JSON"),
            (None, STRUCTURED, "no event in JSON"),
            (b"[]", STRUCTURED, "no event in JSON"),
            (structured(id=...), STRUCTURED, "found no attribute id"),
            (structured(id={"a": 1}), STRUCTURED, "no event in JSON"),
            (structured(data_base64="*"), STRUCTURED, "data_base64"),
            (structured(data_base64="AA==", data=1), STRUCTURED, "wanted one of them"),
            (structured(), [("content-type", b"application/cloudevents+avro")], "wanted application/cloudevents"),
            (structured(), [("content-type", b"application/cloudevents-batch+json")], "wanted application/cloudevents"),
        ],
    )
    def test_wrong_attributes_are_evidence(self, value: bytes | None, headers: Any, found: str) -> None:
        refused = read(value, headers)
        assert isinstance(refused, Malformed)
        assert found in refused.error
        assert (refused.kind, refused.raw) == ("malformed", value)
        assert record_of(value, headers).event is None

    @given(st.binary(max_size=60), st.lists(st.tuples(st.sampled_from(["ce_id", "ce_x", "content-type"]), st.binary())))
    def test_no_bytes_raise(self, value: bytes, headers: list[tuple[str, bytes | None]]) -> None:
        for of_mode in (headers, [*headers, *STRUCTURED], [*EVENTS.headers(type="a"), *headers]):
            read(value, of_mode)
            CloudEventType().tag_of(record_of(value, of_mode))

    def test_data_that_does_not_decode_is_malformed_of_its_serde(self) -> None:
        assert isinstance(read(b'{"id": "x"}', EVENTS.headers(type="a")), Malformed)
        assert isinstance(read(structured(data={"id": "x"}), STRUCTURED), Malformed)
        assert event_of_record([], b"{}") is None


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_gets_data_and_event(is_async: bool) -> None:
    app, seen = App("billing", dead_letter_topic="dead"), list[Any]()

    def on_order(order: Order, event: CloudEvent, context: Context) -> None:
        seen.append((order, event.type, event.partitionkey))

    async def on_order_async(order: Order, what: CloudEvent) -> None:
        seen.append((order, what.type, what.partitionkey))

    app.handler("orders", value=EVENTS)(on_order_async if is_async else on_order)
    consumer = consumer_for(app)
    headers = EVENTS.headers(type="order.created", partitionkey="k")
    assert consumer.deliver(Order(1), headers=headers).outcome == "done"
    assert consumer.deliver(structured(data={"id": 2}), headers=STRUCTURED).outcome == "done"
    refused = consumer.deliver(Order(3))
    assert (refused.outcome, "ce_specversion" in refused.reason) == ("dead", True)
    assert seen == [(Order(1), "order.created", "k"), (Order(2), "order.created", None)]


def test_the_types_of_events_choose_handlers_in_both_modes() -> None:
    app, seen = App("billing", dead_letter_topic="dead"), list[Any]()
    orders = app.topic("orders", by=CloudEventType())
    orders.on("order.created", value=CloudEvents(Json(Order)))(lambda order: seen.append(order))
    consumer = consumer_for(app)
    assert consumer.deliver(b'{"id": 1}', headers=EVENTS.headers(type="order.created")).outcome == "done"
    assert consumer.deliver(structured(data={"id": 2}), headers=STRUCTURED).outcome == "done"
    assert consumer.deliver(b"{}", headers=EVENTS.headers(type="order.lost")).outcome == "dead"
    assert consumer.deliver(b"{}", headers=[("ce_specversion", b"1.0")]).outcome == "dead"
    assert seen == [Order(1), Order(2)]


def test_an_inbox_knows_an_event_by_source_and_id_in_both_modes() -> None:
    binary = record_of(b"{}", EVENTS.headers(type="order.created", id="7"))
    assert message_id_of(binary) == message_id_of(record_of(structured(data={"id": 1}), STRUCTURED))
    assert message_id_of(record_of(b"{}", STRUCTURED))[1], "no event: its position"

    app, seen = App("billing"), list[Any]()
    app.handler("orders", value=EVENTS, inbox=Inbox(Memory()))(lambda order: seen.append(order))
    consumer = consumer_for(app)
    consumer.deliver(Order(1), headers=EVENTS.headers(type="a", id="7"))
    consumer.deliver(structured(data={"id": 1}), headers=STRUCTURED)
    assert seen == [Order(1)]
