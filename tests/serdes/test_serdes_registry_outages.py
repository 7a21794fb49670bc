"""What a registry, or something in its place, may answer: good records wait, whatever it is, and nothing hangs."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.errors import ConfigError, RegistryUnavailable
from ottla.records import Malformed
from ottla.serdes import Avro, Json, SchemaRegistry, SerdeContext, UnknownSchema
from ottla.serdes.any_schema import RegistryValues
from ottla.serdes.lookups import REFUSED_FOR_MOST_MS, REFUSED_FOR_MS
from ottla.serdes.registered_schema import SchemaReference
from ottla.testing.registry import EmbeddedRegistry

CTX = SerdeContext("orders")
FRAMED = b"\0\0\0\0\1\2"
"""The number 1 as an Avro long, behind the id 1."""
OWN_CODES = {
    401: (40101, 401, 0, "40101"),
    403: (40301, 403, 40403),
    404: (404, 50001, 40901, 42201, 40300, "abcde", "40403", 40403.0, True, None, -40403, [40403]),
    409: (50001, 40403),
    422: (40403, 42205, 42206, 50001),
    429: (42901,),
    500: (50001, 40403),
    503: (50301, 40403),
}


class Server:
    """Listens, and lets `talk` say what it likes on each connection once a request came."""

    def __init__(self) -> None:
        self.talk: Callable[[socket.socket, bytes], None] = lambda wire, request: None
        self.requests: list[bytes] = []
        self.ends = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def says(self, status: int, body: Any) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = b"HTTP/1.1 %d Whatever\r\nContent-Length: %d\r\n\r\n" % (status, len(content))
        self.talk = lambda wire, request: wire.sendall(head + content)

    def _accept(self) -> None:
        while not self.ends.is_set():
            try:
                wire, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(wire,)))
            self._threads[-1].start()

    def _serve(self, wire: socket.socket) -> None:
        with wire:
            try:
                request = wire.recv(65_536)
                self.requests.append(request)
                self.talk(wire, request)
            except OSError:
                return

    def close(self) -> None:
        self.ends.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(60)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def embedded() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as running:
        yield running


@pytest.mark.parametrize(("status", "code"), [(status, code) for status, codes in OWN_CODES.items() for code in codes])
def test_only_the_registrys_own_no_such_schema_is_the_records_fault(server: Server, status: int, code: Any) -> None:
    server.says(status, {"error_code": code, "message": "no"})
    serde = Avro("long", registry=SchemaRegistry(server.url, attempts=1))
    for use in (lambda: serde.deserialize(FRAMED, CTX), lambda: serde.deserialize_many([FRAMED], CTX)):
        with pytest.raises(RegistryUnavailable):
            use()
    with pytest.raises(RegistryUnavailable):
        RegistryValues(SchemaRegistry(server.url, attempts=1)).decode(FRAMED)
    with pytest.raises(RegistryUnavailable):
        serde.serialize(1, CTX)


@pytest.mark.parametrize(("status", "code"), [(409, 409), (422, 42201), (422, 422)])
def test_a_look_up_that_is_refused_for_another_reason_makes_no_record_malformed(
    server: Server, status: int, code: int
) -> None:
    server.says(status, {"error_code": code, "message": "no"})
    with pytest.raises(RegistryUnavailable):
        Avro("long", registry=SchemaRegistry(server.url, attempts=1)).deserialize(FRAMED, CTX)
    with pytest.raises(RegistryUnavailable):
        RegistryValues(SchemaRegistry(server.url, attempts=1)).decode(FRAMED)


@pytest.mark.parametrize(
    "url", [["http://me:hunter2@host"], {"basic.auth.user.info": "me:hunter2"}, b"http://host", None]
)
def test_an_address_that_is_no_text_is_refused_without_what_may_be_secret_in_it(url: Any) -> None:
    with pytest.raises(ConfigError, match=r"SchemaRegistry: url: found .*, wanted addresses as text") as refused:
        SchemaRegistry(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("code", [40401, 40402, 40403, 40406])
def test_what_the_registry_says_it_does_not_have_is_malformed(server: Server, code: int) -> None:
    server.says(404, {"error_code": code, "message": "not here"})
    found = Avro("long", registry=SchemaRegistry(server.url, attempts=1)).deserialize(FRAMED, CTX)
    assert isinstance(found, Malformed)
    assert (found.error_type, "not here" in found.error) == ("UnknownSchema", True)


@pytest.mark.parametrize(("status", "code"), [(409, 409), (409, 40901), (422, 42201), (422, 422), (404, 40403)])
def test_what_a_registry_does_not_take_is_the_producers_mistake(server: Server, status: int, code: int) -> None:
    server.says(status, {"error_code": code, "message": "no"})
    with pytest.raises(ConfigError, match="schema for orders-value"):
        Avro("long", registry=SchemaRegistry(server.url, attempts=1)).serialize(1, CTX)


def test_rights_that_are_refused_say_what_to_check_and_whose_words_they_are(server: Server) -> None:
    server.says(403, {"error_code": 40301, "message": "User is denied operation Read on Subject: orders-value"})
    with pytest.raises(RegistryUnavailable, match=r"HTTP 403 \(40301: 'User is denied.*check user and password"):
        SchemaRegistry(server.url).schema(1)
    assert len(server.requests) == 1, "asking again does not help"


def test_an_id_beyond_a_java_int_is_malformed_and_asks_nobody(server: Server) -> None:
    server.says(
        404, {"error_code": 404, "message": "HTTP 404 Not Found"}
    )  # what a registry in Java says of such a path
    serde = Avro("long", registry=SchemaRegistry(server.url, attempts=1))
    for schema_id in (2**31, 2**32 - 1):
        found = serde.deserialize(b"\0" + schema_id.to_bytes(4, "big") + b"\2", CTX)
        assert isinstance(found, Malformed)
        assert found.error_type == "UnknownSchema"
    assert server.requests == []


@pytest.mark.parametrize("host", ["a" * 64, "a..b", "ü" * 40, "no-such-host.invalid"])
def test_a_host_that_is_no_name_is_an_outage_and_no_dead_letter(host: str) -> None:
    serde = Avro("long", registry=SchemaRegistry(f"http://{host}:8081", attempts=1))
    with pytest.raises(RegistryUnavailable):
        serde.deserialize(FRAMED, CTX)


@pytest.mark.parametrize("value", ["Bearer s3cret\n", "Bearer s3cret\r", "Bearer s3cret\0", "Bearer s3cret\u2026", 7])
def test_a_header_that_http_cannot_carry_is_refused_at_once_without_its_value(value: Any) -> None:
    with pytest.raises(ConfigError, match="Authorization") as caught:
        SchemaRegistry("http://localhost:1", headers={"Authorization": value})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        *({"timeout_s": value} for value in (0, -1, float("nan"), float("inf"), "5", True, 10**9)),
        *({"attempts": value} for value in (0, -1, 1.5, True, 10**9)),
        {"password": "s3cret"},
        {"user": "ada", "password": "s3cret\udcff"},
    ],
)
def test_options_that_cannot_work_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        SchemaRegistry("http://localhost:1", **options)
    assert "s3cret" not in str(caught.value)


def _drips(text: bytes) -> Callable[[socket.socket, bytes], None]:
    def talk(wire: socket.socket, request: bytes) -> None:
        while True:
            for byte in text:
                wire.sendall(bytes([byte]))
                time.sleep(0.002)

    return talk


def _floods(text: bytes) -> Callable[[socket.socket, bytes], None]:
    def talk(wire: socket.socket, request: bytes) -> None:
        while True:
            wire.sendall(text)

    return talk


OPENING = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "talk",
    [
        _drips(b"HTTP/1.1 200 OK and so on"),
        _drips(b"HTTP/1.1 100 Continue\r\n\r\n"),
        _floods(b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        lambda wire, request: (wire.sendall(OPENING), _drips(b"0")(wire, request)),
        lambda wire, request: (wire.sendall(OPENING), _drips(b"1\r\n \r\n")(wire, request)),
        lambda wire, request: (wire.sendall(OPENING[:-2]), _drips(b"X: y\r\n")(wire, request)),
        lambda wire, request: (wire.sendall(b"HTTP/1.1 200 OK\r\n\r\n"), _drips(b" ")(wire, request)),
    ],
    ids=["status line", "continue", "continue quickly", "chunk size", "chunks", "headers", "body"],
)
def test_one_deadline_bounds_the_whole_exchange(server: Server, talk: Callable[[socket.socket, bytes], None]) -> None:
    server.talk = talk
    serde = Avro("long", registry=SchemaRegistry(server.url, attempts=1, timeout_s=0.3))
    began = time.monotonic()
    with pytest.raises(RegistryUnavailable, match=r"not complete after 0.3 s|longer than|got more than"):
        serde.deserialize(FRAMED, CTX)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "opening", [b"HTTP/1.1 200 OK\r\n\r\n", OPENING, b"HTTP/1.1 200 OK\r\nContent-Length: 4611686018427387904\r\n\r\n"]
)
def test_a_response_without_an_end_takes_a_bounded_amount_of_memory(server: Server, opening: bytes) -> None:
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    server.talk = lambda wire, request: (wire.sendall(opening), _floods(chunk)(wire, request))[1]
    with pytest.raises(RegistryUnavailable, match="longer than 16,777,216 bytes"):
        SchemaRegistry(server.url, attempts=1, timeout_s=60).schema(1)


def test_each_address_has_its_own_credentials(server: Server) -> None:
    other = Server()
    try:
        for each in (server, other):
            each.says(401, {"error_code": 40101, "message": "no"})
        with_user = [server.url.replace("//", "//ada:one@"), other.url.replace("//", "//bob:two@")]
        for url, options, wanted in (
            (",".join(with_user), {}, [b"YWRhOm9uZQ==", b"Ym9iOnR3bw=="]),
            (f"{server.url},{with_user[1]}", {}, [None, b"Ym9iOnR3bw=="]),
            (f"{with_user[0]},{other.url}", {}, [b"YWRhOm9uZQ==", None]),
            (f"{with_user[0]},{other.url}", {"user": "eve", "password": "3"}, [b"YWRhOm9uZQ==", b"ZXZlOjM="]),
        ):
            server.requests.clear()
            other.requests.clear()
            with pytest.raises(RegistryUnavailable):
                SchemaRegistry(url, attempts=1, **options).schema(1)
            for each, credentials in zip((server, other), wanted, strict=True):
                (request,) = each.requests
                assert (b"Authorization: Basic " + credentials in request) if credentials else b"Basic" not in request
    finally:
        other.close()


def _line_of_points(registry: SchemaRegistry) -> int:
    point = {"type": "record", "name": "geo.Point", "fields": [{"name": "x", "type": "double"}]}
    line = {"type": "record", "name": "geo.Line", "fields": [{"name": "a", "type": "geo.Point"}]}
    registry.register("point", json.dumps(point))
    return registry.register("line", json.dumps(line), references=[SchemaReference("geo.Point", "point", 1)])


def test_a_schema_that_cannot_be_used_is_asked_for_once_in_a_while_and_never_on_the_event_loop(
    embedded: EmbeddedRegistry,
) -> None:
    schema_id = SchemaRegistry(embedded.url).register(
        "line", json.dumps({"type": "record", "name": "geo.Line", "fields": []})
    )
    clock = ManualClock()
    registry = SchemaRegistry(embedded.url, clock=clock)
    real = registry._http.request

    def missing_reference(method: str, path: str, body: Any = None) -> Any:
        answer = real(method, path, body)
        if path.startswith("/schemas/ids/"):
            answer["references"] = [{"name": "geo.Point", "subject": "point", "version": 3}]
        return answer

    registry._http.request = missing_reference  # type: ignore[method-assign]
    serde = Avro("long", registry=registry)
    data = [b"\0" + schema_id.to_bytes(4, "big")] * 20
    embedded.requests.clear()
    assert serde.would_block(data, CTX)
    for _ in range(3):
        assert {getattr(found, "error_type", None) for found in serde.deserialize_many(data, CTX)} == {"UnknownSchema"}
        assert not serde.would_block(data, CTX)
    assert len(embedded.requests) == 2
    clock.advance(REFUSED_FOR_MS)
    assert serde.would_block(data, CTX), "it may be there now"
    serde.deserialize_many(data, CTX)
    assert len(embedded.requests) == 3, "the schema itself is known"
    clock.advance(REFUSED_FOR_MS)
    assert not serde.would_block(data, CTX), "each refusal in a row lasts longer"
    clock.advance(REFUSED_FOR_MOST_MS)
    assert serde.would_block(data, CTX)


def test_a_schema_whose_references_were_deleted_softly_is_still_read(embedded: EmbeddedRegistry) -> None:
    registry = SchemaRegistry(embedded.url)
    schema_id = _line_of_points(registry)
    for subject in ("line", "point"):  # what is still referred to cannot be deleted
        registry._http.request("DELETE", f"/subjects/{subject}")
    with pytest.raises(UnknownSchema):
        registry.version("point", 1)
    whole = Avro(
        {
            "type": "record",
            "name": "geo.Line",
            "fields": [
                {
                    "name": "a",
                    "type": {"type": "record", "name": "geo.Point", "fields": [{"name": "x", "type": "double"}]},
                }
            ],
        }
    )
    data = b"\0" + schema_id.to_bytes(4, "big") + (whole.serialize({"a": {"x": 1.5}}, CTX) or b"")
    assert Avro(whole.schema, registry=SchemaRegistry(embedded.url)).deserialize(data, CTX) == {"a": {"x": 1.5}}


def test_many_first_writers_register_once(server: Server) -> None:
    gate = threading.Event()

    def talk(wire: socket.socket, request: bytes) -> None:
        gate.wait(60)
        wire.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"id":7}')

    server.talk = talk
    registry = SchemaRegistry(server.url, timeout_s=60)
    serdes = [Avro("long", registry=registry) for _ in range(5)]
    with ThreadPoolExecutor(30) as pool:
        written = [pool.submit(serdes[number % 5].serialize, number, CTX) for number in range(30)]
        gate.set()
        assert {result.result(60)[:5] for result in written if result.result(60)} == {b"\0\0\0\0\7"}
    assert len(server.requests) == 1


def test_a_slow_id_holds_up_no_other(server: Server) -> None:
    gate = threading.Event()

    def talk(wire: socket.socket, request: bytes) -> None:
        if b"/ids/1 " in request:
            gate.wait(60)
        wire.sendall(b'HTTP/1.1 200 OK\r\n\r\n{"schema":"\\"int\\""}')

    server.talk = talk
    registry = SchemaRegistry(server.url, timeout_s=60)
    with ThreadPoolExecutor(4) as pool:
        slow = [pool.submit(registry.schema, 1) for _ in range(3)]
        assert pool.submit(registry.schema, 2).result(60).text == '"int"'
        assert not any(each.done() for each in slow)
        gate.set()
        assert {each.result(60).text for each in slow} == {'"int"'}
    assert len(server.requests) == 2


def test_threads_that_wait_for_one_id_share_its_outage(server: Server) -> None:
    gate = threading.Event()

    def talk(wire: socket.socket, request: bytes) -> None:
        gate.wait(60)
        wire.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    server.talk = talk
    registry = SchemaRegistry(server.url, timeout_s=60)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(registry.schema, 1) for _ in range(8)]
        while not registry._by_id._asked:
            pass
        gate.set()
        errors = [each.exception(60) for each in asked]
    assert {type(error) for error in errors} == {RegistryUnavailable}
    assert len({id(error) for error in errors}) == 8, "each raises its own, or its traceback would grow"


def test_ids_of_hostile_bytes_are_not_kept_for_ever(server: Server) -> None:
    server.says(404, {"error_code": 40403, "message": "no"})
    registry = SchemaRegistry(server.url, attempts=1)
    registry._http.request = lambda *given: (_ for _ in ()).throw(_refused())  # type: ignore[method-assign,assignment]
    for schema_id in range(3_000):
        with pytest.raises(UnknownSchema):
            registry.schema(schema_id)
    assert len(registry._by_id._refused) == 1_000
    assert registry.knows(2_999)
    assert not registry.knows(0)


def _refused() -> Exception:
    from ottla.serdes.registry_http import RegistryRefused

    return RegistryRefused(40403, "no")


@pytest.mark.parametrize("text", ["[" * 2_000, '{"type":' * 2_000, "[]{", '{"type": "record"}', "5", '"nothing"'])
def test_a_schema_that_is_none_is_malformed_in_rows(server: Server, text: str) -> None:
    server.says(200, {"schema": text})
    found = Avro("long", registry=SchemaRegistry(server.url, attempts=1)).deserialize(FRAMED, CTX)
    assert isinstance(found, Malformed)
    assert (found.kind, found.error_type) == ("malformed", "UnusableSchema")
    with pytest.raises(ValueError, match="schema 1: "):
        RegistryValues(SchemaRegistry(server.url, attempts=1)).decode(FRAMED)


def test_json_is_read_without_asking_for_its_schema(server: Server) -> None:
    assert Json(int, registry=SchemaRegistry(server.url)).deserialize(b"\0\0\0\0\1" + b"5", CTX) == 5
    assert server.requests == []


def test_a_registry_behind_tls_is_read_and_another_certificate_is_an_outage(server: Server) -> None:
    trustme = pytest.importorskip("trustme", reason="pip install 'ottla[tls]'")
    authority, other = trustme.CA(), trustme.CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(serving)
    trusting, strange = ssl.create_default_context(), ssl.create_default_context()
    authority.configure_trust(trusting)
    other.configure_trust(strange)
    requests: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            wire, _ = listener.accept()
            with contextlib.suppress(OSError), wire, serving.wrap_socket(wire, server_side=True) as secured:
                requests.append(secured.recv(65_536))
                secured.sendall(b'HTTP/1.1 200 OK\r\n\r\n{"schema":"\\"int\\""}')
                secured.unwrap()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://localhost:{listener.getsockname()[1]}"
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        assert SchemaRegistry(url, tls=trusting, attempts=1).schema(1).text == '"int"'
        with pytest.raises(RegistryUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            SchemaRegistry(url, tls=strange, attempts=1).schema(1)
        thread.join(60)
    assert b"Host: " + url.removeprefix("https://").encode() in requests[0]
