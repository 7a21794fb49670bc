"""One connection to one broker: requests out, responses in, in order. Blocking sockets; no thread of its own.

Requests may be sent ahead of their responses (pipelined): `send` answers a ticket, `receive` takes responses strictly
in the order of their requests, as Kafka gives them. Whoever abandons a pipeline must `close`: a response left in the
socket would be taken for the next caller's, and to read it to its end costs more than to connect again.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from typing import Any, NamedTuple

from ottla.errors import BrokerUnavailable, ConfigError
from ottla.wire_client.errors import AuthenticationRefused, BrokerRefused, ResponseTooLarge
from ottla.wire_client.sasl import start_exchange
from ottla.wire_client.settings import WireSettings
from ottla.wire_client.tls import tls_context
from ottla_wire.protocol import ApiKey, ErrorCode, FrameTooLarge, ProtocolError, codec, headers, schemas
from ottla_wire.protocol.framing import SIZE_BYTES, frame_size

# The versions this client is written for, newest first what it needs. From Fetch 13 on topics go by id instead of name
# (KIP-516), so that what is read is of the topic whose offsets were planned; from Produce 13 on too.
NEWEST = {
    ApiKey.PRODUCE: 11,
    ApiKey.FETCH: 13,
    ApiKey.LIST_OFFSETS: 8,
    ApiKey.METADATA: 12,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.DESCRIBE_CONFIGS: 4,
    # Transactions as before KIP-890: from these versions up a commit would change the producer's epoch, and the one
    # that ends a transaction here is not the one that wrote it.
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.END_TXN: 3,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.SASL_AUTHENTICATE: 2,
    ApiKey.API_VERSIONS: 0,
}

_SOCKET_BUFFER_BYTES = 4 * 1024 * 1024
"""Room for a whole fetch response: the kernel receives the next one while this one is decoded."""


_HANDSHAKE_BYTES = 1024 * 1024
"""The largest response before the peer is known to be a broker and, with SASL, to know the password too."""

_TLS_ALERT = b"\x15\x03"
"""How a TLS server begins to refuse what is not TLS (RFC 8446, section 5.1)."""

_HOST_CHARACTERS = 255
"""The longest name that DNS has (RFC 1035)."""


class _Ticket(NamedTuple):
    api_key: ApiKey
    version: int
    correlation_id: int


class Connection:
    """Open, authenticated and with negotiated versions as soon as it exists."""

    def __init__(self, host: str, port: int, settings: WireSettings) -> None:
        self.host = host
        self.port = port
        self._settings = settings
        self._pending: deque[_Ticket] = deque()
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self._largest_frame = _HANDSHAKE_BYTES
        self._socket: socket.socket | None = self._open()
        try:
            self._negotiate()
            if settings.security_protocol.startswith("SASL"):
                self._authenticate()
        except BaseException:
            self.close()
            raise
        self._largest_frame = settings.receive_message_max_bytes

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    @property
    def in_flight(self) -> int:
        """How many requests wait for their response."""
        return len(self._pending)

    def supports(self, api_key: ApiKey) -> bool:
        """Whether the broker serves this API in a version this client speaks."""
        return self._shared_version(api_key) is not None

    def version(self, api_key: ApiKey) -> int:
        """The version both sides speak."""
        version = self._shared_version(api_key)
        if version is None:
            raise BrokerRefused(f"{self.address} does not serve {api_key.name} in a version this client speaks")
        return version

    def call(self, api_key: ApiKey, body: dict[str, Any]) -> Any:
        """Send one request and wait for its response. Nothing else may be in flight."""
        self.send(api_key, body)
        return self.receive()

    def send(
        self, api_key: ApiKey, body: dict[str, Any], *, expects_response: bool = True, newest: int | None = None
    ) -> None:
        """Send a request; its response comes by `receive`, after those of all requests before it.

        `newest`: a lower version than both sides speak, if there is a reason.
        """
        version = self.version(api_key) if newest is None else min(self.version(api_key), newest)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = headers.encode_request_frame(api_key, version, self._correlation_id, self._settings.client_id, body)
        try:
            sock = self._live_socket()
            sock.settimeout(self._settings.request_timeout_ms / 1000)
            sock.sendall(frame)
        except OSError as error:
            raise self._lost(error) from error
        if expects_response:
            self._pending.append(_Ticket(api_key, version, self._correlation_id))

    def receive(self) -> Any:
        """The response to the oldest request in flight. Record fields are slices of one buffer, not copies."""
        ticket = self._pending[0]
        frame = self._read_frame(ticket)
        self._pending.popleft()
        try:
            found, offset = headers.decode_response_header(ticket.api_key, ticket.version, frame)
            if found == ticket.correlation_id:
                return codec.decode_response(ticket.api_key, ticket.version, frame, offset)
            problem = f"response {found} came where {ticket.correlation_id} was due"
        except ProtocolError as error:
            problem = str(error)
        self.close()
        raise BrokerUnavailable(
            f"{self.address} answered {ticket.api_key.name} with bytes that are not its response: {problem};"
            " connection dropped"
        )

    def close(self) -> None:
        """Give the socket back. Safe to repeat."""
        self._pending.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _open(self) -> socket.socket:
        settings = self._settings
        if not (0 < len(self.host) <= _HOST_CHARACTERS and self.host.isprintable() and 0 < self.port < 65536):
            found = f"{self.host[:_HOST_CHARACTERS]!r}, port {self.port}"
            raise BrokerUnavailable(f"no broker can be at {found}: wanted the name of a host and a port of 1 to 65535")
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
                return tls_context(settings).wrap_socket(raw, server_hostname=self.host)
            return raw
        except ssl.SSLCertVerificationError as error:
            raw.close()
            raise AuthenticationRefused(
                f"{self.address}: its certificate is not trusted: {error.verify_message}"
                " (ssl.ca.location says who is, ssl.endpoint.identification.algorithm whether its name counts)"
            ) from error
        except ssl.SSLError as error:
            raw.close()
            raise BrokerUnavailable(f"{self.address}: the TLS handshake failed: {error}") from error
        except OSError as error:
            raw.close()
            raise BrokerUnavailable(f"{self.address}: lost the connection in the TLS handshake: {error}") from error
        except BaseException:
            raw.close()
            raise

    def _negotiate(self) -> None:
        self._versions = {ApiKey.API_VERSIONS: (0, 0)}
        try:
            response = self.call(ApiKey.API_VERSIONS, {})
        except BrokerUnavailable as error:
            raise BrokerUnavailable(
                f"{self.address} takes connections but does not answer as a Kafka broker: {error};"
                " is security.protocol right?"
            ) from error
        if response.error_code != ErrorCode.NONE:
            raise BrokerRefused(f"{self.address} refused ApiVersions: {ErrorCode.of(response.error_code).name}")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _authenticate(self) -> None:
        settings = self._settings
        mechanism = settings.sasl_mechanism
        shaken = self.call(ApiKey.SASL_HANDSHAKE, {"mechanism": mechanism})
        if shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise ConfigError(
                f"security.protocol: found {settings.security_protocol}, but {self.address} does not authenticate by "
                f"SASL, wanted {settings.security_protocol.removeprefix('SASL_')}"
            )
        if shaken.error_code != ErrorCode.NONE:
            raise AuthenticationRefused(
                f"{self.address} does not offer sasl.mechanism {mechanism}; it offers {', '.join(shaken.mechanisms)}"
            )
        exchange = start_exchange(mechanism, username=settings.sasl_username, password=settings.sasl_password)
        message = next(exchange)
        while True:
            answer = self.call(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": message})
            if answer.error_code != ErrorCode.NONE:
                raise AuthenticationRefused(
                    f"{self.address} refused {settings.sasl_username!r}: {answer.error_message}"
                )
            try:
                message = exchange.send(answer.auth_bytes)
            except StopIteration:
                return
            except BrokerRefused as error:
                raise AuthenticationRefused(f"{self.address}: {error}") from None

    def _shared_version(self, api_key: ApiKey) -> int | None:
        if api_key not in self._versions:
            return None
        oldest, newest = self._versions[api_key]
        known = schemas.request(api_key).versions
        version = min(newest, NEWEST[api_key], known.last)
        return version if version >= max(oldest, known.first) else None

    def _read_frame(self, ticket: _Ticket) -> bytearray:
        """One frame, whole within `request.timeout.ms`. Memory is taken only for a size within the limit."""
        deadline = time.monotonic() + self._settings.request_timeout_ms / 1000
        prefix = bytearray(SIZE_BYTES)
        self._read_into(memoryview(prefix), deadline)
        try:
            size = frame_size(prefix, 0, self._largest_frame) or 0
        except FrameTooLarge as error:
            self.close()
            if self._largest_frame != _HANDSHAKE_BYTES:
                size = int.from_bytes(prefix, "big")
                raise ResponseTooLarge(
                    f"{self.address}: the response to {ticket.api_key.name} announces {size:,} bytes,"
                    f" receive.message.max.bytes allows {self._largest_frame:,}: ask for less or allow more"
                ) from None
            raise self._not_a_broker(prefix, error) from None
        except ProtocolError as error:
            self.close()
            raise self._not_a_broker(prefix, error) from None
        frame = bytearray(size)
        self._read_into(memoryview(frame), deadline)
        return frame

    def _not_a_broker(self, prefix: bytearray, error: ProtocolError) -> BrokerUnavailable:
        speaks = ""
        if prefix == b"HTTP":
            speaks = ": it speaks HTTP"
        elif prefix[:2] == _TLS_ALERT:
            speaks = ": it speaks TLS"
        return BrokerUnavailable(
            f"{self.address} sent {bytes(prefix)!r} where a response starts{speaks} ({error.problem})"
        )

    def _read_into(self, view: memoryview, deadline: float) -> None:
        sock = self._live_socket()
        try:
            while view:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                sock.settimeout(left)
                count = sock.recv_into(view)
                if not count:
                    raise ConnectionResetError("the broker closed the connection")
                view = view[count:]
        except OSError as error:
            raise self._lost(error) from error

    def _live_socket(self) -> socket.socket:
        if self._socket is None:
            raise BrokerUnavailable(f"the connection to {self.address} is closed")
        return self._socket

    def _lost(self, error: OSError) -> BrokerUnavailable:
        self.close()
        reason = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return BrokerUnavailable(f"lost the connection to {self.address}: {reason}")
