"""The registry's HTTP side: one table of routes, one lock around the state."""

from __future__ import annotations

import base64
import hmac
import json
import re
import socket
import threading
import urllib.parse
from collections.abc import Collection, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ConfigError
from ottla.foreign_json import read_json
from ottla.serdes.registry_http import CONTENT_TYPE
from ottla.testing.registry.log import MemoryLog, RegistryLog, TopicLog
from ottla.testing.registry.state import LogRecord, RegistryRefusal, RegistryState

if TYPE_CHECKING:
    import ssl

MOST_BYTES: Final = 16 * 1024 * 1024
"""Of a request's body. It is not read if its length is more."""
_IDLE_S: Final = 60.0
"""A connection that sends nothing for so long is closed."""

# Method, path, and what it does with the body, or with the query where there is none. A function that changes something
# gives (records, answer), the others the answer.
_READS: Final = [
    ("GET", "/", lambda state, body: {}),
    ("GET", "/subjects", lambda state, body: state.names(deleted=body.get("deleted") == "true")),
    (
        "GET",
        "/subjects/{}/versions",
        lambda state, body, subject: state.numbers(subject, deleted=body.get("deleted") == "true"),
    ),
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
    ("GET", "/subjects/{}/versions/{}/referencedby", lambda state, body, subject, n: state.referenced_by(subject, n)),
    ("POST", "/subjects/{}", lambda state, body, subject: state.lookup(subject, body)),
    ("GET", "/schemas/types", lambda state, body: ["AVRO", "JSON", "PROTOBUF"]),
    ("GET", "/schemas/ids/{}", lambda state, body, schema_id: state.schema(schema_id)),
    ("GET", "/schemas/ids/{}/versions", lambda state, body, schema_id: state.uses(schema_id)),
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
    ("DELETE", "/subjects/{}/versions/{}", lambda state, body, subject, n: state.delete_version(subject, n)),
    ("PUT", "/config", lambda state, body: state.set_level(None, body)),
    ("PUT", "/config/{}", lambda state, body, subject: state.set_level(subject, body)),
    ("DELETE", "/config/{}", lambda state, body, subject: state.unset_level(subject)),
]


def _compiled(routes: Any) -> list[tuple[str, re.Pattern[str], Any]]:
    return [(method, re.compile(path.replace("{}", "([^/]+)") + "/?"), act) for method, path, act in routes]


_READ_ROUTES: Final = _compiled(_READS)
_WRITE_ROUTES: Final = _compiled(_WRITES)


class EmbeddedRegistry:
    """A registry on loopback. Start it, give `url` to serdes, stop it; or use it as a context manager.

    `host` is the address to listen on. With `users` (name → password) requests need HTTP basic authentication; those of
    them in `read_only` are refused what changes something. `tls` makes it HTTPS. Raises `ConfigError` if it cannot
    listen there.
    """

    def __init__(
        self,
        bootstrap_servers: str | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        users: Mapping[str, str] | None = None,
        read_only: Collection[str] = (),
        tls: ssl.SSLContext | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._log: RegistryLog = MemoryLog() if bootstrap_servers is None else TopicLog(bootstrap_servers, settings)
        self._host = host
        self._port = port
        self._tls = tls
        self._read_only = frozenset(read_only)
        self._users = {
            base64.b64encode(f"{name}:{password}".encode()): name for name, password in (users or {}).items()
        }
        self._lock = threading.Lock()
        self._state = RegistryState()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self.requests: list[str] = []
        """Every request served, as `METHOD path`, for tests that count them."""

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`, also while it is stopped: a restart listens on the same port."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self._port}"

    @property
    def port(self) -> int:
        """The port that it listens on; 0 if any free one will be taken."""
        return self._port

    def start(self) -> EmbeddedRegistry:
        """Replay the log and listen."""
        if self._server is not None:
            return self
        self._state = RegistryState()
        for record in self._log.replay():
            self._state.replay(record)
        self._server = _listening(self._host, self._port, self, self._tls)
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

    def admit(self, method: str, path: str, authorization: str) -> None:
        """Raise `RegistryRefusal` for a request whose user is unknown, or may not change anything."""
        if not self._users:
            return
        kind, _, credentials = authorization.partition(" ")
        given = credentials.strip().encode("utf-8", "replace")
        name = next((name for known, name in self._users.items() if hmac.compare_digest(known, given)), None)
        if kind.lower() != "basic" or name is None:
            raise RegistryRefusal(401, 401, "Unauthorized")
        is_change = any(wanted == method and pattern.fullmatch(path) for wanted, pattern, _ in _WRITE_ROUTES)
        if is_change and name in self._read_only:
            raise RegistryRefusal(403, 40301, f"User {name} may read only")

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


def _listening(host: str, port: int, registry: EmbeddedRegistry, tls: ssl.SSLContext | None) -> _Server:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        kind = type("_ServerOfFamily", (_Server,), {"address_family": family})
        server: _Server = kind((host, port), _handler_for(registry))
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"registry: cannot listen at {host}:{port}: {error}") from error
    if tls is not None:
        # The handshake is in the thread of the connection: one that never begins it delays no other.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server


def _handler_for(registry: EmbeddedRegistry) -> type[BaseHTTPRequestHandler]:
    class RegistryHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = _IDLE_S
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            path, _, query = self.path.partition("?")
            try:
                raw = self._body()  # first: a response to a request that was not read can be lost
                registry.admit(self.command, path, self.headers.get("Authorization") or "")
                body = read_json(raw) if raw else dict(urllib.parse.parse_qsl(query))
                if not isinstance(body, dict):
                    raise RegistryRefusal(422, 42201, "found a body that is not an object, wanted one")
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

        def _body(self) -> bytes:
            length = int(self.headers.get("Content-Length") or 0)
            if not 0 <= length <= MOST_BYTES:
                self.close_connection = True
                raise RegistryRefusal(413, 413, f"found a body of {length:,} bytes, wanted at most {MOST_BYTES:,}")
            return self.rfile.read(length)

        do_GET = do_POST = do_PUT = do_DELETE = _serve

        def log_message(self, format: str, *args: Any) -> None:
            return None

    return RegistryHandler
