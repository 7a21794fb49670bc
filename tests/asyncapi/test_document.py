"""The AsyncAPI document of an app: valid by the official schema, complete, the same each time, and without secrets."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from google.protobuf import timestamp_pb2
from jsonschema import Draft7Validator

from ottla import App, ConfigError, RetryPolicy, RetryTopics, TopicSpec
from ottla.asyncapi import document_of
from ottla.config.priorities import Priorities
from ottla.records import Record
from ottla.serdes import (
    Avro,
    CloudEvents,
    CloudEventType,
    Int64,
    Json,
    Protobuf,
    SchemaRegistry,
    Serde,
    SerdeContext,
    Str,
    TagField,
    TagHeader,
    decimal,
)

OFFICIAL = Draft7Validator(json.loads(Path(__file__).parent.joinpath("official", "3.0.0.json").read_text("utf-8")))


@dataclass
class Address:
    city: str
    zip: str | None = None


@dataclass
class Order:
    id: int
    total: Annotated[float, msgspec.Meta(ge=0)]
    address: Address
    tags: list[str] = field(default_factory=list)
    pair: tuple[int, str] = (0, "")
    state: Literal["open", "paid"] = "open"


class State(Enum):
    OPEN = "OPEN"
    PAID = "PAID"


class Card(msgspec.Struct, tag="card"):
    number: str


class Cash(msgspec.Struct, tag="cash"):
    discriminator: str


class Node(msgspec.Struct):
    children: list[Node] = []


class Paid(pydantic.BaseModel):
    order_id: int = pydantic.Field(gt=0)
    address: Address


@dataclass
class Purchase:
    id: int
    address: Address
    price: Annotated[Decimal, decimal(10, 2)]
    at: datetime
    state: State = State.OPEN
    tags: list[str] = field(default_factory=list)
    note: str | None = None


class Reversed(Serde[str]):
    def serialize(self, value: str | None, ctx: SerdeContext) -> bytes | None:
        return None if value is None else value[::-1].encode()

    def deserialize(self, data: bytes | None, ctx: SerdeContext) -> str | None:
        return None if data is None else data.decode()[::-1]


def checked(app: App) -> dict[str, Any]:
    """The document, valid by the official schema, its references resolved."""
    document = document_of(app, version="1.2.3")
    errors = sorted(OFFICIAL.iter_errors(document), key=lambda each: list(each.absolute_path))
    assert not errors, [(list(each.absolute_path), each.message[:300]) for each in errors]
    for reference in references_of(document):
        resolved(document, reference)
    return document


def references_of(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [found for each in node.values() for found in references_of(each)]
    return [found for each in node for found in references_of(each)] if isinstance(node, list) else []


def resolved(document: Any, reference: str) -> Any:
    assert reference.startswith("#/"), reference
    for name in reference[2:].split("/"):
        document = document[name]
    return document


def messages(document: dict[str, Any], operation: str) -> list[dict[str, Any]]:
    return [resolved(document, each["$ref"]) for each in document["operations"][operation]["messages"]]


def test_the_official_schema_refuses_what_is_no_document() -> None:
    app = App("billing")
    app.handler("orders", value=Json(Order))(lambda order: None)
    broken = document_of(app)
    broken["operations"]["_lambda_"]["action"] = "listen"
    assert not OFFICIAL.is_valid(broken)
    broken = document_of(app)
    broken["channels"]["orders"]["bindings"]["kafka"]["partitions"] = 0
    assert not OFFICIAL.is_valid(broken)


def test_a_handler_is_an_operation_with_its_group_key_retries_and_dead_letters() -> None:
    app = App(
        "billing",
        dead_letter_topic="orders.dead-letters",
        create_topics={"orders": TopicSpec(partitions=6, replication_factor=3, config={"retention.ms": 86_400_000})},
    )

    @app.handler(
        "orders",
        value=Json(Order),
        key=Str(),
        retry=RetryPolicy(max_attempts=3),
        retry_topics=RetryTopics(delays_s=(10, 60)),
        ttl_s=5,
        concurrency=4,
        ordering="key",
    )
    def on_order(order: Order) -> None:
        """Bill the order.

        In euros.
        """

    document = checked(app)
    assert document["info"] == {"title": "billing", "version": "1.2.3"}
    assert document["channels"]["orders"]["bindings"]["kafka"] == {
        "topic": "orders",
        "partitions": 6,
        "replicas": 3,
        "topicConfiguration": {"retention.ms": 86_400_000},
        "bindingVersion": "0.5.0",
    }
    operation = document["operations"]["on_order"]
    assert (operation["action"], operation["description"]) == ("receive", "Bill the order.")
    assert operation["bindings"]["kafka"]["groupId"]["enum"] == ["billing"]
    assert operation["x-ottla-retry-topics"] == ["orders.billing.retry.1", "orders.billing.retry.2"]
    assert operation["x-ottla-dead-letter-topic"] == "orders.dead-letters"
    assert (operation["x-ottla-max-attempts"], operation["x-ottla-ttl-s"]) == (3, 5.0)
    (order,) = messages(document, "on_order")
    assert order["payload"] == {"$ref": "#/components/schemas/Order"}
    assert order["bindings"]["kafka"]["key"] == {"type": "string"}
    schema = document["components"]["schemas"]["Order"]
    assert schema["required"] == ["id", "total", "address"]
    assert schema["properties"]["address"] == {"$ref": "#/components/schemas/Address"}
    assert schema["properties"]["pair"]["items"] == [{"type": "integer"}, {"type": "string"}]
    assert document["channels"]["orders.billing.retry.2"]["x-ottla-delay-ms"] == 60_000
    assert {each["action"] for name, each in document["operations"].items() if ".retry-1" in name} == {
        "send",
        "receive",
    }
    (dead,) = messages(document, "on_order.dead-letters")
    assert "ottla-dlq-kind" in dead["headers"]["required"]
    assert dead["payload"] == order["payload"]


def test_each_event_type_is_a_message() -> None:
    app = App("billing")
    orders = app.topic("orders", by=TagHeader("type"))

    @orders.on("created", "imported", value=Json(Order))
    def on_created(order: Order) -> None: ...

    @orders.on("paid", value=Json(Paid))
    def on_paid(paid: Paid) -> None: ...

    @orders.otherwise
    def on_other(record: Record[bytes]) -> None: ...

    fields = app.topic("fields", by=TagField("kind"))

    @fields.on("a", value=Json(Address))
    def on_a(address: Address) -> None: ...

    events = app.topic("events", by=CloudEventType())

    @events.on("moved", value=CloudEvents(Json(Address)))
    def on_moved(address: Address) -> None: ...

    document = checked(app)
    created, other, paid = messages(document, "orders")
    assert created["headers"]["properties"]["type"]["enum"] == ["created", "imported"]
    assert (created["headers"]["required"], other["headers"].get("required")) == (["type"], None)
    assert (other["name"], paid["x-ottla-event-types"]) == ("otherwise", ["paid"])
    (tagged,) = messages(document, "fields")
    assert tagged["payload"]["allOf"][1]["properties"] == {"kind": {"enum": ["a"]}}
    (moved,) = messages(document, "events")
    assert moved["headers"]["required"] == ["ce_id", "ce_source", "ce_specversion", "ce_type"]
    assert moved["headers"]["properties"]["ce_type"]["enum"] == ["moved"]


def test_avro_and_protobuf_are_by_schema_format_and_the_registry_has_no_password() -> None:
    registry = SchemaRegistry("https://me:s3cret@registry:8081")
    app = App("billing")

    @app.handler("avro", value=Avro(Purchase, registry=registry), key=Avro({"type": "string"}))
    def on_avro(order: Purchase) -> None: ...

    @app.handler("text", value=Avro({"type": "string"}, type=str))
    def on_text(text: str) -> None: ...

    @app.handler("protobuf", value=Protobuf(timestamp_pb2.Timestamp))
    def on_protobuf(moment: timestamp_pb2.Timestamp) -> None: ...

    document = checked(app)
    (avro,) = messages(document, "on_avro")
    assert avro["payload"]["schemaFormat"] == "application/vnd.apache.avro+json;version=1.9.0"
    assert avro["payload"]["schema"]["name"] == "Purchase"
    binding = avro["bindings"]["kafka"]
    assert binding["x-ottla-schema-registry-url"] == "https://registry:8081"
    assert (binding["schemaIdLocation"], binding["schemaLookupStrategy"]) == ("payload", "topic_name")
    assert binding["x-ottla-key"]["schema"] == {"type": "string"}
    (protobuf,) = messages(document, "on_protobuf")
    assert "message Timestamp {\n  int64 seconds = 1;" in protobuf["payload"]["schema"]
    assert "s3cret" not in json.dumps(document)


def test_a_queue_priorities_and_an_own_serde() -> None:
    app = App("shop", dead_letter_topic="dead")
    urgent = Priorities("orders", ("urgent", "normal"))

    @app.handler(urgent, value=Reversed())
    def on_order(order: str) -> None: ...

    @app.queue("images", value=Json(dict[str, Any]), key=Int64(), group="shop.images", max_attempts=4)
    def on_image(image: dict[str, Any]) -> None: ...

    document = checked(app)
    assert document["operations"]["on_order.orders.urgent"]["x-ottla-priority"] == 1
    assert document["operations"]["on_order.orders"]["x-ottla-priority"] == 2
    queue = document["operations"]["shop.images.on_image"]
    assert (queue["x-ottla-share-group"], queue["x-ottla-max-attempts"]) == (True, 4)
    (image,) = messages(document, "shop.images.on_image")
    assert image["bindings"]["kafka"]["key"]["format"] == "int64"
    (order,) = messages(document, "on_order.orders")
    assert "Reversed" in order["payload"]["description"]


def test_sends_are_operations_and_a_producer_without_topics_has_an_unknown_address() -> None:
    app = App("billing", scheduler=True)
    app.producer(value=Json(Order), key=Str(), topics=["invoices", "reminders"])
    app.async_producer(value=Json(Paid))

    @app.handler("orders", columns=True, to="totals")
    def on_orders(batch: Any) -> Any: ...

    document = checked(app)
    assert document["operations"]["producer-1.invoices"]["action"] == "send"
    (invoice,) = messages(document, "producer-1.reminders")
    assert invoice["payload"] == {"$ref": "#/components/schemas/Order"}
    assert document["operations"]["producer-2"]["channel"] == {"$ref": "#/channels/producer-2"}
    assert document["channels"]["producer-2"]["address"] is None
    assert document["channels"]["totals"]["address"] == "totals"
    assert document["x-ottla-schedule"] == "default"


@pytest.mark.parametrize("given", ["invoices", 3, ["in voices"]])
def test_topics_of_a_producer_are_names(given: Any) -> None:
    with pytest.raises(ConfigError, match="topic"):
        App("billing").producer(topics=given)


def test_tagged_unions_recursion_and_types_of_one_name() -> None:
    app = App("billing")

    @dataclass
    class Other:
        city: int

    Other.__name__ = Other.__qualname__ = "Address"

    @app.handler("payments", value=Json(Card | Cash))
    def on_payment(payment: Card | Cash) -> None: ...

    @app.handler("trees", value=Json(Node))
    def on_tree(tree: Node) -> None: ...

    @app.handler("a", value=Json(Address))
    def on_a(address: Address) -> None: ...

    @app.handler("b", value=Json(Other))
    def on_b(other: Other) -> None: ...

    document = checked(app)
    (payment,) = messages(document, "on_payment")
    assert payment["payload"]["discriminator"] == "type"
    schemas = document["components"]["schemas"]
    assert schemas["Cash"]["properties"]["discriminator"] == {"type": "string"}, "a field is not a keyword"
    assert schemas["Node"]["properties"]["children"]["items"] == {"$ref": "#/components/schemas/Node"}
    (a,), (b,) = messages(document, "on_a"), messages(document, "on_b")
    assert a["payload"] != b["payload"]
    assert resolved(document, b["payload"]["$ref"])["properties"]["city"] == {"type": "integer"}


@pytest.mark.parametrize(
    ("settings", "protocol", "scheme"),
    [
        ({}, "kafka", None),
        ({"security.protocol": "SSL", "ssl.certificate.location": "/c.pem"}, "kafka-secure", "X509"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}, "kafka-secure", "scramSha512"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "kafka", "plain"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanisms": "GSSAPI"}, "kafka-secure", "gssapi"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "kafka-secure", "http"),
    ],
)
def test_servers_say_how_to_log_in_and_no_secret(settings: dict[str, str], protocol: str, scheme: str | None) -> None:
    secrets = {"sasl.username": "u5er", "sasl.password": "s3cret", "ssl.key.password": "s3cret"}
    app = App("billing", bootstrap_servers=["one:9092", "two:9092"], settings={**settings, **secrets})
    app.handler("orders")(print_nothing)
    document = checked(app)
    assert [each["host"] for each in document["servers"].values()] == ["one:9092", "two:9092"]
    assert {each["protocol"] for each in document["servers"].values()} == {protocol}
    assert [each["type"] for each in document.get("components", {}).get("securitySchemes", {}).values()] == (
        [] if scheme is None else [scheme]
    )
    assert "s3cret" not in json.dumps(document)
    assert "u5er" not in json.dumps(document)


def print_nothing(value: bytes) -> None: ...


def test_the_environment_is_not_in_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "staging:9092")
    app = App("billing")
    app.handler("orders")(print_nothing)
    assert "servers" not in checked(app)


PROGRAM = """
import json
from typing import Literal
import msgspec
from ottla import App
from ottla.asyncapi import document_of
from ottla.serdes import Json
class Order(msgspec.Struct):
    state: Literal["open", "paid", "sent", "lost"]
app = App("billing", dead_letter_topic="dead")
@app.handler("d", "a", "c", "b", value=Json(Order))
def on_order(order: Order) -> None: ...
print(json.dumps(document_of(app)))
"""


def test_the_same_app_has_the_same_document_in_every_process() -> None:
    documents = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(documents) == 1


def test_the_program_of_the_how_to_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "asyncapi.md"
    program = page.read_text("utf-8").split("```python\n")[1].partition("```")[0]
    module = types.ModuleType("asyncapi_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look their module up
    exec(compile(program, str(page), "exec", dont_inherit=True), vars(module))
    assert OFFICIAL.is_valid(vars(module)["document"])
