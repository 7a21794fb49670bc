"""The registry client against the embedded registry over HTTP, and against everything that can go wrong in between."""

from __future__ import annotations

import dataclasses
import http.server
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.errors import ConfigError, RegistryUnavailable, SerializationError
from ottla.records import Malformed
from ottla.serdes import Avro, Json, SchemaRegistry, SerdeContext, UnknownSchema
from ottla.serdes.lookups import REFUSED_FOR_MS
from ottla.serdes.registry_http import RegistryHttp
from ottla.serdes.subjects import record_name, topic_name, topic_record_name
from ottla.testing.registry import EmbeddedRegistry

CTX = SerdeContext("orders")


@pytest.fixture
def server() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as running:
        yield running


@pytest.fixture
def registry(server: EmbeddedRegistry) -> SchemaRegistry:
    return SchemaRegistry(server.url, attempts=1)


@dataclasses.dataclass
class Order:
    id: int
    total: float

    def __post_init__(self) -> None:
        if self.total < 0:
            raise ValueError("negative total")


@dataclasses.dataclass
class OrderTwo:
    id: int
    total: float
    currency: str = "EUR"


def test_what_one_service_writes_another_reads_by_the_schema_id(server: EmbeddedRegistry) -> None:
    data = Avro(Order, registry=SchemaRegistry(server.url)).serialize(Order(1, 2.5), CTX)
    assert data is not None
    assert data[0] == 0
    other = Avro(Order, registry=server.url)
    assert other.deserialize(data, CTX) == Order(1, 2.5)
    assert other.deserialize_many([data, None, data], CTX) == [Order(1, 2.5), None, Order(1, 2.5)]


def test_each_record_is_read_with_the_schema_it_was_written_with(registry: SchemaRegistry) -> None:
    registry.set_compatibility("NONE")
    old = Avro(Order, registry=registry).serialize(Order(1, 2.0), CTX)
    new = Avro(OrderTwo, registry=registry).serialize(OrderTwo(2, 3.0, "PLN"), CTX)
    assert Avro(OrderTwo, registry=registry).deserialize_many([old, new], CTX) == [
        OrderTwo(1, 2.0, "EUR"),
        OrderTwo(2, 3.0, "PLN"),
    ]
    assert Avro(Order, registry=registry).deserialize_many([old, new], CTX) == [Order(1, 2.0), Order(2, 3.0)]


def test_a_given_readers_schema_is_resolved_by_avros_rules(registry: SchemaRegistry) -> None:
    written = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    wanted = {"type": "record", "name": "R", "fields": [{"name": "count", "aliases": ["n"], "type": "long"}]}
    data = Avro(written, registry=registry).serialize({"n": 3}, CTX)
    assert Avro(wanted, registry=registry).deserialize(data, CTX) == {"count": 3}


def test_schemas_and_ids_are_asked_for_once(server: EmbeddedRegistry, registry: SchemaRegistry) -> None:
    serde = Avro(Order, registry=registry)
    data = [serde.serialize(Order(number, 1.0), CTX) for number in range(50)]
    assert len(server.requests) == 1
    reader = Avro(Order, registry=SchemaRegistry(server.url))
    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(lambda item: reader.deserialize(item, CTX), data))
    assert [value.id for value in values if isinstance(value, Order)] == list(range(50))
    assert len(server.requests) == 2


def test_an_unknown_schema_id_is_malformed_and_not_asked_for_again_for_a_while(server: EmbeddedRegistry) -> None:
    clock = ManualClock()
    serde = Avro(Order, registry=SchemaRegistry(server.url, clock=clock))
    for _ in range(3):
        found = serde.deserialize(b"\0\0\0\0\x63\x02", CTX)
        assert isinstance(found, Malformed)
        assert (found.kind, found.error_type) == ("malformed", "UnknownSchema")
        assert "has no schema 99" in found.error
    assert server.requests == ["GET /schemas/ids/99"]
    clock.advance(REFUSED_FOR_MS)
    serde.deserialize(b"\0\0\0\0\x63\x02", CTX)
    assert len(server.requests) == 2


def test_an_outage_is_raised_and_the_same_bytes_decode_when_it_is_over(server: EmbeddedRegistry) -> None:
    data = Avro(Order, registry=server.url).serialize(Order(1, 1.0), CTX)
    server.stop()
    serde = Avro(Order, registry=SchemaRegistry(server.url, attempts=1))
    with pytest.raises(RegistryUnavailable, match="did not respond"):
        serde.deserialize(data, CTX)
    with pytest.raises(RegistryUnavailable):
        serde.deserialize_many([data], CTX)
    restarted = Avro(Order, registry=SchemaRegistry(server.url, attempts=1))
    server.start()
    restarted.serialize(Order(1, 1.0), CTX)  # this registry kept nothing: the schema gets the same id again
    assert serde.deserialize(data, CTX) == Order(1, 1.0)


