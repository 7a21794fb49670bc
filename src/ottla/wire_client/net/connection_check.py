"""What answers at an address: a Kafka broker that accepts these settings, or something else, and what.

A client that speaks another protocol than its broker gets no error from either: the broker closes the connection, and
the client tries again for ever. So before a client starts, one connection greets: TLS, ApiVersions, SASL. What it finds
to be wrong for good is an error at once, in the same words for every client. What it cannot say for sure (no answer in
time, a connection cut, a login that only the client can do) is left to the client.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final

from ottla.config import Address
from ottla.errors import BrokerUnavailable, ConfigError, OttlaError
from ottla.lazy import LazyModule
from ottla.tokens.errors import TokenUnavailable
from ottla.tokens.names import OAUTH_NAMES, is_left_to_librdkafka
from ottla.wire_client.client_settings import WireSettings, wire_settings
from ottla.wire_client.errors import AuthenticationRefused, group_protocol_refused
from ottla.wire_client.net.broker_connection import Connection
from ottla.wire_client.net.kafka_versions import kafka_version
from ottla_wire.protocol import ApiKey, ErrorCode, headers

if TYPE_CHECKING:
    import ssl
else:  # loaded where something is wrong, or TLS is wanted
    ssl = LazyModule("ssl")

_ANSWER_S: Final = 0.8
"""How long each answer may take. A broker that is slower is not judged here."""

_SILENCE_S: Final = 0.3
"""How long something that was spoken to in the wrong protocol is listened to."""

_TAKEN: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
)
_OWN_TLS: Final = (
    "ssl.context",
    "ssl.ca.certificate.stores",
    "ssl.certificate.pem",
    "ssl.key.pem",
    "ssl.keystore.location",
    "ssl.engine.location",
    "ssl.cipher.suites",
)
"""Settings of a client's certificates that this one cannot read: then only the client can say what is wrong."""

_CERTIFICATE_REQUEST: Final = 13
"""The TLS message (RFC 8446, section 4.3.2)."""

_TELLING_BYTES: Final = 8
"""A response begins with its length and the correlation id of the question."""

_OWN_LOGIN: Final = "sasl.oauth.token.provider"
"""An object of aiokafka's, which only its clients can ask."""

_LOGINS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def greet(address: Address, settings: Mapping[str, Any]) -> str | None:
    """Raise `AuthenticationError` or `ConfigError` for what is wrong for good; return where nothing is, or may be.

    Returns what there is to wait for: a token, while its endpoint does not answer.

    Takes a few round trips where all is well. Each step (a connection, TLS, a response) may take 0.8 s: a broker
    that is slow at every one of them takes several seconds.
    """
    protocol = str(settings.get("security.protocol", "PLAINTEXT")).upper()
    mechanism = str(settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "")))
    if (protocol.endswith("SSL") and any(name in settings for name in _OWN_TLS)) or (
        protocol.startswith("SASL_")
        and (mechanism not in _LOGINS or _OWN_LOGIN in settings or is_left_to_librdkafka(settings))
    ):
        return None
    given = {name: settings[name] for name in (*_TAKEN, *OAUTH_NAMES) if settings.get(name) is not None}
    if mechanism:
        given["sasl.mechanism"] = mechanism
    wire = wire_settings(
        {**given, "client.id": "ottla-greeting", "request.timeout.ms": round(_ANSWER_S * 1_000)},
        bootstrap_servers=address.host_and_port,
    )
    try:
        connection = Connection(address.host, address.port, wire)
    except TokenUnavailable as error:
        return str(error)
    except BrokerUnavailable as error:
        found = _what_is_wrong(address, wire, error)
        if found is not None:
            raise found from error
        return None
    try:
        if not protocol.startswith("SASL_"):
            _check_that_nobody_logs_in(connection, address, wire, protocol)
        if str(settings.get("group.protocol", "classic")).lower() == "consumer":
            _check_group_protocol(connection, address, str(settings.get("group.id", "")))
    finally:
        connection.close()
    return None


