"""The registry's HTTP side: one table of routes, one lock around the state."""

from __future__ import annotations

import json
import re
import threading
import urllib.parse
from collections.abc import Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Protocol

from ottla.records import Malformed
from ottla.serdes import Json
from ottla.serdes.registry_http import CONTENT_TYPE
from ottla.testing.registry.state import LogRecord, RegistryRefusal, RegistryState

# Method, path, and what it does with the body, or with the query where there is none. A function that changes something
# gives (records, answer), the others the answer.
_READS: Final = [
    ("GET", "/", lambda state, body: {}),
    ("GET", "/subjects", lambda state, body: state.names()),
    ("GET", "/subjects/{}/versions", lambda state, body, subject: state.numbers(subject)),
    (
        "GET",
        "/subjects/{}/versions/{}",
        lambda state, body, subject, n: state.version(subject, n, deleted=body.get("deleted") == "true").as_json(),
    ),
    (
        "GET",
        "/subjects/{}/versions/{}/schema",
        lambda state, body, subject, n: json.loads(state.version(subject, n).schema),
    ),
    ("POST", "/subjects/{}", lambda state, body, subject: state.lookup(subject, body)),
    ("GET", "/schemas/types", lambda state, body: ["AVRO", "JSON", "PROTOBUF"]),
    ("GET", "/schemas/ids/{}", lambda state, body, schema_id: state.schema(schema_id)),
    ("GET", "/config", lambda state, body: state.level(None)),
    ("GET", "/config/{}", lambda state, body, subject: state.level(subject)),
    (
        "POST",
        "/compatibility/subjects/{}/versions/{}",
        lambda state, body, subject, n: state.is_compatible(subject, n, body),
    ),
]
_WRITES: Final = [
    ("POST", "/subjects/{}/versions", lambda state, body, subject: state.register(subject, body)),
    ("DELETE", "/subjects/{}", lambda state, body, subject: state.delete(subject)),
    ("PUT", "/config", lambda state, body: state.set_level(None, body)),
    ("PUT", "/config/{}", lambda state, body, subject: state.set_level(subject, body)),
]


def _compiled(routes: Any) -> list[tuple[str, re.Pattern[str], Any]]:
    return [(method, re.compile(path.replace("{}", "([^/]+)") + "/?"), act) for method, path, act in routes]


_READ_ROUTES: Final = _compiled(_READS)
_WRITE_ROUTES: Final = _compiled(_WRITES)


class EmbeddedRegistry:
    """A registry on loopback. Start it, give `url` to serdes, stop it; or use it as a context manager."""

    def __init__(self, bootstrap_servers: str | None = None, *, port: int = 0) -> None:
        self._log: RegistryLog = MemoryLog() if bootstrap_servers is None else TopicLog(bootstrap_servers)
        self._port = port
        self._lock = threading.Lock()
        self._state = RegistryState()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self.requests: list[str] = []
        """Every request served, as `METHOD path`, for tests that count them."""

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`, also while it is stopped: a restart listens on the same port."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> EmbeddedRegistry:
        """Replay the log and listen."""
        if self._server is not None:
            return self
        self._state = RegistryState()
        for record in self._log.replay():
            self._state.replay(record)
        self._server = _Server(("127.0.0.1", self._port), _handler_for(self))
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="ottla-registry", daemon=True
        )
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop listening. Safe to call twice."""
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        if self._thread is not None:
            self._thread.join()

    def answer(self, method: str, path: str, body: Any) -> Any:
        """Return the answer to one request, once its records are in the log. Raises `RegistryRefusal`."""
        with self._lock:
            self.requests.append(f"{method} {path}")
            for wanted, pattern, act in _READ_ROUTES:
                found = pattern.fullmatch(path)
                if wanted == method and found:
                    return act(self._state, body, *map(urllib.parse.unquote, found.groups()))
            for wanted, pattern, act in _WRITE_ROUTES:
                found = pattern.fullmatch(path)
                if wanted == method and found:
                    records, answer = act(self._state, body, *map(urllib.parse.unquote, found.groups()))
                    self._append(records)
                    return answer
        raise RegistryRefusal(404, 404, f"HTTP 404 Not Found: {method} {path}")

    def _append(self, records: list[LogRecord]) -> None:
        if not records:
            return
        self._log.append(records)
        for record in records:
            self._state.replay(record)

    def __enter__(self) -> EmbeddedRegistry:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


def _handler_for(registry: EmbeddedRegistry) -> type[BaseHTTPRequestHandler]:
    class RegistryHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            path, _, query = self.path.partition("?")
            try:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body = json.loads(raw) if raw else dict(urllib.parse.parse_qsl(query))
                status, answer = 200, registry.answer(self.command, path, body)
            except RegistryRefusal as refusal:
                status, answer = refusal.status, {"error_code": refusal.code, "message": str(refusal)}
            except ValueError as error:
                status, answer = 400, {"error_code": 400, "message": f"not JSON: {error}"}
            except Exception as error:  # the topic did not take the record: the client should try again
                status, answer = 500, {"error_code": 50001, "message": f"{type(error).__name__}: {error}"}
            payload = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST = do_PUT = do_DELETE = _serve

        def log_message(self, format: str, *args: Any) -> None:
            return None

    return RegistryHandler


TOPIC: Final = "_schemas"


class RegistryLog(Protocol):
    """An ordered log of records."""

    def replay(self) -> Iterable[LogRecord]:
        """Return everything that was appended, oldest first."""
        ...

    def append(self, records: Sequence[LogRecord]) -> None:
        """Append records; returns when they are acknowledged."""
        ...


class MemoryLog:
    """Forgets everything with the process."""

    def replay(self) -> Iterable[LogRecord]:
        return ()

    def append(self, records: Sequence[LogRecord]) -> None:
        return None


class TopicLog:
    """The compacted topic `_schemas`, one partition, keys and values as Confluent's registry writes them."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    def replay(self) -> Iterable[LogRecord]:
        from ottla.browse.topic_reader import TopicReader
        from ottla.testing.topics import create_topic

        create_topic(self._bootstrap_servers, TOPIC, config={"cleanup.policy": "compact"}, exist_ok=True)
        with TopicReader(self._bootstrap_servers, TOPIC, key=Json(), value=Json()) as reader:
            for record in reader.read_to_end():
                # Keys such as NOOP, and whatever else somebody wrote there, are not schemas.
                if isinstance(record.key, dict) and not isinstance(record.value, Malformed):
                    yield LogRecord(record.key, record.value)

    def append(self, records: Sequence[LogRecord]) -> None:
        from ottla.browse.topic_writer import write_all

        write_all(
            self._bootstrap_servers,
            TOPIC,
            [None if record.value is None else json.dumps(record.value) for record in records],
            keys=[json.dumps(record.key) for record in records],
        )