def test_records_of_known_schemas_decode_through_an_outage(server: EmbeddedRegistry) -> None:
    serde = Avro(Order, registry=SchemaRegistry(server.url, attempts=1))
    data = serde.serialize(Order(1, 1.0), CTX)
    assert serde.deserialize(data, CTX) == Order(1, 1.0)
    server.stop()
    assert serde.deserialize(data, CTX) == Order(1, 1.0)


def test_an_event_loop_is_told_before_a_batch_would_wait(registry: SchemaRegistry) -> None:
    data = Avro(Order, registry=registry).serialize(Order(1, 1.0), CTX)
    reader = Avro(Order, registry=SchemaRegistry(registry.url))
    assert reader.would_block([None, data], CTX)
    reader.deserialize(data, CTX)
    assert not reader.would_block([None, data, b"{}", b""], CTX)
    assert not Avro(Order).would_block([data], CTX)


def test_prepare_does_the_waiting_that_the_first_send_would_do(
    server: EmbeddedRegistry, registry: SchemaRegistry
) -> None:
    serde = Avro(Order, registry=registry)
    serde.prepare(CTX)
    server.stop()
    assert serde.serialize(Order(1, 1.0), CTX) is not None


@pytest.mark.parametrize("data", [b"", b"\0", b"\x02\x02", b'{"id": 1}'])
def test_bytes_without_a_schema_id_are_malformed(registry: SchemaRegistry, data: bytes) -> None:
    for serde in (Avro(Order, registry=registry), Json(Order, registry=registry)):
        found = serde.deserialize(data, CTX)
        assert isinstance(found, Malformed)
        assert (found.kind, found.error_type, found.raw) == ("malformed", "NotFramed", data)


def test_a_schema_of_another_format_is_malformed(registry: SchemaRegistry) -> None:
    data = Json(Order, registry=registry).serialize(Order(1, 1.0), CTX)
    found = Avro(Order, registry=registry).deserialize(data, CTX)
    assert isinstance(found, Malformed)
    assert "is JSON, wanted AVRO" in found.error


def test_json_travels_behind_the_id_of_its_json_schema(registry: SchemaRegistry, models: SimpleNamespace) -> None:
    for model, value in ((Order, Order(1, 2.0)), (models.FlatModel, models.FlatModel(id=1, name="a"))):
        ctx = SerdeContext(model.__name__)
        serde = Json(model, registry=registry)
        data = serde.serialize(value, ctx)
        assert data is not None
        assert serde.deserialize(data, ctx) == value
        assert serde.deserialize_many([data], ctx) == [value]
        registered = registry.version(f"{model.__name__}-value")
        assert registered.type == "JSON"
        assert "properties" in json.dumps(json.loads(registered.text))


def test_a_broken_rule_behind_a_schema_id_is_invalid_with_the_whole_bytes(registry: SchemaRegistry) -> None:
    good = Json(Order, registry=registry).serialize(Order(1, 1.0), CTX)
    assert good is not None
    bad = good[:5] + b'{"id": 1, "total": -1.0}'
    found = Json(Order, registry=registry).deserialize(bad, CTX)
    assert isinstance(found, Malformed)
    assert (found.kind, found.raw, found.error_type) == ("invalid", bad, "ValueError")


def test_an_untyped_json_has_no_schema_to_register(registry: SchemaRegistry) -> None:
    with pytest.raises(ConfigError, match=r"Json\(Order\)"):
        Json(registry=registry).serialize({"a": 1}, CTX)


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [(topic_name, "orders-key"), (record_name, "shop.Order"), (topic_record_name, "orders-shop.Order")],
)
def test_the_strategy_names_the_subject(registry: SchemaRegistry, strategy: Any, wanted: str) -> None:
    Avro(Order, namespace="shop", registry=registry, subject=strategy).serialize(
        Order(1, 1.0), SerdeContext("orders", "key")
    )
    assert registry.subjects() == [wanted]


def test_a_schema_without_a_name_fits_only_the_topic_name_strategy(registry: SchemaRegistry) -> None:
    assert Avro("string", registry=registry).serialize("a", CTX) is not None
    with pytest.raises(ConfigError, match="no record name"):
        Avro("string", registry=registry, subject=record_name).serialize("a", CTX)


def test_without_auto_register_an_unregistered_schema_is_a_config_error(registry: SchemaRegistry) -> None:
    serde = Avro(Order, registry=registry, auto_register=False)
    with pytest.raises(ConfigError, match="orders-value was refused"):
        serde.serialize(Order(1, 1.0), CTX)
    Avro(Order, registry=registry).prepare(CTX)
    assert serde.serialize(Order(1, 1.0), CTX) is not None