def _check_that_nobody_logs_in(connection: Connection, address: Address, wire: WireSettings, protocol: str) -> None:
    """Raise if the listener wants a login: one with SASL silently drops connections that send anything else first."""
    if not connection.supports(ApiKey.SASL_HANDSHAKE):
        return
    try:
        answer = connection.call(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
    except OttlaError:
        return
    if answer.error_code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_SASL_MECHANISM):
        if _serves_without_login(address, wire):  # kfake answers SaslHandshake but requires no login
            return
        wanted = "SASL_SSL" if protocol == "SSL" else "SASL_PLAINTEXT"
        raise ConfigError(
            f"security.protocol: found {protocol}, but {address.host_and_port} wants a login, wanted {wanted} with "
            f"sasl.mechanism {' or '.join(map(str, answer.mechanisms)) or '(it does not say which)'}"
        )


def _serves_without_login(address: Address, wire: WireSettings) -> bool:
    """Return whether the listener answers Metadata before a login, or answers too late."""
    try:
        with closing(Connection(address.host, address.port, wire)) as connection:
            connection.call(ApiKey.METADATA, {"topics": [], "allow_auto_topic_creation": False})
    except OttlaError as error:
        return isinstance(error.__cause__, TimeoutError)
    return True


def _check_group_protocol(connection: Connection, address: Address, group: str) -> None:
    """Raise `BrokerTooOld` where the broker refuses KIP-848: librdkafka would try again for ever, and log nothing.

    Kafka 3.7 to 3.9 serve the API and refuse each request. So a member that is not there leaves (epoch -1), which
    changes nothing.
    """
    if connection.supports(ApiKey.CONSUMER_GROUP_HEARTBEAT):
        member = {"group_id": group, "member_id": "ottla-greeting", "member_epoch": -1, "rebalance_timeout_ms": -1}
        nothing = {"instance_id": None, "rack_id": None, "subscribed_topic_names": None, "server_assignor": None}
        try:
            answer = connection.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, {**member, **nothing, "topic_partitions": None})
        except OttlaError:
            return
        if answer.error_code != ErrorCode.UNSUPPORTED_VERSION:
            return
    raise group_protocol_refused(
        f"{address.host_and_port} is {kafka_version(connection.served)} and refuses that protocol"
    )


def _what_is_wrong(address: Address, wire: WireSettings, error: BrokerUnavailable) -> OttlaError | None:
    """Return why a connection that could be opened was of no use, or None if that is unknown."""
    protocol = wire.security_protocol
    alert = _alert_of(error)
    if "CERTIFICATE_REQUIRED" in alert or ("HANDSHAKE_FAILURE" in alert and wire.ssl_certificate_location is None):
        return AuthenticationRefused(
            f"{address.host_and_port} wants a certificate of the client: found ssl.certificate.location "
            f"{wire.ssl_certificate_location or 'not set'}"
        )
    if "ALERT_UNKNOWN_CA" in alert or "ALERT_BAD_CERTIFICATE" in alert or "ALERT_CERTIFICATE_" in alert:
        return AuthenticationRefused(
            f"{address.host_and_port} does not accept this client's certificate (ssl.certificate.location "
            f"{wire.ssl_certificate_location}): {alert}"
        )
    speaks = probe(address)
    place = address.host_and_port
    if speaks in ("HTTP", "HTTPS"):
        return ConfigError(f"bootstrap.servers: {place} speaks {speaks}, not Kafka's protocol: is the port right?")
    is_tls = protocol.endswith("SSL")
    if speaks == "TLS" and is_tls and wire.ssl_certificate_location is None and _asks_for_certificate(address):
        return AuthenticationRefused(
            f"{place} wants a certificate of the client, and closed the connection without one: "
            "found ssl.certificate.location not set"
        )
    if speaks == "TLS" and not is_tls:
        wanted = "SASL_SSL" if protocol.startswith("SASL_") else "SSL or SASL_SSL"
        return ConfigError(f"security.protocol: found {protocol}, but {place} speaks TLS, wanted {wanted}")
    if speaks == "Kafka" and is_tls:
        wanted = "SASL_PLAINTEXT" if protocol.startswith("SASL_") else "PLAINTEXT or SASL_PLAINTEXT"
        return ConfigError(f"security.protocol: found {protocol}, but {place} speaks no TLS, wanted {wanted}")
    if speaks and speaks not in ("TLS", "Kafka"):
        return ConfigError(f"bootstrap.servers: {place} does not speak Kafka's protocol: it says {speaks}")
    return None


