"""One connection to one broker: requests out, responses in, in order. Blocking sockets; no thread of its own.

Requests may be sent ahead of their responses (pipelined): `receive` takes responses strictly in the order of their
requests, as Kafka gives them. What is said is decided in `pipeline`; this file waits and moves bytes. Whoever abandons
a pipeline must `close`: a response left in the socket would be taken for the next caller's, and to read it to its end
costs more than to connect again.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.errors import BrokerUnavailable, LifecycleError, OttlaError
from ottla.wire_client.client_settings import WireSettings
from ottla.wire_client.errors import AuthenticationRefused, BrokerRefused
from ottla.wire_client.net.request_pipeline import PREFIX_BYTES, RequestPipeline
from ottla_wire.protocol import ApiKey, ErrorCode

if TYPE_CHECKING:
    from ottla.wire_client.net.authentication import SaslSession

_SOCKET_BUFFER_BYTES = 4 * 1024 * 1024
"""Room for a whole fetch response: the kernel receives the next one while this one is decoded."""

_SENT_AHEAD_BYTES = 64 * 1024
"""So much is sent before a response is read: what no buffer between the two takes would stand still for ever if the
broker waited as well, for its response to be read."""

_HOST_CHARACTERS = 255
"""The longest name that DNS has (RFC 1035)."""

_READ_AHEAD_BYTES = 16 * 1024
"""Bytes read at once at the start of a response: a small one arrives with its size in one call."""

_TIMEOUT_STEP_S = 0.05
"""How exactly a timeout is kept. To set one is a system call, during which other threads take the interpreter."""

_LOOKED_AT_S = 5.0
"""A connection that was used in so many seconds is taken for open. A look is a system call."""


class Connection:
    """Open, authenticated and with negotiated versions as soon as it exists."""

    def __init__(self, host: str, port: int, settings: WireSettings) -> None:
        self.host = host
        self.port = port
        self.address = f"{host}:{port}"
        self._settings = settings
        self._asked: deque[tuple[ApiKey, float]] = deque()
        self._ahead = b""
        self._early: deque[Any] = deque()
        """Responses that were received before their time, so that a session could be renewed."""
        self._session: SaslSession | None = None
        """None without a login, or where the session does not end."""
        self._timeout_s = -1.0
        self._is_encrypted = settings.security_protocol in ("SSL", "SASL_SSL")
        self._used_s = time.monotonic()
        self._pipeline = RequestPipeline(address=self.address, client_id=settings.client_id)
        self._socket: socket.socket | None = None
        try:
            self._connect()
        except AuthenticationRefused:
            if settings.tokens is None:
                raise
            # Once more with another token: the broker may not have known the key that signed this one, or it was
            # revoked.
            self._connect()

    @property
    def is_open(self) -> bool:
        """Return whether a request can be sent. An idle connection is checked: a broker closes connections that were
        unused for `connections.max.idle.ms` (ten minutes), which the next request would otherwise run into."""
        if self._socket is None:
            return False
        if self.in_flight or time.monotonic() - self._used_s < _LOOKED_AT_S or not _has_news(self._socket):
            return True
        self.close()  # its end; or bytes that nobody asked for, after which no response can be told from another
        return False

    @property
    def in_flight(self) -> int:
        """Return how many requests wait for their response."""
        return self._pipeline.in_flight + len(self._early)

    @property
    def served(self) -> Mapping[int, tuple[int, int]]:
        """The (oldest, newest) version of each API that the broker serves, by API key."""
        return self._pipeline.served

    def supports(self, api_key: ApiKey) -> bool:
        """Return whether the broker serves this API in a version this client speaks."""
        return self._pipeline.supports(api_key)

    def version(self, api_key: ApiKey) -> int:
        """Return the version both sides speak."""
        return self._pipeline.version(api_key)

    def call(self, api_key: ApiKey, body: dict[str, Any], *, newest: int | None = None) -> Any:
        """Send one request and wait for its response. `newest` as `send` takes it.

        Raises LifecycleError while a response is due to a request before it: that one would be taken for its own.
        """
        if self.in_flight:
            raise LifecycleError(
                f"{self.address}: {api_key.name} cannot be sent here: {self.in_flight} earlier requests wait for"
                " their responses, which their sender has to receive; use a connection with nothing in flight"
            )
        self.send(api_key, body, newest=newest)
        return self.receive()

    def send(
        self, api_key: ApiKey, body: dict[str, Any] | bytes, *, expects_response: bool = True, newest: int | None = None
    ) -> None:
        """Send a request; its response comes by `receive`, after those of all requests before it.

        `body`: bytes are of the version that both sides speak. `newest`: the newest version that `body` and the caller
        are written for, where that is not the client's own.
        """
        sock = self._live_socket()
        if self._session is not None:
            self._renew_session(self._session)
        frame = self._pipeline.request(api_key, body, expects_response=expects_response, newest=newest)
        self._write(sock, frame, api_key if expects_response else None)

    def calls(self, requests: Iterable[tuple[ApiKey, dict[str, Any], int | None]]) -> Iterator[Any]:
        """Yield the responses to several requests (api, body, newest), in order; an error of one is its response.

        Small requests are sent while those before them wait for their response, so that all of them take one round
        trip. Ends early where the connection is lost: the last response is that error.
        """
        waiting: deque[OttlaError | None] = deque()
        ahead = 0
        if self._session is not None:
            try:
                self._renew_session(self._session)
            except OttlaError as error:
                yield error
                return
        for api_key, body, newest in requests:
            try:
                frame = self._pipeline.request(api_key, body, newest=newest)
            except OttlaError as error:
                waiting.append(error)
                continue
            if ahead + len(frame) > _SENT_AHEAD_BYTES:
                ahead = 0
                yield from self._receive_all(waiting)
            waiting.append(None)
            try:
                self._write(self._live_socket(), frame, api_key)
            except OttlaError:
                break  # each waiting request gets the error
            ahead += len(frame)
        yield from self._receive_all(waiting)

    def _receive_all(self, waiting: deque[OttlaError | None]) -> Iterator[Any]:
        while waiting:
            refused = waiting.popleft()
            if refused is not None:
                yield refused
                continue
            try:
                response = self.receive()
            except OttlaError as error:
                response = error
                waiting.clear()
            yield response

    def _write(self, sock: socket.socket, frame: bytes, answered: ApiKey | None) -> None:
        """Write a request. `answered` is the API if a response is expected."""
        try:
            sent = self._write_at_once(sock, frame)
            if sent < len(frame):
                self._limit(sock, self._settings.request_timeout_ms / 1000)
                sock.sendall(memoryview(frame)[sent:])
        except OSError as error:
            raise self._lost(error) from error
        if answered is not None and self._settings.on_exchange is not None:
            self._asked.append((answered, time.monotonic()))

    def _write_at_once(self, sock: socket.socket, frame: bytes) -> int:
        """Return how many bytes the kernel takes without a wait. `sendall` releases the interpreter's lock before it
        checks for room, so that a request would be sent only when other threads are idle."""
        if self._is_encrypted:
            return 0
        try:
            return os.write(sock.fileno(), frame)
        except BlockingIOError:
            return 0

    def receive(self) -> Any:
        """Return the response to the oldest request in flight, whole within `request.timeout.ms`. Record fields are
        slices of one buffer, not copies."""
        if self._early:
            return self._early.popleft()
        return self._receive()

    def _receive(self) -> Any:
        deadline = time.monotonic() + self._settings.request_timeout_ms / 1000
        ahead = self._read_ahead(deadline)
        try:
            end = PREFIX_BYTES + self._pipeline.frame_size(ahead[:PREFIX_BYTES])
            frame: bytes | bytearray = ahead[PREFIX_BYTES:end]
            self._ahead = ahead[end:]
            if len(ahead) < end:  # more is to come: into the memory where it stays
                here, frame = frame, bytearray(end - PREFIX_BYTES)
                frame[: len(here)] = here
                self._read_into(memoryview(frame)[len(here) :], deadline)
            response = self._pipeline.response(frame)
        except OttlaError:
            self.close()
            raise
        if self._settings.on_exchange is not None and self._asked:
            api_key, sent_at = self._asked.popleft()
            self._settings.on_exchange(self.address, api_key, time.monotonic() - sent_at)
        self._used_s = time.monotonic()
        return response

    def fileno(self) -> int:
        """Return the socket's number, for a selector; -1 when it is closed."""
        return -1 if self._socket is None else self._socket.fileno()

    @property
    def has_bytes(self) -> bool:
        """Return whether bytes were read or decrypted already, which no selector sees."""
        if self._ahead or self._early:
            return True
        pending = getattr(self._socket, "pending", None)  # of an `ssl.SSLSocket`, which is loaded where it is used
        return pending is not None and pending() > 0

    def close(self) -> None:
        """Give the socket back. Safe to repeat."""
        self._pipeline.clear()
        self._asked.clear()
        self._ahead = b""
        self._early.clear()
        self._session = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> None:
        settings = self._settings
        if settings.tokens is not None:
            settings.tokens.get()  # without one there is nothing to connect for
        self._pipeline = RequestPipeline(address=self.address, client_id=settings.client_id)
        self._socket = self._open()
        self._timeout_s = -1.0
        try:
            self._negotiate()
            if settings.security_protocol.startswith("SASL"):
                from ottla.wire_client.net.authentication import SaslSession  # few commands log in

                self._session = SaslSession.begin(self.call, settings, self.address)
        except BaseException:
            self.close()
            raise
        self._pipeline.let_in(most_bytes=settings.receive_message_max_bytes)

    def _open(self) -> socket.socket:
        settings = self._settings
        if not (0 < len(self.host) <= _HOST_CHARACTERS and self.host.isprintable() and 0 < self.port < 65536):
            found = f"{self.host[:_HOST_CHARACTERS]!r}, port {self.port}"
            raise BrokerUnavailable(f"no broker can be at {found}: wanted a host name and a port from 1 to 65535")
        try:
            raw = socket.create_connection(
                (self.host, self.port), timeout=min(settings.request_timeout_ms, 10_000) / 1000
            )
        except UnicodeError as error:
            raise BrokerUnavailable(f"no broker can be at {self.host!r}: {error}") from error
        except OSError as error:
            raise BrokerUnavailable(f"no broker answered at {self.address} ({error.strerror or error})") from error
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER_BYTES)
            raw.settimeout(settings.request_timeout_ms / 1000)
            if settings.security_protocol in ("SSL", "SASL_SSL"):
                from ottla.wire_client.net.tls_context import wrapped

                return wrapped(raw, settings, host=self.host, address=self.address)
            return raw
        except OttlaError:
            raw.close()
            raise
        except OSError as error:
            raw.close()
            raise BrokerUnavailable(f"{self.address}: lost the connection in the TLS handshake: {error}") from error
        except BaseException:
            raw.close()
            raise

    def _negotiate(self) -> None:
        try:
            response = self.call(ApiKey.API_VERSIONS, {})
        except BrokerUnavailable as error:
            raise BrokerUnavailable(
                f"{self.address} takes connections but does not answer as a Kafka broker: {error};"
                " is security.protocol right?"
            ) from error
        if response.error_code != ErrorCode.NONE:
            raise BrokerRefused(f"{self.address} refused ApiVersions: {ErrorCode.of(response.error_code).name}")
        self._pipeline.negotiated({api.api_key: (api.min_version, api.max_version) for api in response.api_keys})

    def _renew_session(self, session: SaslSession) -> None:
        """Authenticate again, before the next request, if the session is about to end (KIP-368)."""
        if not session.should_renew(is_busy=self.in_flight > 0):
            return
        self._session = None  # what follows are requests too
        while self._pipeline.in_flight:
            self._early.append(self._receive())
        early, self._early = self._early, deque()
        try:
            self._session = session.renew(self.call)
        except BaseException:
            self.close()
            raise
        self._early = early

    def _read_ahead(self, deadline: float) -> bytes:
        """Return the received bytes of the next response: its size, and its body as far as it has arrived."""
        ahead = self._ahead
        sock = self._live_socket()
        try:
            while len(ahead) < PREFIX_BYTES:
                more = self._read_at_once(sock)
                if more is None:
                    self._limit(sock, deadline - time.monotonic())
                    more = sock.recv(_READ_AHEAD_BYTES)
                if not more:
                    raise ConnectionResetError("the broker closed the connection")
                ahead += more
        except OSError as error:
            raise self._lost(error) from error
        return ahead

    def _read_at_once(self, sock: socket.socket) -> bytes | None:
        """Return the bytes that have arrived; None if there are none. See `_write_at_once`."""
        if self._is_encrypted:
            return None
        try:
            return os.read(sock.fileno(), _READ_AHEAD_BYTES)
        except BlockingIOError:
            return None

    def _read_into(self, view: memoryview, deadline: float) -> None:
        sock = self._live_socket()
        try:
            while view:
                self._limit(sock, deadline - time.monotonic())
                count = sock.recv_into(view)
                if not count:
                    raise ConnectionResetError("the broker closed the connection")
                view = view[count:]
        except OSError as error:
            raise self._lost(error) from error

    def _limit(self, sock: socket.socket, left_s: float) -> None:
        """Let the next call on the socket take so long. TimeoutError when nothing is left."""
        if left_s <= 0:
            raise TimeoutError
        if abs(left_s - self._timeout_s) > _TIMEOUT_STEP_S:
            sock.settimeout(left_s)
            self._timeout_s = left_s

    def _live_socket(self) -> socket.socket:
        if self._socket is None:
            raise BrokerUnavailable(f"the connection to {self.address} is closed")
        return self._socket

    def _lost(self, error: OSError) -> BrokerUnavailable:
        self.close()
        reason = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return BrokerUnavailable(f"lost the connection to {self.address}: {reason}")


def _has_news(sock: socket.socket) -> bool:
    """Return whether bytes have come, or the end, without waiting for any."""
    poll = select.poll()  # not select.select, which takes no descriptor above 1,023
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