def test_an_incompatible_schema_is_a_config_error_that_names_the_field(registry: SchemaRegistry) -> None:
    @dataclasses.dataclass
    class Order:  # the same name with a field that old records do not have
        id: int
        total: float
        must: str

    Avro(globals()["Order"], registry=registry).prepare(CTX)
    with pytest.raises(ConfigError, match=r"not compatible.*/must/: the writer has no such field"):
        Avro(Order, registry=registry).prepare(CTX)
    assert not registry.is_compatible("orders-value", json.dumps(Avro(Order).schema))
    assert registry.is_compatible("nothing-there", json.dumps(Avro(Order).schema))


def test_a_value_that_does_not_fit_is_refused_as_without_a_registry(registry: SchemaRegistry) -> None:
    with pytest.raises(SerializationError, match=r"\$.id"):
        Avro(Order, registry=registry).serialize(Order("x", 1.0), CTX)  # type: ignore[arg-type]


def test_a_schema_may_refer_to_schemas_under_other_subjects(server: EmbeddedRegistry, registry: SchemaRegistry) -> None:
    from ottla.serdes.registered_schema import SchemaReference

    point = {"type": "record", "name": "geo.Point", "fields": [{"name": "x", "type": "double"}]}
    line = {"type": "record", "name": "geo.Line", "fields": [{"name": "a", "type": "geo.Point"}]}
    registry.register("point", json.dumps(point))
    schema_id = registry.register(
        "orders-value", json.dumps(line), references=[SchemaReference("geo.Point", "point", 1)]
    )
    whole = {"type": "record", "name": "geo.Line", "fields": [{"name": "a", "type": point}]}
    payload = Avro(whole).serialize({"a": {"x": 1.5}}, CTX)
    assert payload is not None
    data = b"\0" + schema_id.to_bytes(4, "big") + payload
    assert Avro(whole, registry=SchemaRegistry(server.url)).deserialize(data, CTX) == {"a": {"x": 1.5}}


def test_the_client_lists_versions_and_finds_them(registry: SchemaRegistry) -> None:
    Avro(Order, registry=registry).prepare(CTX)
    assert registry.versions("orders-value") == [1]
    assert registry.versions("nothing-there") == []
    assert registry.version("orders-value", 1).id == registry.version("orders-value").id == 1
    with pytest.raises(UnknownSchema, match="Version 7 not found"):
        registry.version("orders-value", 7)


class _Scripted(http.server.BaseHTTPRequestHandler):
    """Answers with the next (status, body) of the server's script; the last one for ever."""

    def do_GET(self) -> None:
        script: Any = self.server
        status, body = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
        script.seen.append(dict(self.headers))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def scripted() -> Iterator[Any]:
    server: Any = http.server.HTTPServer(("127.0.0.1", 0), _Scripted)
    server.answers, server.seen = [], []
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


GOOD = (200, json.dumps({"schema": '"long"'}).encode())


def _client(url: str, slept: list[float], **options: Any) -> SchemaRegistry:
    http_client = RegistryHttp(url.split(","), sleep=slept.append, **options)
    return SchemaRegistry(url, http=http_client)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_registry_is_asked_again_with_growing_waits(scripted: Any, status: int) -> None:
    slept: list[float] = []
    scripted.answers = [(status, b"busy"), (status, b""), GOOD]
    assert _client(scripted.url, slept).schema(1).text == '"long"'
    assert len(slept) == 2
    assert slept[0] <= 0.2
    assert slept[1] <= 0.4


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ((503, b"maintenance"), "tried 3 times: .*HTTP 503"),
        ((200, b"<html>login</html>"), "not the response of a schema registry"),
        ((404, b"<html>no such page</html>"), "not the response of a schema registry"),
        ((404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'), "not the response of a schema registry"),
        ((401, b'{"error_code": 401, "message": "Unauthorized"}'), "check user and password"),
        ((403, b""), "check user and password"),
    ],
)
def test_an_answer_that_says_nothing_about_the_schema_is_an_outage_not_a_dead_letter(
    scripted: Any, answer: tuple[int, bytes], wanted: str
) -> None:
    scripted.answers = [answer]
    registry = _client(scripted.url, [])
    with pytest.raises(RegistryUnavailable, match=wanted):
        Avro("long", registry=registry).deserialize(b"\0\0\0\0\1\2", CTX)