def _alert_of(error: BaseException) -> str:
    """Return the alert with which a TLS server refused, in OpenSSL's words; empty for anything else."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return str(cause.reason or cause)
        cause = cause.__cause__
    return ""


def probe(address: Address) -> str:
    """Return `Kafka`, `TLS`, `HTTP`, `HTTPS`, the first bytes of anything else, or nothing if unknown."""
    try:
        plain = _first_bytes(socket.create_connection((address.host, address.port), timeout=_ANSWER_S))
    except OSError:
        return ""
    if plain[:2] == b"\x15\x03":
        plain = b""
    elif plain:
        return _named(plain)
    try:
        wrapped = _wrapped(address, _any_server())
    except ssl.SSLError as error:
        # An alert is TLS as well: it wants what this question does not have.
        return "TLS" if "ALERT" in str(error.reason or "") else ""
    except (OSError, UnicodeError):
        return ""
    return "HTTPS" if _named(_first_bytes(wrapped)) == "HTTP" else "TLS"


def _any_server() -> ssl.SSLContext:
    """Return a context that accepts any server: the check sends nothing secret."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _wrapped(address: Address, context: ssl.SSLContext) -> ssl.SSLSocket:
    raw = socket.create_connection((address.host, address.port), timeout=_ANSWER_S)
    try:
        return context.wrap_socket(raw, server_hostname=address.host)
    except BaseException:
        raw.close()
        raise


def _asks_for_certificate(address: Address) -> bool:
    """Return whether a TLS server asks clients for a certificate. False where Python's ssl does not show its
    messages."""
    context = _any_server()
    seen: list[int] = []
    if not hasattr(context, "_msg_callback"):
        return False
    context._msg_callback = lambda *message: seen.append(int(message[4]))
    with suppress(OSError, UnicodeError):
        _wrapped(address, context).close()
    return _CERTIFICATE_REQUEST in seen


def _first_bytes(connection: socket.socket) -> bytes:
    """Return the response to a request in Kafka's protocol; without one, the response to an empty line, which some
    servers wait for."""
    question = headers.encode_request_frame(ApiKey.API_VERSIONS, 0, 1, "ottla-greeting", {})
    with connection:
        for sent in (question, b"\r\n\r\n"):
            deadline = time.monotonic() + _SILENCE_S
            try:
                connection.sendall(sent)
                connection.settimeout(max(0.01, deadline - time.monotonic()))
                found = connection.recv(64)
            except TimeoutError:
                continue
            except OSError:
                return b""
            return found + _rest(connection, _TELLING_BYTES - len(found), deadline)
    return b""


def _rest(connection: socket.socket, wanted: int, deadline: float) -> bytes:
    """Return up to `wanted` more bytes: a frame may arrive in pieces, or be cut off by the end of its broker."""
    found = b""
    try:
        while len(found) < wanted and (wait_s := deadline - time.monotonic()) > 0:
            connection.settimeout(wait_s)
            piece = connection.recv(wanted - len(found))
            if not piece:
                break
            found += piece
    except OSError:
        pass
    return found


def _named(found: bytes) -> str:
    if not found:
        return ""
    if found.startswith(b"HTTP/") or b"<html" in found.lower():
        return "HTTP"
    if len(found) < _TELLING_BYTES and found.startswith(b"\0"):
        return ""  # It may be the beginning of a frame, of a broker that ended.
    has_length = 4 <= int.from_bytes(found[:4], "big") < 1024 * 1024
    is_frame = has_length and found[4:_TELLING_BYTES] == b"\0\0\0\x01"
    return "Kafka" if is_frame else repr(found[:32])
