"""One connection to one broker: requests out, responses in, in order. Blocking sockets; no thread of its own.

Requests may be sent ahead of their responses (pipelined): `send` answers a ticket, `receive` takes responses strictly
in the order of their requests, as Kafka gives them. Whoever abandons a pipeline must `close`: a response left in the
socket would be taken for the next caller's, and to read it to its end costs more than to connect again.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from typing import Any, NamedTuple

from ottla.errors import BrokerUnavailable, ConfigError
from ottla.wire_client.errors import BrokerRefused
from ottla.wire_client.sasl import start_exchange
from ottla.wire_client.settings import WireSettings
from ottla_wire.protocol import ApiKey, ErrorCode, codec, headers, schemas

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
        self._socket: socket.socket | None = self._open()
        try:
            self._negotiate()
            if settings.security_protocol.startswith("SASL"):
                self._authenticate()
        except BaseException:
            self.close()
            raise

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
            self._live_socket().sendall(frame)
        except OSError as error:
            raise self._lost(error) from error
        if expects_response:
            self._pending.append(_Ticket(api_key, version, self._correlation_id))

    def receive(self) -> Any:
        """The response to the oldest request in flight. Record fields are slices of one buffer, not copies."""
        ticket = self._pending[0]
        frame = self._read_frame()
        self._pending.popleft()
        found, offset = headers.decode_response_header(ticket.api_key, ticket.version, frame)
        if found != ticket.correlation_id:
            self.close()
            raise BrokerUnavailable(
                f"{self.address} answered request {found} where {ticket.correlation_id} was due; connection dropped"
            )
        return codec.decode_response(ticket.api_key, ticket.version, frame, offset)

    def close(self) -> None:
        """Give the socket back. Safe to repeat."""
        self._pending.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _open(self) -> socket.socket:
        settings = self._settings
        try:
            raw = socket.create_connection(
                (self.host, self.port), timeout=min(settings.request_timeout_ms, 10_000) / 1000
            )
        except OSError as error:
            raise BrokerUnavailable(f"no broker answered at {self.address} ({error.strerror or error})") from error
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER_BYTES)
            raw.settimeout(settings.request_timeout_ms / 1000)
            if settings.security_protocol in ("SSL", "SASL_SSL"):
                return _tls_context(settings).wrap_socket(raw, server_hostname=self.host)
            return raw
        except ssl.SSLCertVerificationError as error:
            raw.close()
            raise BrokerRefused(
                f"{self.address}: its certificate is not trusted: {error.verify_message}"
                " (ssl.ca.location says who is, ssl.endpoint.identification.algorithm whether its name counts)"
            ) from error
        except ssl.SSLError as error:
            raw.close()
            raise BrokerUnavailable(f"{self.address}: the TLS handshake failed: {error}") from error
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
            raise BrokerRefused(f"{self.address} refused ApiVersions: {ErrorCode(response.error_code).name}")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _authenticate(self) -> None:
        settings = self._settings
        mechanism = settings.sasl_mechanism
        shaken = self.call(ApiKey.SASL_HANDSHAKE, {"mechanism": mechanism})
        if shaken.error_code != ErrorCode.NONE:
            raise BrokerRefused(
                f"{self.address} does not offer sasl.mechanism {mechanism}; it offers {', '.join(shaken.mechanisms)}"
            )
        exchange = start_exchange(mechanism, username=settings.sasl_username, password=settings.sasl_password)
        message = next(exchange)
        while True:
            answer = self.call(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": message})
            if answer.error_code != ErrorCode.NONE:
                raise BrokerRefused(f"{self.address} refused {settings.sasl_username!r}: {answer.error_message}")
            try:
                message = exchange.send(bytes(answer.auth_bytes))
            except StopIteration:
                return

    def _shared_version(self, api_key: ApiKey) -> int | None:
        if api_key not in self._versions:
            return None
        oldest, newest = self._versions[api_key]
        known = schemas.request(api_key).versions
        version = min(newest, NEWEST[api_key], known.last)
        return version if version >= max(oldest, known.first) else None

    def _read_frame(self) -> bytearray:
        prefix = bytearray(4)
        self._read_into(memoryview(prefix))
        frame = bytearray(int.from_bytes(prefix, "big"))
        self._read_into(memoryview(frame))
        return frame

    def _read_into(self, view: memoryview) -> None:
        sock = self._live_socket()
        try:
            while view:
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


def _tls_context(settings: WireSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ssl_ca_location, cadata=settings.ssl_ca_pem)
        context.check_hostname = settings.ssl_verify and settings.ssl_check_hostname
        context.verify_mode = ssl.CERT_REQUIRED if settings.ssl_verify else ssl.CERT_NONE
        if settings.ssl_certificate_location:
            context.load_cert_chain(
                settings.ssl_certificate_location, settings.ssl_key_location, password=settings.ssl_key_password
            )
    except OSError as error:  # an SSLError is one too
        files = {
            "ssl.ca.location": settings.ssl_ca_location,
            "ssl.certificate.location": settings.ssl_certificate_location,
            "ssl.key.location": settings.ssl_key_location,
        }
        found = ", ".join(f"{name}={path}" for name, path in files.items() if path)
        raise ConfigError(
            f"ssl: found {found or 'ssl.ca.pem'}, wanted readable certificates and key: {error}"
        ) from error
    return context