@pytest.mark.parametrize(
    "answer",
    [
        *("{}", "[]", "5", "null", '"text"', "[" * 100_000, '{"schema": 5, "id": "x"}', '{"schema": null, "id": null}'),
        *('{"schema": "\\"long\\"", "references": 5}', '{"schema": "\\"long\\"", "references": [{"name": 1}]}'),
        *('{"schema": "\\"long\\"", "schemaType": 7}', '{"id": -1}', '{"id": 99999999999}', '{"id": true}'),
    ],
)
def test_json_that_is_not_a_registrys_answer_is_an_outage_too(scripted: Any, answer: str) -> None:
    scripted.answers = [(200, answer.encode())]
    serde = Avro("long", registry=_client(scripted.url, []))
    for use in (lambda: serde.deserialize(b"\0\0\0\0\1\2", CTX), lambda: serde.serialize(5, CTX)):
        with pytest.raises(RegistryUnavailable, match="not the response of a schema registry"):
            use()
    scripted.answers = [GOOD]
    assert serde.deserialize(b"\0\0\0\0\1\2", CTX) == 1, "nothing of it was kept"


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        (b"", "TimeoutError"),
        (b"HTTP/1.1 200 OK\r\n\r\n{", "TimeoutError"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}<hangs up>", "97 bytes too early"),
        (b"<hangs up>", "(RemoteDisconnected|ConnectionResetError)"),
        (b"SSH-2.0-OpenSSH_9.6\r\n<hangs up>", "BadStatusLine"),
    ],
    ids=["silent", "stalls", "ends early", "hangs up", "another protocol"],
)
def test_a_registry_that_does_not_answer_whole_and_in_time_is_an_outage(says: bytes, problem: str) -> None:
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            open_connections.append(connection)
            connection.recv(65_536)
            connection.sendall(says.removesuffix(b"<hangs up>"))
            if says.endswith(b"<hangs up>"):
                connection.shutdown(socket.SHUT_RDWR)

    open_connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        slept: list[float] = []
        timeout_s = 0.2 if problem == "TimeoutError" else 60
        registry = _client(f"http://127.0.0.1:{listener.getsockname()[1]}", slept, timeout_s=timeout_s, attempts=2)
        try:
            with pytest.raises(RegistryUnavailable, match=f"tried 2 times: .*{problem}"):
                Avro("long", registry=registry).deserialize(b"\0\0\0\0\1\2", CTX)
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(60)
            for connection in open_connections:
                connection.close()
    assert len(slept) == 1
    assert slept[0] <= 0.2


def test_the_second_address_is_tried_when_the_first_is_down(scripted: Any) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        down = f"http://127.0.0.1:{closed.getsockname()[1]}"
        scripted.answers = [GOOD]
        slept: list[float] = []
        assert _client(f"{down},{scripted.url}", slept).schema(1).text == '"long"'
        assert slept == []


def test_credentials_come_from_the_url_or_from_the_arguments(scripted: Any) -> None:
    scripted.answers = [GOOD]
    SchemaRegistry(scripted.url.replace("//", "//ada:p%40ss@")).schema(1)
    SchemaRegistry(scripted.url, user="ada", password="p@ss").schema(1)
    assert [seen["Authorization"] for seen in scripted.seen] == ["Basic YWRhOnBAc3M="] * 2


@pytest.mark.parametrize("url", ["registry:8081", "ftp://registry", ""])
def test_an_address_that_is_not_http_is_a_config_error(url: str) -> None:
    with pytest.raises(ConfigError, match="wanted http://host:port"):
        SchemaRegistry(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:s3cret@127.0.0.1:1",
        "http://user:s3cret@127.0.0.1:1,http://other:s3cret@127.0.0.1:2/api",
        "http://user:p%40s3cret@127.0.0.1:1",
    ],
)
def test_a_password_in_the_url_is_shown_nowhere(url: str) -> None:
    registry = SchemaRegistry(url, attempts=1)
    assert "127.0.0.1:1" in repr(registry)
    with pytest.raises(RegistryUnavailable) as caught:
        registry.schema(1)
    for shown in (repr(registry), registry.url, str(caught.value), *registry._http.urls):
        assert "s3cret" not in shown
    assert all(headers["Authorization"].startswith("Basic ") for headers in registry._http._headers)


@pytest.mark.parametrize(
    "url",
    [
        "user:s3cret@host:8081",
        "ftp://user:s3cret@host:8081",
        "http://user:pa/s3cret@host:8081",
        "http://user:12/s3cret@host:8081",
        "http://user:12#s3cret@host:8081",
        "http://user:pa,s3cret@host:8081",
        "http://user:12,s3cret@host:8081",
        "http://user:s3cret@host:many",
    ],
)
def test_a_url_that_cannot_be_parsed_does_not_show_its_password_either(url: str) -> None:
    with pytest.raises(ConfigError, match="schema registry URL") as caught:
        SchemaRegistry(url)
    assert "s3cret" not in str(caught.value)
    assert "pa" not in str(caught.value).split("wanted")[0]
