"""`Json(Created | Shipped)`: dataclasses that a literal field distinguishes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import jsonschema
import pytest

from ottla import App, ConfigError, Json, Malformed, TagField
from ottla.serdes import SerdeContext
from ottla.serdes.json import _json_schema
from ottla.testing import consumer_for

ORDERS = SerdeContext("orders")


@dataclass
class Created:
    id: int
    type: Literal["created", "imported"] = "created"


@dataclass
class Shipped:
    id: int
    by: str
    type: Literal["shipped"] = "shipped"


@dataclass
class Numbered:
    kind: Literal[1]


@dataclass
class Plain:
    id: int


@dataclass
class Another:
    id: int
    type: Literal["shipped"] = "shipped"


EVENTS: Json[Any] = Json(Created | Shipped)


@pytest.mark.parametrize("value", [Created(1), Created(2, "imported"), Shipped(3, "sea")])
def test_what_is_written_is_read_as_its_class(value: Any) -> None:
    assert EVENTS.deserialize(EVENTS.serialize(value, ORDERS), ORDERS) == value


@pytest.mark.parametrize(
    ("data", "kind", "found"),
    [
        (b'{"id": 1}', "invalid", "wanted one of 'created', 'imported', 'shipped'"),
        (b'{"id": 1, "type": "lost"}', "invalid", "Found 'lost'"),
        (b'{"id": 1, "type": "shipped"}', "invalid", "by"),
        (b'{"id": 1, "type": []}', "invalid", "type"),
        (b"null", "invalid", "Expected"),
        (b"[1]", "invalid", "Expected"),
        (b'{"type": "created"', "malformed", "not JSON"),
    ],
)
def test_what_is_of_no_class_is_evidence(data: bytes, kind: str, found: str) -> None:
    refused = EVENTS.deserialize(data, ORDERS)
    assert isinstance(refused, Malformed)
    assert (refused.kind, found in refused.error) == (kind, True), refused.error
    assert isinstance(EVENTS.deserialize_many([data], ORDERS)[0], Malformed)


def test_none_may_be_a_member() -> None:
    maybe: Json[Any] = Json(Created | Shipped | None)
    assert maybe.deserialize(b" null ", ORDERS) is None
    assert maybe.deserialize(b'{"id": 1, "type": "created"}', ORDERS) == Created(1)


@pytest.mark.parametrize("union", [Created | Plain, Shipped | Another, Created | Numbered])
def test_classes_that_no_field_distinguishes_are_refused(union: Any) -> None:
    with pytest.raises(ConfigError, match="Literal in each class distinguishes them"):
        Json(union)


def test_a_registry_gets_the_schema_of_all() -> None:
    schema = json.loads(_json_schema(Created | Shipped | None))
    for value in ({"id": 1, "type": "created"}, {"id": 1, "by": "sea", "type": "shipped"}, None):
        jsonschema.validate(value, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"id": 1, "type": "lost"}, schema)


def test_a_handler_takes_the_union_by_its_annotation_and_by_type() -> None:
    app, seen = App("billing", dead_letter_topic="dead"), list[Any]()

    @app.handler("orders")
    def on_any(event: Created | Shipped) -> None:
        seen.append(event)

    events = app.topic("events", by=TagField("type"))

    @events.on("created", "shipped", value=EVENTS)
    def on_both(event: Created | Shipped) -> None:
        seen.append(event)

    consumer = consumer_for(app)
    data = EVENTS.serialize(Shipped(1, "sea"), ORDERS)
    for topic in ("orders", "events"):
        assert consumer.deliver(data, topic=topic).outcome == "done"
    assert consumer.deliver(b"{}", topic="orders").outcome == "dead"
    assert seen == [Shipped(1, "sea")] * 2
